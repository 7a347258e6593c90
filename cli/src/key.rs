//! A key as given in an argument, and as printed.

use std::ffi::OsStr;

use serde_json::Value;

use super::{
    failure::Failure,
    lines::{from_hex, to_hex},
};

/// A key, and its form in arguments and results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    bytes: Vec<u8>,
    is_hex: bool,
}

impl Key {
    /// Returns the key of an argument. The key is the bytes of the argument or, with `hex`, the
    /// bytes that its hexadecimal digits stand for.
    pub(super) fn parse(argument: &OsStr, hex: bool) -> Result<Self, Failure> {
        // On Unix these are exactly the bytes that were given.
        let bytes = argument.as_encoded_bytes();
        let bytes = match hex {
            false => bytes.to_vec(),
            true => from_hex(bytes)
                .map_err(|reason| Failure::Usage(format!("--hex {argument:?}: {reason}")))?,
        };
        Ok(Self { bytes, is_hex: hex })
    }

    /// Returns a line of text: a word, a tab and the key as it was given.
    pub(super) fn text(&self, word: &str) -> Vec<u8> {
        let mut text = format!("{word}\t").into_bytes();
        match self.is_hex {
            true => text.extend(to_hex(&self.bytes).into_bytes()),
            false => text.extend(&self.bytes),
        }
        text
    }

    /// Returns the key as a field of JSON. The name is `name`. If the key was given in hexadecimal
    /// digits or is not UTF-8, the value has hexadecimal digits and `_hex` is added to the name.
    pub(super) fn field(&self, name: &str) -> (String, Value) {
        match str::from_utf8(&self.bytes) {
            Ok(text) if !self.is_hex => (name.to_owned(), text.into()),
            _ => (format!("{name}_hex"), to_hex(&self.bytes).into()),
        }
    }

    /// Returns the key and an answer as a JSON object.
    pub(super) fn answer(&self, name: &str, is_so: bool) -> Value {
        let answer = (name.to_owned(), is_so.into());
        [self.field("key"), answer].into_iter().collect()
    }

    /// Returns a key that is printed in the same form.
    pub(super) fn another(&self, bytes: Vec<u8>) -> Self {
        Self { bytes, ..*self }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(argument: &str, hex: bool) -> Key {
        Key::parse(OsStr::new(argument), hex).unwrap()
    }

    #[test]
    fn a_key_is_printed_as_it_was_given() {
        for (given, bytes, text, json) in [
            (
                key("ä", false),
                "ä".as_bytes(),
                "seen\tä",
                r#"{"key":"ä","seen":true}"#,
            ),
            (
                key("6A", true),
                b"j",
                "seen\t6a",
                r#"{"key_hex":"6a","seen":true}"#,
            ),
            (
                key("fffe", true),
                b"\xff\xfe",
                "seen\tfffe",
                r#"{"key_hex":"fffe","seen":true}"#,
            ),
        ] {
            assert_eq!(given.as_ref(), bytes);
            assert_eq!(given.text("seen"), text.as_bytes());
            assert_eq!(given.answer("seen", true).to_string(), json);
        }
        let raw = Key {
            bytes: b"\xff\xfe".to_vec(),
            is_hex: false,
        };
        assert_eq!(raw.text("new"), b"new\t\xff\xfe");
        assert_eq!(raw.field("key"), ("key_hex".to_owned(), "fffe".into()));
    }

    #[test]
    fn digits_that_are_none_are_refused() {
        let refused = Key::parse(OsStr::new("0g"), true).unwrap_err();
        let says = "--hex \"0g\": no hexadecimal digit at byte 2";
        assert!(
            matches!(&refused, Failure::Usage(message) if message == says),
            "{refused:?}"
        );
    }
}
