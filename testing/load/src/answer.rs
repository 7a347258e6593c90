//! The bytes of an answer. All answers to requests with the same number of keys have the same form.
//! They differ in the answers to the keys, and in a warning that can follow them.

use seenset_client::v1::{QueryAndAddBatchResponse, QueryAndAddResponse};

use super::Calls;

/// The length of the prefix that gRPC puts before a message.
pub(super) const PREFIX_BYTES: usize = 5;

/// The form of the answers to one kind of request.
pub(super) struct Form {
    /// The bytes of the message before the answers.
    head: Vec<u8>,
    /// The number of answers, one byte for each key.
    keys: usize,
}

/// The bytes received are not a valid answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// The number of answers that they would have if they were one.
    pub answers: usize,
}

impl Form {
    /// Creates the form of the answers to calls of this form.
    pub fn new(calls: Calls) -> Self {
        use prost::Message;
        let keys = calls.keys();
        let message = match calls {
            Calls::Single | Calls::Coalesced => {
                QueryAndAddResponse { seen: Some(false) }.encode_to_vec()
            }
            Calls::Batch { .. } | Calls::Stream { .. } => {
                let seen = vec![false; keys];
                let response = QueryAndAddBatchResponse {
                    seen,
                    capacity_warning: None,
                };
                response.encode_to_vec()
            }
        };
        let mut head = message;
        head.truncate(head.len().saturating_sub(keys));
        Self { head, keys }
    }

    /// Returns the number of bytes before the answers.
    pub fn head_bytes(&self) -> usize {
        PREFIX_BYTES + self.head.len()
    }

    /// Returns the answer at the start of the received bytes; `None` if it is not complete yet.
    pub fn read<'a>(&self, received: &'a [u8]) -> Result<Option<Answer<'a>>, Unfit> {
        let unfit = |answers| Err(Unfit { answers });
        if received.first().is_some_and(|&compressed| compressed != 0) {
            return unfit(0);
        }
        let Some((prefix, rest)) = received.split_at_checked(PREFIX_BYTES) else {
            return Ok(None);
        };
        let length = prefix
            .last_chunk()
            .map_or(0, |length| u32::from_be_bytes(*length)) as usize;
        if length < self.head.len() + self.keys || self.head.iter().zip(rest).any(|(a, b)| a != b) {
            return unfit(0);
        }
        // A warning follows the answers.
        let seen = rest.get(..length).and_then(|message| {
            let seen = message.get(self.head.len()..)?;
            seen.get(..self.keys)
        });
        let bytes = PREFIX_BYTES + length;
        Ok(seen.map(|seen| Answer { seen, bytes }))
    }

    /// Returns the answers, if nothing else was received.
    pub fn read_all<'a>(&self, received: &'a [u8]) -> Result<&'a [u8], Unfit> {
        match self.read(received)? {
            Some(Answer { seen, bytes }) if received.len() == bytes => Ok(seen),
            _ => Err(Unfit {
                answers: received
                    .len()
                    .saturating_sub(PREFIX_BYTES + self.head.len()),
            }),
        }
    }
}

/// The answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    /// Whether each key was seen, a byte for each.
    pub seen: &'a [u8],
    /// The length of the whole answer.
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use prost::Message;
    use seenset_client::v1::CapacityWarning;

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
            let mut response = QueryAndAddBatchResponse {
                seen,
                capacity_warning: None,
            };
            let mut received = frame(&response);
            assert_eq!(form.read_all(&received), Ok(&*expected));
            for part in [0, 1, 6, received.len() - 1] {
                assert_eq!(form.read(&received[..part]), Ok(None), "{part} of {keys}");
                assert!(form.read_all(&received[..part]).is_err());
            }
            let whole = Answer {
                seen: &expected,
                bytes: received.len(),
            };
            received.put_u8(0);
            assert_eq!(form.read(&received), Ok(Some(whole)));
            let answers = keys + 1;
            assert_eq!(form.read_all(&received), Err(Unfit { answers }));

            response.capacity_warning = Some(CapacityWarning {
                keys: 9,
                capacity: 10,
                ..CapacityWarning::default()
            });
            assert_eq!(form.read_all(&frame(&response)), Ok(&*expected));
        }
        let single = frame(&QueryAndAddResponse { seen: Some(true) });
        assert_eq!(Form::new(Calls::Single).read_all(&single), Ok(&[1][..]));
    }

    #[test]
    fn what_is_no_answer_is_told_at_once() {
        let form = Form::new(Calls::Batch { keys: 3 });
        let seen = vec![true; 2];
        let short = frame(&QueryAndAddBatchResponse {
            seen,
            capacity_warning: None,
        });
        assert_eq!(form.read(&short), Err(Unfit { answers: 0 }));
        assert_eq!(form.read(b"<html>"), Err(Unfit { answers: 0 }));
        assert_eq!(form.read(&[1]), Err(Unfit { answers: 0 }), "compressed");
    }
}
