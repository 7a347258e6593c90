//! Snapshots: one file that holds one filter, of format 1 (see `docs/format.md`).
//!
//! ```text
//! header    384 bytes: what the filter is, and a checksum of that
//! table     40 bytes for each shard, and a checksum of them all
//! shards    the bits of those shards that have any, one after the other
//! ```
//!
//! The [`writer`] copies one shard at a time; the [`reader`] believes nothing before its
//! checksum has been verified, and takes no memory by the word of a file.

mod header;
mod reader;
mod table;
mod writer;

pub use header::SnapshotHeader;
pub use reader::SnapshotReader;
pub use table::ShardState;
pub use writer::Written;

/// The greatest version that a snapshot may hold: past any that calls could reach, and far
/// from where counting on would overflow.
const MAX_VERSION: u64 = 1 << 62;

/// The checksum of all parts of a snapshot: XXH3 with 64 bits, no seed. It guards against
/// disks, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// [`checksum`] of bytes that come in pieces.
#[derive(Default)]
struct Checksum(xxhash_rust::xxh3::Xxh3Default);

impl Checksum {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn value(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests;
