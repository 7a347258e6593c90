//! What an answer looks like, byte by byte: all answers to requests of as many keys do alike,
//! but for the answers themselves.

use seenset_proto::v1::{QueryAndAddBatchResponse, QueryAndAddResponse};

use super::Calls;

/// What gRPC puts before a message.
pub(super) const PREFIX_BYTES: usize = 5;

/// The form of the answers to one kind of request.
pub(super) struct Form {
    /// The bytes before the answers.
    head: Vec<u8>,
    /// The answers, a byte for each key.
    keys: usize,
}

/// What came is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// As many answers as it has, taken for one.
    pub answers: usize,
}

impl Form {
    /// Of the answers to such calls.
    pub fn new(calls: Calls) -> Self {
        use prost::Message;
        let keys = calls.keys();
        let message = match calls {
            Calls::Single | Calls::Coalesced => {
                QueryAndAddResponse { seen: Some(false) }.encode_to_vec()
            }
            Calls::Batch { .. } | Calls::Stream { .. } => {
                let seen = vec![false; keys];
                QueryAndAddBatchResponse { seen }.encode_to_vec()
            }
        };
        // Not compressed, then the length, which fits: there is no longer request.
        let mut head = vec![0];
        head.extend((message.len() as u32).to_be_bytes());
        head.extend(message);
        head.truncate(head.len().saturating_sub(keys));
        Self { head, keys }
    }

    /// The bytes before the answers.
    pub fn head_bytes(&self) -> usize {
        self.head.len()
    }

    /// The bytes of an answer.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.keys
    }

    /// The answers at the front of what has been received; none if they have not all come.
    pub fn read<'a>(&self, received: &'a [u8]) -> Result<Option<&'a [u8]>, Unfit> {
        if self.head.iter().zip(received).any(|(a, b)| a != b) {
            return Err(Unfit { answers: 0 });
        }
        Ok(received.get(self.head.len()..self.bytes()))
    }

    /// The answers, if nothing else was received.
    pub fn read_all<'a>(&self, received: &'a [u8]) -> Result<&'a [u8], Unfit> {
        match self.read(received)? {
            Some(answers) if received.len() == self.bytes() => Ok(answers),
            _ => Err(Unfit {
                answers: received.len().saturating_sub(self.head.len()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use prost::Message;

    use super::*;

    fn frame(message: &impl Message) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(message.encoded_len() as u32);
        message.encode(&mut frame).unwrap();
        frame
    }

    #[test]
    fn answers_are_read_when_all_have_come() {
        for keys in [1, 2, 127, 128, 100_000] {
            let form = Form::new(Calls::Batch { keys });
            let seen: Vec<bool> = (0..keys).map(|key| key % 3 == 0).collect();
            let expected: Vec<u8> = seen.iter().copied().map(u8::from).collect();
            let mut received = frame(&QueryAndAddBatchResponse { seen });
            assert_eq!(received.len(), form.bytes());
            assert_eq!(form.read_all(&received), Ok(&*expected));
            for part in [0, 1, 6, received.len() - 1] {
                assert_eq!(form.read(&received[..part]), Ok(None), "{part} of {keys}");
                assert!(form.read_all(&received[..part]).is_err());
            }
            received.put_u8(0);
            assert_eq!(form.read(&received), Ok(Some(&*expected)));
            let answers = keys + 1;
            assert_eq!(form.read_all(&received), Err(Unfit { answers }));
        }
        let single = frame(&QueryAndAddResponse { seen: Some(true) });
        assert_eq!(Form::new(Calls::Single).read_all(&single), Ok(&[1][..]));
    }

    #[test]
    fn what_is_no_answer_is_told_at_once() {
        let form = Form::new(Calls::Batch { keys: 3 });
        let seen = vec![true; 2];
        let short = frame(&QueryAndAddBatchResponse { seen });
        assert_eq!(form.read(&short), Err(Unfit { answers: 0 }));
        assert_eq!(form.read(b"<html>"), Err(Unfit { answers: 0 }));
        assert_eq!(form.read(&[1]), Err(Unfit { answers: 0 }), "compressed");
    }
}
