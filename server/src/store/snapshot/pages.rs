//! Pages: what a shard is divided into in a file, each with a checksum of its own.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{planted::Bug, store::FilterId};

/// How the shards of a file are divided into pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    /// The length of a page; the last one of a shard may be shorter.
    pub bytes: usize,
    salt: Option<(FilterId, u64)>,
}

impl Pages {
    /// Those of a file of format 2, which has a number. The checksum of a page is salted with
    /// its filter, file and place, so that one that is in the place of another is found.
    pub fn salted(filter: FilterId, number: u64) -> Self {
        Self {
            bytes: 64 << 10,
            salt: Some((filter, number)),
        }
    }

    /// That of a file of format 1: the whole shard, and no salt.
    pub fn whole(shard_bytes: usize) -> Self {
        Self {
            bytes: shard_bytes,
            salt: None,
        }
    }

    /// The number of pages of a shard.
    pub fn count(&self, shard_bytes: usize) -> usize {
        shard_bytes.div_ceil(self.bytes)
    }

    /// The checksum of a page of a shard.
    pub fn checksum(&self, shard: usize, page: usize, bytes: &[u8]) -> u64 {
        let salt = self.salt.filter(|_| !Bug::PageNotSalted.is_planted());
        let Some((FilterId(filter), number)) = salt else {
            return xxh3_64(bytes);
        };
        let place = [filter, number, shard as u64, page as u64].map(u64::to_le);
        xxh3_64_with_seed(bytes, xxh3_64(bytemuck::bytes_of(&place)))
    }
}
