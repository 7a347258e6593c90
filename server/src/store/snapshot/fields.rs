//! The fields of a header, one after the other. The fields and their lengths are fixed.

use std::{fmt, path::Path};

use super::{checksum, header::SnapshotHeader};
use crate::store::StoreError;

/// Fills a header from its first byte on.
pub struct Writer {
    bytes: [u8; SnapshotHeader::BYTES],
    length: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            bytes: [0; SnapshotHeader::BYTES],
            length: 0,
        }
    }
}

impl Writer {
    /// Writes the next field.
    #[expect(
        clippy::indexing_slicing,
        reason = "the fields are fixed, and fit: every snapshot has all of them"
    )]
    pub fn put(&mut self, value: &[u8]) {
        self.bytes[self.length..][..value.len()].copy_from_slice(value);
        self.length += value.len();
    }

    /// Leaves unused bytes at zero, and ends the header with its checksum.
    pub fn finish(mut self) -> [u8; SnapshotHeader::BYTES] {
        let (covered, end) = self.bytes.split_at_mut(SnapshotHeader::BYTES - 8);
        end.copy_from_slice(&checksum(covered).to_le_bytes());
        self.bytes
    }
}

/// Reads the fields of a header from its first byte on.
pub struct Reader<'a> {
    pub bytes: &'a [u8],
    pub path: &'a Path,
}

impl Reader<'_> {
    /// Returns the next `N` bytes. The fields of a header are fixed and fit, so the bytes exist.
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.bytes.split_first_chunk() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => [0; N],
        }
    }

    /// Returns the next number.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Returns the next text, which was padded with zeros.
    pub fn text<const N: usize>(&mut self) -> String {
        let bytes: [u8; N] = self.take();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(N);
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
    }

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
