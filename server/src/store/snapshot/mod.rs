//! Snapshots: files that each hold shards of one filter. `docs/format.md` describes the bytes.
//!
//! ```text
//! header    384 bytes: the fields of the filter, and their checksum
//! extension a key profile or layers, and their checksum; none if the filter has neither
//! shards    the bits of those shards that have any, one after the other
//! table     the state of each shard and the checksums of its pages, and a checksum of it all
//! ```
//!
//! The first snapshot of a filter holds all shards that have keys. A later one holds the shards
//! that have changed since. The filter consists of the newest copy of each shard in all its
//! snapshots. The manifest says which files belong to a filter.
//!
//! The [`writer`] copies one shard at a time. The [`reader`] uses no data before it has verified
//! its checksum, and allocates no memory because of an unverified number in a file.

mod body;
mod extension;
mod fields;
mod files;
mod header;
mod pages;
mod reader;
mod table;
mod writer;

pub use files::SnapshotFiles;
pub use header::{FORMAT, SnapshotHeader};
pub use reader::{FilterReader, SnapshotReader, read_header};
pub use table::ShardState;
pub use writer::Written;

/// Returns the checksum of headers and tables: XXH3 with 64 bits, no seed. It protects against disk
/// errors, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
pub(super) mod tests;
