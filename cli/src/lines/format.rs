//! The division of a file into records, and the key of each record.

use std::borrow::Cow;

use data_encoding::{DecodeError, DecodeKind, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};

use super::encoding;

/// The number of bytes of the length before each key of [`RecordFormat::Binary`].
pub(super) const LENGTH_BYTES: usize = 4;

/// The way in which a file is divided into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordFormat {
    /// Lines. Each ends with LF or CRLF, and is the key.
    #[default]
    Lines,
    /// Lines in which the bytes of the key are hexadecimal digits.
    HexLines,
    /// Each key ends with a NUL.
    Null,
    /// The length of each key comes before it, in 4 bytes, the highest byte first. No such file
    /// begins like a compressed file: these bytes would be a length of more than 16 MiB.
    Binary,
}

impl RecordFormat {
    /// Returns the argument that selects the format.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::HexLines => "--hex",
            Self::Null => "--null",
            Self::Binary => "--binary",
        }
    }

    /// Returns the byte that each record ends with, if there is one.
    pub(crate) fn end(self) -> Option<u8> {
        match self {
            Self::Lines | Self::HexLines => Some(b'\n'),
            Self::Null => Some(0),
            Self::Binary => None,
        }
    }

    /// Returns true if the file is a text, which can have a byte order mark and padding.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Lines | Self::HexLines)
    }

    /// Returns the maximum number of bytes of a key in a record.
    pub(super) fn max_record_bytes(self, max_key_bytes: usize) -> usize {
        match self {
            Self::HexLines => 2 * max_key_bytes,
            Self::Lines | Self::Null | Self::Binary => max_key_bytes,
        }
    }

    /// Returns a record without the bytes around its key.
    pub(crate) fn content(self, record: &[u8]) -> &[u8] {
        match self {
            Self::Lines | Self::HexLines => encoding::text(record),
            Self::Null => record.strip_suffix(b"\0").unwrap_or(record),
            Self::Binary => record.get(LENGTH_BYTES..).unwrap_or_default(),
        }
    }

    /// Returns the key that the content of a record stands for, or the reason why there is none.
    pub(crate) fn key(self, content: &[u8]) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Self::HexLines => from_hex(content).map(Cow::Owned),
            Self::Lines | Self::Null | Self::Binary => Ok(Cow::Borrowed(content)),
        }
    }
}

/// Decodes hexadecimal digits, or returns the reason why it cannot.
pub(crate) fn from_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
    let decoded = HEXLOWER_PERMISSIVE.decode(digits);
    decoded.map_err(|DecodeError { position, kind }| match kind {
        DecodeKind::Length => format!("{} hexadecimal digits: each byte has two", digits.len()),
        _ => format!("no hexadecimal digit at byte {}", position + 1),
    })
}

/// Encodes bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER_PERMISSIVE.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_bytes() {
        for (digits, bytes) in [("", &b""[..]), ("fffe", b"\xff\xfe"), ("0A1b", b"\x0a\x1b")] {
            assert_eq!(from_hex(digits.as_bytes()).unwrap(), bytes);
            assert_eq!(to_hex(bytes), digits.to_lowercase());
        }
        for (digits, reason) in [
            ("fff", "3 hexadecimal digits: each byte has two"),
            ("ffxf", "no hexadecimal digit at byte 3"),
            ("ff ", "3 hexadecimal digits: each byte has two"),
        ] {
            assert_eq!(from_hex(digits.as_bytes()).unwrap_err(), reason);
        }
    }
}
