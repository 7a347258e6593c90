//! Where messages begin and end in the bytes of a gRPC stream: each is preceded by one byte
//! that says whether it is compressed and four of its length, the greatest first.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

const HEADER_BYTES: usize = 5;

/// Follows a stream of messages.
#[derive(Debug, Default)]
pub struct Framing {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// The last message that a header announced.
    message: Message,
    /// What has not come of it.
    missing_bytes: usize,
}

/// A message of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// Its place in the stream, from 1 on.
    pub number: u64,
    /// Its length.
    pub bytes: usize,
}

impl Framing {
    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, mut data: &[u8]) {
        while let Some((&first, rest)) = data.split_first() {
            if self.missing_bytes > 0 {
                let taken = self.missing_bytes.min(data.len());
                self.missing_bytes -= taken;
                data = data.get(taken..).unwrap_or_default();
                continue;
            }
            if let Some(byte) = self.header.get_mut(self.header_bytes) {
                *byte = first;
                self.header_bytes += 1;
                data = rest;
            }
            if self.header_bytes == HEADER_BYTES {
                let [_compressed, length @ ..] = self.header;
                self.header_bytes = 0;
                self.missing_bytes = u32::from_be_bytes(length) as usize;
                self.message = Message {
                    number: self.message.number + 1,
                    bytes: self.missing_bytes,
                };
            }
        }
    }

    /// The message that has begun to arrive and has not ended.
    pub fn under_way(&self) -> Option<Message> {
        (self.missing_bytes > 0).then_some(self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.resize(HEADER_BYTES + length as usize, 0xff);
        bytes
    }

    /// Whatever the pieces in which the bytes come.
    #[test]
    fn messages_are_told_apart() {
        let lengths = [3, 0, 300, 1];
        let stream: Vec<u8> = lengths.into_iter().flat_map(message).collect();
        for piece in 1..stream.len() {
            let mut framing = Framing::default();
            let mut seen = Vec::new();
            for bytes in stream.chunks(piece) {
                framing.feed(bytes);
                if let Some(message) = framing.under_way()
                    && seen.last() != Some(&message)
                {
                    seen.push(message);
                }
            }
            assert_eq!(framing.under_way(), None);
            assert_eq!((framing.message.number, framing.message.bytes), (4, 1));
            for Message { number, bytes } in seen {
                assert_eq!(lengths[number as usize - 1] as usize, bytes);
            }
        }
    }

    #[test]
    fn a_message_is_under_way_from_its_header_to_its_last_byte() {
        let mut framing = Framing::default();
        framing.feed(&message(7)[..4]);
        assert_eq!(framing.under_way(), None);
        framing.feed(&message(7)[4..11]);
        let expected = Message {
            number: 1,
            bytes: 7,
        };
        assert_eq!(framing.under_way(), Some(expected));
        framing.feed(&message(7)[11..]);
        assert_eq!(framing.under_way(), None);
    }
}
