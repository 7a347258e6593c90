//! Repairs: makes the checksums of edited files right again, as `docs/format.md` describes them.
//!
//! So what was edited looks as if it had been written like this, and reaches the code behind
//! the checksums. What does not look like a file of its name is left as it is.

mod log;
mod snapshot;

use arbitrary::Arbitrary;
use xxhash_rust::xxh3::xxh3_64;

use crate::files::Files;

/// What is made right.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Repairs {
    /// The checksums of the whole, of headers, tables and pages.
    pub checksums: bool,
    /// What files say of their own length.
    pub lengths: bool,
    /// What files say of what is in them: the bits of a shard, the batch before.
    pub contents: bool,
}

impl Repairs {
    /// Everything.
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

/// Has the last 8 bytes be the checksum of those before.
fn seal(bytes: &mut [u8]) {
    if let Some((covered, checksum)) = bytes.split_last_chunk_mut() {
        *checksum = xxh3_64(covered).to_le_bytes();
    }
}

/// The number at a place.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

/// Puts a number at a place, if there is room.
fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *field = value.to_le_bytes();
    }
}
