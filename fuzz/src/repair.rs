//! Repairs: recompute the checksums of edited files, as `docs/format.md` describes them.
//!
//! After a repair an edited file looks as if it had been written like this, so it reaches the code
//! that runs after the checksum checks. A repair leaves files alone that do not have the format of
//! their name.

mod log;
mod snapshot;

use arbitrary::Arbitrary;
use xxhash_rust::xxh3::xxh3_64;

use crate::files::Files;

/// The parts that a repair corrects.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Repairs {
    /// The checksums of whole files, headers, tables and pages.
    pub checksums: bool,
    /// The lengths that files contain of themselves.
    pub lengths: bool,
    /// The descriptions that files contain of their contents: the bits of a shard, the previous
    /// batch.
    pub contents: bool,
}

impl Repairs {
    /// All repairs.
    pub const ALL: Self = Self {
        checksums: true,
        lengths: true,
        contents: true,
    };

    /// Repairs all files.
    pub fn apply(self, files: &mut Files) {
        for (name, bytes) in files.iter_mut() {
            if name == "MANIFEST" {
                self.manifest(bytes);
            } else if name.contains(".snapshot") {
                snapshot::repair(self, bytes);
            }
        }
        log::repair(self, files);
    }

    /// Repairs a manifest.
    pub fn manifest(self, bytes: &mut [u8]) {
        if self.lengths {
            put(bytes, 16, bytes.len() as u64);
        }
        if self.checksums {
            seal(bytes);
        }
    }
}

/// Writes the checksum of all bytes but the last 8 into the last 8.
fn seal(bytes: &mut [u8]) {
    if let Some((covered, checksum)) = bytes.split_last_chunk_mut() {
        *checksum = xxh3_64(covered).to_le_bytes();
    }
}

/// Returns the 8-byte number at an offset.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

/// Writes an 8-byte number at an offset, if there is room.
fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *field = value.to_le_bytes();
    }
}
