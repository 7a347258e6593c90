//! The fields of a header and an extension: their checks, numbers and text.

use std::{fmt, path::Path};

use crate::store::StoreError;

/// Checks the fields of the file at `path`.
pub struct Checks<'a> {
    pub path: &'a Path,
}

impl Checks<'_> {
    /// Fails if a field is not as another field, or the file, requires.
    pub fn expect<T: ToString + ?Sized>(
        &self,
        what: &str,
        expected: &T,
        found: &T,
    ) -> Result<(), StoreError> {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.require(what, expected == found, &expected, &found)
    }

    /// Fails if a number is too large.
    pub fn at_most(&self, what: &str, most: u64, found: u64) -> Result<(), StoreError> {
        self.require(what, found <= most, &format!("at most {most}"), &found)
    }

    /// Fails if `holds` is false.
    pub fn require(
        &self,
        what: &str,
        holds: bool,
        expected: &str,
        found: &impl ToString,
    ) -> Result<(), StoreError> {
        if holds {
            Ok(())
        } else {
            Err(self.damaged(what, expected, &found.to_string()))
        }
    }

    /// Returns the error for a value that no server writes.
    pub fn damaged(&self, what: &str, expected: &str, found: &str) -> StoreError {
        StoreError::Damaged {
            path: self.path.into(),
            what: what.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// A checksum in the form in which people compare it.
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Returns text as a field of `N` bytes, which must be long enough.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// Returns the text of a field that was padded with zeros.
pub fn text(field: &[u8]) -> String {
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Removes and returns the first bytes; `None` if there are fewer.
pub fn take<'a>(left: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = left.split_at_checked(count)?;
    *left = rest;
    Some(first)
}

/// Removes and returns a number of 4 bytes.
pub fn number(left: &mut &[u8]) -> Option<u32> {
    let (first, rest) = left.split_first_chunk()?;
    *left = rest;
    Some(u32::from_le_bytes(*first))
}

/// Removes and returns a number of 8 bytes.
pub fn long_number(left: &mut &[u8]) -> Option<u64> {
    let (first, rest) = left.split_first_chunk()?;
    *left = rest;
    Some(u64::from_le_bytes(*first))
}
