//! Pages: the parts of a shard in a file, each with its own checksum.
//!
//! A page is divided into blocks of [`BLOCK_BYTES`]. Blocks that are all zeros need not be stored.
//! So a filter that holds few keys takes little room on the disk.

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{planted::Bug, store::FilterId};

/// The length of a block; the last one of a page may be shorter.
pub(super) const BLOCK_BYTES: usize = 4 << 10;

/// One page of a shard, as it is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// The blocks that are stored.
    pub blocks: Blocks,
    /// The checksum of the whole page, blocks of zeros included. 0 if no block is stored.
    pub checksum: u64,
}

/// The blocks of a page that are stored; the others are zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocks {
    /// All of them.
    All,
    /// Some of them, or none: bit `i` is block `i`.
    Some(u16),
}

impl Blocks {
    /// Returns the blocks of a page that are not all zeros.
    pub fn of(page: &[u8]) -> Self {
        let blocks = page.chunks(BLOCK_BYTES).enumerate();
        let held = blocks.filter(|(_, block)| !is_zero(block));
        Self::from_bits(page.len(), held.map(|(index, _)| 1_u16 << index).sum())
    }

    /// Returns the blocks of a page of some length, from their bits. Bits of blocks that the page
    /// does not have are ignored.
    pub fn from_bits(page_bytes: usize, bits: u16) -> Self {
        let all = Self::bits_of_all(page_bytes);
        match bits & all == all {
            true => Self::All,
            false => Self::Some(bits & all),
        }
    }

    /// Returns the bits of all blocks of a page of some length.
    pub fn bits_of_all(page_bytes: usize) -> u16 {
        let count = page_bytes.div_ceil(BLOCK_BYTES);
        u16::MAX >> (16 - count.clamp(1, 16))
    }

    /// Returns the bits of the blocks of a page of some length.
    pub fn bits(self, page_bytes: usize) -> u16 {
        match self {
            Self::All => Self::bits_of_all(page_bytes),
            Self::Some(bits) => bits,
        }
    }

    /// Returns whether no block is stored.
    pub fn is_empty(self) -> bool {
        self == Self::Some(0)
    }

    /// Returns the parts of a page of some length, one after the other, and whether each is stored.
    pub fn parts(self, page_bytes: usize) -> impl Iterator<Item = (Range<usize>, bool)> {
        let (length, bits) = match self {
            Self::All => (page_bytes.max(1), 1),
            Self::Some(bits) => (BLOCK_BYTES, bits),
        };
        (0..page_bytes)
            .step_by(length)
            .zip(0_u32..)
            .map(move |(at, index)| {
                let is_stored = bits.checked_shr(index).unwrap_or(0) & 1 == 1;
                (at..page_bytes.min(at + length), is_stored)
            })
    }

    /// Returns the number of stored bytes of a page of some length.
    pub fn stored_bytes(self, page_bytes: usize) -> usize {
        let parts = self.parts(page_bytes);
        let stored = parts.filter(|(_, is_stored)| *is_stored);
        stored.map(|(part, _)| part.len()).sum()
    }
}

/// Returns whether all bytes are zeros. It reads a cache line at a time, so that the compiler uses
/// vector instructions.
fn is_zero(bytes: &[u8]) -> bool {
    let mut lines = bytes.chunks(64);
    lines.all(|line| line.iter().fold(0, |all, &byte| all | byte) == 0)
}

/// The division of the shards of a file into pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages {
    /// The length of a page; the last one of a shard may be shorter.
    pub bytes: usize,
    filter: FilterId,
    file: u64,
}

impl Pages {
    /// Returns the pages of a file. The checksum of a page is salted with its filter, file and
    /// place, so that a page in the place of another is found.
    pub fn of(filter: FilterId, file: u64) -> Self {
        Self {
            bytes: 64 << 10,
            filter,
            file,
        }
    }

    /// Returns the number of pages of a shard.
    pub fn count(&self, shard_bytes: usize) -> usize {
        shard_bytes.div_ceil(self.bytes)
    }

    /// Returns the lengths of the pages of a shard.
    pub fn lengths(&self, shard_bytes: usize) -> impl Iterator<Item = usize> {
        let page_bytes = self.bytes;
        let pages = (0..shard_bytes).step_by(page_bytes.max(1));
        pages.map(move |at| page_bytes.min(shard_bytes - at))
    }

    /// Returns the number of bytes of a shard that are stored in its pages.
    pub fn stored_bytes(&self, shard_bytes: usize, pages: &[Page]) -> u64 {
        let lengths = self.lengths(shard_bytes).zip(pages);
        let stored = lengths.map(|(length, page)| page.blocks.stored_bytes(length));
        stored.sum::<usize>() as u64
    }

    /// Returns the checksum of a page of a shard.
    pub fn checksum(&self, shard: usize, page: usize, bytes: &[u8]) -> u64 {
        if Bug::PageNotSalted.is_planted() {
            return xxh3_64(bytes);
        }
        let place = [self.filter.0, self.file, shard as u64, page as u64].map(u64::to_le);
        xxh3_64_with_seed(bytes, xxh3_64(bytemuck::bytes_of(&place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_not_stored() {
        let mut page = vec![0; 3 * BLOCK_BYTES + 64];
        let blocks = |page: &[u8]| Blocks::of(page);
        assert!(blocks(&page).is_empty());
        page[2 * BLOCK_BYTES] = 1;
        page[3 * BLOCK_BYTES + 63] = 1;
        assert_eq!(blocks(&page), Blocks::Some(0b1100));
        assert_eq!(blocks(&page).stored_bytes(page.len()), BLOCK_BYTES + 64);
        page.iter_mut()
            .step_by(BLOCK_BYTES)
            .for_each(|byte| *byte = 1);
        assert_eq!(blocks(&page), Blocks::All);
        assert_eq!(blocks(&page).stored_bytes(page.len()), page.len());
        assert_eq!(blocks(&page).bits(page.len()), 0b1111);
        assert_eq!(Blocks::from_bits(16 * BLOCK_BYTES, u16::MAX), Blocks::All);
    }
}
