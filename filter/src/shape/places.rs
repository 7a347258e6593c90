//! The place of a key in its shard: the block or the lines, and the bits in them.

use super::{CellFormat, Shape};
use crate::{
    blocked::{self, BLOCK_BITS, Block, LANES},
    cells::{self, LINE_CELLS, Line, Values},
    classic,
    hash::{KeyHash, choose},
};

impl Shape {
    /// Returns the most cache lines that a key's bits can lie in.
    pub fn lines_of_a_key(&self) -> usize {
        match self.cell_format {
            CellFormat::Blocked => 1,
            CellFormat::Counting | CellFormat::Aging => cells::LINES,
            CellFormat::Classic | CellFormat::Foreign => self.hash_count as usize,
        }
    }

    /// Calls `visit` with the index of a word in each cache line that a key's bits lie in, so that
    /// the caller can prefetch them.
    #[inline]
    pub fn visit_lines(&self, hash: KeyHash, mut visit: impl FnMut(usize)) {
        match self.cell_format {
            CellFormat::Blocked => visit(self.block(hash) * LANES),
            CellFormat::Counting | CellFormat::Aging => {
                for line in self.two_lines(hash) {
                    visit(line * LANES);
                }
            }
            CellFormat::Classic => {
                for (word, _) in classic::positions(hash, self.hash_count, self.shard_bits) {
                    visit(word);
                }
            }
            CellFormat::Foreign => {}
        }
    }

    /// Returns the indices of a key's bits in its shard, in ascending order. If two of its values
    /// choose the same bit, the index comes once. In filters of cells, the indices are those of the
    /// cells.
    pub fn bits(&self, hash: KeyHash) -> Vec<u64> {
        let mut bits: Vec<u64> = match self.cell_format {
            CellFormat::Counting | CellFormat::Aging => {
                let lines = self.two_lines(hash);
                let places = cells::places(hash, self.hash_count);
                let line =
                    |place: cells::CellPlace| *lines.get(place.line).expect("a key has two lines");
                let bit = |place| line(place) as u64 * LINE_CELLS + place.cell();
                places.map(bit).collect()
            }
            CellFormat::Blocked => {
                let block = blocked::bits(hash, self.hash_count);
                let first = self.block(hash) as u64 * BLOCK_BITS;
                let in_block = |bit: &u64| {
                    let lane = block.get((bit / 64) as usize);
                    lane.is_some_and(|lane| lane >> (bit % 64) & 1 == 1)
                };
                let set = (0..BLOCK_BITS).filter(in_block);
                set.map(|bit| first + bit).collect()
            }
            CellFormat::Classic | CellFormat::Foreign => {
                classic::positions(hash, self.hash_count, self.shard_bits)
                    .map(|(word, mask)| word as u64 * 64 + u64::from(mask.trailing_zeros()))
                    .collect()
            }
        };
        bits.sort_unstable();
        bits.dedup();
        bits
    }

    /// Whether a bit of a shard is set, given the shard's [words](Self::shard_words). In filters of
    /// cells, its value must be one of `stamps`.
    pub fn is_set(&self, words: &[u64], bit: u64, stamps: Values) -> bool {
        match self.cell_format {
            CellFormat::Blocked | CellFormat::Classic | CellFormat::Foreign => {
                let word = words.get((bit / 64) as usize);
                word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
            }
            CellFormat::Counting | CellFormat::Aging => {
                cells::get(words, bit).is_some_and(|value| stamps.has(value))
            }
        }
    }

    /// Returns the index in its shard of the block that holds all bits of a key, if there are
    /// blocks.
    pub fn block_of(&self, hash: KeyHash) -> Option<usize> {
        match self.cell_format {
            CellFormat::Blocked => Some(self.block(hash)),
            CellFormat::Classic
            | CellFormat::Counting
            | CellFormat::Aging
            | CellFormat::Foreign => None,
        }
    }

    /// Returns the indices in its shard of the 64-byte lines that hold the counters or stamps of a
    /// key. Returns none if the filter has bits.
    pub fn lines_of_cells(&self, hash: KeyHash) -> Vec<usize> {
        let mut lines = Vec::new();
        match self.cell_format {
            CellFormat::Counting | CellFormat::Aging => {
                self.visit_lines(hash, |word| lines.push(word / LANES));
            }
            CellFormat::Blocked | CellFormat::Classic | CellFormat::Foreign => {}
        }
        lines
    }

    /// Returns the index of a key's block in its shard. The rest of the high half after the choice
    /// of the shard chooses the block, so that all blocks of all shards are equally likely.
    #[inline]
    pub(super) fn block(&self, hash: KeyHash) -> usize {
        let (_, rest) = choose(hash.high, self.shard_count);
        choose(rest, self.shard_bits / BLOCK_BITS).0 as usize
    }

    /// Returns the indices of the two lines of a key in its shard. The first is chosen as a block
    /// is. The rest of the hash chooses the distance from the first to the second, counting past
    /// the last line back to the first. A shard has at least four lines.
    #[inline]
    pub(super) fn two_lines(&self, hash: KeyHash) -> [usize; 2] {
        let (_, rest) = choose(hash.high, self.shard_count);
        let lines = self.shard_bits / LINE_CELLS;
        let (first, rest) = choose(rest, lines);
        let (further, _) = choose(rest, cells::REACH.min(lines - 1));
        let second = first + 1 + further;
        let second = if second < lines {
            second
        } else {
            second - lines
        };
        [first as usize, second as usize]
    }

    /// Returns [`Self::two_lines`] of a shard, as mutable. Every shard has them.
    #[inline(always)]
    pub(super) fn two_lines_mut<'a>(
        &self,
        words: &'a mut [u64],
        hash: KeyHash,
    ) -> Option<[&'a mut Line; 2]> {
        let lines = as_blocks_mut(words);
        lines.get_disjoint_mut(self.two_lines(hash)).ok()
    }
}

pub(crate) fn as_blocks(words: &[u64]) -> &[Block] {
    words.as_chunks().0
}

pub(crate) fn as_blocks_mut(words: &mut [u64]) -> &mut [Block] {
    words.as_chunks_mut().0
}
