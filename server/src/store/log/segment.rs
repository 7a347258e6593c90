//! Segments: the files of the log.

use std::path::Path;

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use crate::store::{MAX_NUMBER, StoreError, format};

/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"SEENSLOG";
const SUFFIX: &str = ".log";

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The number of the segment: one more than that of the segment before.
    pub sequence: u64,
    /// A random number that is part of all checksums, so that no bytes of another segment look like
    /// a batch.
    pub salt: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Encoded {
    magic: [u8; 8],
    format: [u8; 4],
    header_bytes: [u8; 4],
    sequence: [u8; 8],
    salt: [u8; 8],
    zeros: [u8; 24],
    checksum: [u8; 8],
}

impl SegmentHeader {
    /// The length of a header.
    pub const BYTES: usize = size_of::<Encoded>();

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut encoded = Encoded {
            magic: MAGIC,
            format: FORMAT.to_le_bytes(),
            header_bytes: (Self::BYTES as u32).to_le_bytes(),
            sequence: self.sequence.to_le_bytes(),
            salt: self.salt.to_le_bytes(),
            zeros: [0; 24],
            checksum: [0; 8],
        };
        encoded.checksum = checksum(bytemuck::bytes_of(&encoded)).to_le_bytes();
        bytemuck::cast(encoded)
    }

    /// Decodes and verifies the header of the segment with number `sequence`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NewerFormat`], or [`StoreError::Damaged`] with the field.
    pub fn decode(
        bytes: &[u8; Self::BYTES],
        sequence: u64,
        path: &Path,
    ) -> Result<Self, StoreError> {
        let encoded: Encoded = bytemuck::cast(*bytes);
        let require = |what: &str, expected: String, found: String| {
            if expected == found {
                return Ok(());
            }
            Err(StoreError::Damaged {
                path: path.to_owned(),
                what: what.to_owned(),
                expected,
                found,
            })
        };
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        require("magic", text(&MAGIC), text(&encoded.magic))?;
        format::check(path, 1..=FORMAT, u32::from_le_bytes(encoded.format))?;
        let computed = checksum(bytes);
        let stored = u64::from_le_bytes(encoded.checksum);
        let hex = |checksum: u64| format!("{checksum:016x}");
        require("checksum of the header", hex(computed), hex(stored))?;
        let header_bytes = u32::from_le_bytes(encoded.header_bytes);
        require(
            "length of the header",
            Self::BYTES.to_string(),
            header_bytes.to_string(),
        )?;
        let header = Self {
            sequence: u64::from_le_bytes(encoded.sequence),
            salt: u64::from_le_bytes(encoded.salt),
        };
        require(
            "number of the segment",
            sequence.to_string(),
            header.sequence.to_string(),
        )?;
        Ok(header)
    }
}

fn checksum(header: &[u8]) -> u64 {
    xxh3_64(
        header
            .split_last_chunk::<8>()
            .map_or(header, |(rest, _)| rest),
    )
}

/// Returns the file name of a segment.
pub fn file_name(sequence: u64) -> String {
    format!("{sequence:016x}{SUFFIX}")
}

/// Returns the number of the segment in a file of this name; `None` if the file is not a segment.
pub fn sequence(file: &str) -> Option<u64> {
    let sequence = u64::from_str_radix(file.strip_suffix(SUFFIX)?, 16).ok()?;
    (file == file_name(sequence) && sequence <= MAX_NUMBER).then_some(sequence)
}
