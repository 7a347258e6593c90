//! Snapshots: files that each hold shards of one filter, in formats that `docs/format.md` tells.
//!
//! ```text
//! header    384 bytes: what the filter is, and a checksum of that
//! extension what else it is, a key profile or layers, and a checksum of that: from format 3 on
//! shards    the bits of those shards that have any, one after the other
//! table     for each shard its state and the checksums of its pages, and a checksum of them all
//! ```
//!
//! The first snapshot of a filter holds all shards that have keys, a later one those that have
//! changed since; together they are the filter, the newest copy of each shard. Which files are
//! a filter's is said by the manifest.
//!
//! The [`writer`] copies one shard at a time; the [`reader`] believes nothing before its
//! checksum has been verified, and takes no memory by the word of a file. It reads format 1 as
//! well, in which a file holds all shards.

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

/// The checksum of headers and tables: XXH3 with 64 bits, no seed. It guards against disks, not
/// against people.
fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

#[cfg(test)]
pub(super) mod tests;
