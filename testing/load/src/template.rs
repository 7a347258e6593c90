//! Requests as bytes, encoded in advance except for the end of each key.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use seenset_client::{Error, MAX_MESSAGE_BYTES, v1::QueryAndAddBatchRequest};

use super::answer::PREFIX_BYTES;

/// The number of digits of a number in a key.
const DIGITS: usize = 8;
/// The shortest key in bytes: the number of the run, and the number of the key in it.
pub const MIN_KEY_BYTES: usize = 2 * DIGITS;
/// The start of the keys, as far as they have room for it.
const HOST: &str = "https://www.example.com/";

/// An encoded request with a fixed number of keys. A key has the same bytes in a message for one
/// key and in a message for many, so one template serves all forms.
pub(super) struct Template {
    /// The whole frame, with keys of the number 0.
    frame: Bytes,
    /// The number of bytes of a key in the frame.
    stride: usize,
    /// The offset at which the keys begin. They end with the frame.
    begin: usize,
    /// The start that all keys have in common.
    prefix: String,
}

impl Template {
    /// Creates the template for requests that ask `filter` about `count` keys (at least one) of
    /// `key_bytes` (at least [`MIN_KEY_BYTES`]). Each `run` has other keys.
    pub fn new(filter: &str, key_bytes: usize, run: u64, count: usize) -> Result<Self, Error> {
        let room = key_bytes.saturating_sub(MIN_KEY_BYTES);
        let prefix: String = HOST
            .chars()
            .chain(std::iter::repeat('-'))
            .take(room)
            .chain(digits(run).map(char::from))
            .collect();
        let mut key = prefix.clone();
        push_number(&mut key, 0);
        let mut request = QueryAndAddBatchRequest {
            filter: filter.to_owned(),
            ..Default::default()
        };
        let begin = PREFIX_BYTES + request.encoded_len();
        request.binary_keys = vec![key.into_bytes(); count];
        let message_bytes = request.encoded_len();
        if message_bytes > MAX_MESSAGE_BYTES {
            return Err(Error::TooLarge {
                encoded_bytes: message_bytes,
                limit_bytes: MAX_MESSAGE_BYTES,
            });
        }
        let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message_bytes);
        frame.put_u8(0);
        // A message has at most 16 MiB.
        frame.put_u32(message_bytes as u32);
        frame.put(&*request.encode_to_vec());
        Ok(Self {
            stride: (frame.len() - begin) / count,
            frame: frame.freeze(),
            begin,
            prefix,
        })
    }

    /// Returns a request whose keys have the numbers from `first` on.
    pub fn fill(&self, first: u64) -> Bytes {
        let mut frame = BytesMut::from(&*self.frame);
        let keys = frame.get_mut(self.begin..).unwrap_or_default();
        for (key, number) in keys.chunks_exact_mut(self.stride).zip(first..) {
            if let Some(end) = key.last_chunk_mut() {
                *end = digits(number);
            }
        }
        frame.freeze()
    }

    /// Writes the key of that number to `key`, and replaces its old content.
    pub fn key(&self, number: u64, key: &mut String) {
        key.clear();
        key.push_str(&self.prefix);
        push_number(key, number);
    }
}

fn push_number(key: &mut String, number: u64) {
    key.extend(digits(number).map(char::from));
}

/// Returns the low 48 bits of a number as digits of 6 bits, in a few instructions. Writing keys
/// must cost the sender less than reading them costs the receiver. No run sends so many keys.
fn digits(number: u64) -> [u8; DIGITS] {
    // Spreads 24 bits over each 32, then 12 over each 16, then 6 over each 8.
    let mut spread = (number & 0x00ff_ffff) | (number & 0xffff_ff00_0000) << 8;
    spread = (spread & 0x0000_0fff_0000_0fff) | (spread & 0x00ff_f000_00ff_f000) << 4;
    spread = (spread & 0x003f_003f_003f_003f) | (spread & 0x0fc0_0fc0_0fc0_0fc0) << 2;
    (spread + 0x3030_3030_3030_3030).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use seenset_client::v1::QueryAndAddRequest;

    use super::*;

    fn key(template: &Template, number: u64) -> String {
        let mut key = "another".to_owned();
        template.key(number, &mut key);
        key
    }

    /// The message of a frame whose length is right.
    #[track_caller]
    fn message(frame: &Bytes) -> &[u8] {
        let (prefix, message) = frame.split_first_chunk::<PREFIX_BYTES>().unwrap();
        assert_eq!(prefix[0], 0, "compressed");
        let length = u32::from_be_bytes(*prefix.last_chunk().unwrap());
        assert_eq!(length as usize, message.len());
        message
    }

    #[test]
    fn a_request_has_the_keys_of_its_numbers_and_names_the_filter() {
        // Lengths of one, two and three bytes.
        for key_bytes in [MIN_KEY_BYTES, 17, 39, 60, 127, 128, 16_384] {
            for (filter, count) in [("", 1), ("a", 3), (&*"f".repeat(128), 100)] {
                let template = Template::new(filter, key_bytes, 7, count).unwrap();
                let frame = template.fill(1 << 40);
                let request = QueryAndAddBatchRequest::decode(message(&frame)).unwrap();
                assert_eq!(request.filter, filter);
                assert_eq!(request.binary_keys.len(), count);
                for (asked, number) in request.binary_keys.iter().zip(1 << 40..) {
                    assert_eq!(asked.len(), key_bytes);
                    assert_eq!(*asked, key(&template, number).into_bytes());
                }
            }
        }
    }

    #[test]
    fn a_request_of_one_key_is_one_for_a_single_call() {
        let template = Template::new("f", 200, 7, 1).unwrap();
        let frame = template.fill(5);
        let request = QueryAndAddRequest::decode(message(&frame)).unwrap();
        assert_eq!(
            (request.filter, request.binary_key),
            ("f".into(), key(&template, 5).into_bytes())
        );
    }

    #[test]
    fn no_two_keys_are_the_same() {
        let numbers = (0..300).chain((3..48).map(|bit| (1 << bit) + 1_000));
        let mut keys = HashSet::new();
        for run in [0, 1, u64::MAX] {
            let template = Template::new("", MIN_KEY_BYTES, run, 1).unwrap();
            for number in numbers.clone() {
                assert!(keys.insert(key(&template, number)), "{run}, {number}");
            }
        }
    }

    #[test]
    fn what_fits_no_message_is_refused() {
        let template = Template::new("", 1 << 20, 7, 16);
        assert!(matches!(template, Err(Error::TooLarge { .. })));
    }
}
