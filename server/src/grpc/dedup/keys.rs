//! The keys of a request: in a field for text, or in the corresponding field for any bytes.

use std::ops::RangeInclusive;

use seenset_proto::batch::{self, BothForms};
use tonic::Status;

use crate::engine::{self, EngineError};
use crate::grpc::status::status;

impl engine::Keys for batch::Keys {
    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.iter()
    }

    fn lengths(&self) -> Option<RangeInclusive<usize>> {
        self.lengths()
    }

    fn bytes(&self) -> usize {
        self.message_bytes()
    }

    fn field(&self) -> &'static str {
        self.field()
    }
}

/// Returns the keys of a batch.
///
/// # Errors
///
/// INVALID_ARGUMENT if both fields have keys.
pub fn of_batch(keys: Result<batch::Keys, BothForms>) -> Result<batch::Keys, Status> {
    keys.map_err(|BothForms { text, binary }| {
        Status::invalid_argument(format!(
            "keys has {text} keys and binary_keys has {binary}; a batch has all of its keys in one \
             of the two: send two batches, or all keys in binary_keys"
        ))
    })
}

/// The key of a request for one key.
#[derive(Debug)]
pub struct Key {
    bytes: Vec<u8>,
    /// Whether it came in `binary_key`.
    is_binary: bool,
}

impl Key {
    /// Returns the key in the fields `key` and `binary_key`. If both are empty, so is the key.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT if both are set.
    pub fn new(text: String, binary: Vec<u8>) -> Result<Self, Status> {
        let is_binary = !binary.is_empty();
        if is_binary && !text.is_empty() {
            return Err(Status::invalid_argument(format!(
                "key has {} bytes and binary_key has {}; a request has its key in one of the two: \
                 leave the other empty",
                text.len(),
                binary.len()
            )));
        }
        let bytes = if is_binary { binary } else { text.into_bytes() };
        Ok(Self { bytes, is_binary })
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the status of an error of a call for this key. It names the field that the key came
    /// in.
    pub fn status(&self, mut error: EngineError) -> Status {
        if let EngineError::KeyLength { field, .. } = &mut error
            && self.is_binary
        {
            *field = "binary_key";
        }
        status(error)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_key_comes_in_one_of_two_fields() {
        for (text, binary, expected) in [
            ("", &b""[..], &b""[..]),
            ("a", b"", b"a"),
            ("", b"a", b"a"),
            ("", b"\xff\xfe", b"\xff\xfe"),
        ] {
            let key = Key::new(text.to_owned(), binary.to_vec()).unwrap();
            assert_eq!(key.bytes(), expected);
        }
        let refused = Key::new("abc".to_owned(), vec![0xff, 0xfe]).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let says = "key has 3 bytes and binary_key has 2; ";
        assert!(refused.message().starts_with(says), "{refused}");
    }

    #[test]
    fn an_error_names_the_field_of_the_key() {
        let error = || EngineError::KeyLength {
            field: "key",
            index: None,
            bytes: 5,
            limit: 4,
        };
        for (text, binary, says) in [
            ("abcde", &b""[..], "key has 5 bytes; "),
            ("", b"abcde", "binary_key has 5 bytes; "),
        ] {
            let key = Key::new(text.to_owned(), binary.to_vec()).unwrap();
            let status = key.status(error());
            assert!(status.message().starts_with(says), "{status}");
        }
        let empty = Key::new(String::new(), Vec::new()).unwrap();
        assert!(empty.status(error()).message().starts_with("key has "));
    }

    #[test]
    fn a_batch_with_keys_in_both_fields_is_refused() {
        let refused = of_batch(Err(BothForms { text: 3, binary: 2 })).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let says = "keys has 3 keys and binary_keys has 2; ";
        assert!(refused.message().starts_with(says), "{refused}");
    }
}
