//! The division of a filter's bits into shards, and the bits that a key sets.
//!
//! All bits of a key lie in one shard, so that one lock, the lock of the shard, makes the check for
//! a key and its insertion one atomic step. Shards are equal in size, at most 4 MiB. That is small
//! enough to copy a shard under a lock in well under a millisecond, and large enough that a filter
//! of hundreds of GiB has few enough shards to list. A filter that would fit into a few such shards
//! has more, smaller ones, so that cores need not wait for each other. Filters of other programs
//! are divided too, but their keys have bits in several shards
//! ([`ForeignBits`](crate::exchange::ForeignBits)), so they have few shards.

mod cell_format;
mod each;
mod places;

use fearless_simd::{Level, Simd, dispatch};

pub use self::cell_format::CellFormat;
use self::each::{contains_each, contains_stamped, insert_each, stamp_each, take_each};
pub(crate) use self::places::{as_blocks, as_blocks_mut};
use crate::{
    aging::{self, Stamping},
    blocked,
    cells::{self, Values},
    classic,
    counting::{self, CountEffect, Step, Stepper},
    hash::{KeyHash, choose},
};

/// The most bytes of a shard.
pub const MAX_SHARD_BYTES: u64 = 4 << 20;
pub(crate) const MAX_SHARD_BITS: u64 = MAX_SHARD_BYTES * 8;
/// The fewest bytes of a shard if there are several.
pub const MIN_SHARD_BYTES: u64 = 16 << 10;
/// The least number of shards of a filter, if they are not too small (`docs/adr/0005-locks.md`).
const SHARDS: u64 = 256;

/// The division of a filter's bits, and the bits of each key. In a filter of counters or stamps, a
/// bit is set if its counter is above 0, or if it has a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    cell_format: CellFormat,
    hash_count: u32,
    shard_count: u64,
    shard_bits: u64,
}

/// The sizes of a filter's shards, apart from what one bit takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    /// The number of shards, at least 1.
    pub shard_count: u64,
    /// The number of bits in each shard, or counters or stamps in their place.
    pub shard_bits: u64,
    /// The number of bits that each key sets.
    pub hash_count: u32,
}

impl Dimensions {
    /// Returns the number of bits in all shards together.
    pub fn bit_count(&self) -> u64 {
        self.shard_count * self.shard_bits
    }

    pub(crate) fn of(self, cell_format: CellFormat) -> Shape {
        let Self {
            shard_count,
            shard_bits,
            hash_count,
        } = self;
        Shape::divided(cell_format, shard_count, shard_bits, hash_count)
    }
}

impl Shape {
    /// Returns the shape of a filter with at least `bit_count` bits, which must be at least 1 and
    /// at most [`crate::limits::MAX_BIT_COUNT`].
    pub(crate) fn new(cell_format: CellFormat, bit_count: u64, hash_count: u32) -> Self {
        let fewest = fewest_shards(cell_format, bit_count);
        let shard_count = match cell_format {
            // Adding a key takes the locks of all shards that hold its bits.
            CellFormat::Foreign => fewest,
            CellFormat::Blocked
            | CellFormat::Classic
            | CellFormat::Counting
            | CellFormat::Aging => {
                // The rounded-up number of bits can be enough for more shards.
                let unit = powers_of_two(cell_format, bit_count) * cell_format.unit();
                powers_of_two(cell_format, bit_count.next_multiple_of(unit)).max(fewest)
            }
        };
        Self::divided(
            cell_format,
            shard_count,
            bit_count.div_ceil(shard_count),
            hash_count,
        )
    }

    /// Returns a shape with `shard_count` shards of at least `shard_bits` bits each. Both must be
    /// at least 1, and their product at most [`crate::limits::MAX_BIT_COUNT`].
    pub(crate) fn divided(
        cell_format: CellFormat,
        shard_count: u64,
        shard_bits: u64,
        hash_count: u32,
    ) -> Self {
        Self {
            cell_format,
            hash_count,
            shard_count,
            shard_bits: shard_bits.next_multiple_of(cell_format.unit()),
        }
    }

    /// Returns the sizes of the shards.
    pub fn dimensions(&self) -> Dimensions {
        Dimensions {
            shard_count: self.shard_count,
            shard_bits: self.shard_bits,
            hash_count: self.hash_count,
        }
    }

    /// Returns the bits that as many shards have for at least `bit_count` bits.
    pub(crate) fn rounded(&self, bit_count: u64) -> u64 {
        let shard_bits = bit_count.div_ceil(self.shard_count);
        Self::divided(
            self.cell_format,
            self.shard_count,
            shard_bits,
            self.hash_count,
        )
        .bit_count()
    }

    /// Whether the shards are neither too large nor too small.
    pub fn has_good_shards(&self) -> bool {
        let is_small = self.shard_bytes() < MIN_SHARD_BYTES && self.shard_count > 1;
        self.shard_bytes() <= MAX_SHARD_BYTES && !is_small
    }

    /// Returns the number of bits in all shards together: the number asked for, rounded up.
    pub fn bit_count(&self) -> u64 {
        self.shard_count * self.shard_bits
    }

    /// Returns the cell format of the memory.
    pub(crate) fn cell_format(&self) -> CellFormat {
        self.cell_format
    }

    /// Returns the number of bits that each key sets.
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> usize {
        self.shard_count as usize
    }

    /// Returns the number of bits in each shard.
    pub fn shard_bits(&self) -> u64 {
        self.shard_bits
    }

    /// Returns the number of 64-bit words in each shard.
    pub fn shard_words(&self) -> usize {
        (self.shard_bits / 64 * self.cell_format.cell_bits()) as usize
    }

    /// Returns the memory of each shard, in bytes.
    pub fn shard_bytes(&self) -> u64 {
        self.shard_bits / 8 * self.cell_format.cell_bits()
    }

    /// Returns the number of bits that are set in the words of a shard.
    pub fn bits_set(&self, words: &[u64]) -> u64 {
        match self.cell_format {
            CellFormat::Blocked | CellFormat::Classic | CellFormat::Foreign => {
                words.iter().map(|word| u64::from(word.count_ones())).sum()
            }
            CellFormat::Counting | CellFormat::Aging => cells::above_zero(words),
        }
    }

    /// Returns the number of counters with the greatest value in the words of a shard.
    pub fn saturated(&self, words: &[u64]) -> u64 {
        match self.cell_format {
            CellFormat::Blocked | CellFormat::Classic | CellFormat::Aging | CellFormat::Foreign => {
                0
            }
            CellFormat::Counting => cells::at_most(words),
        }
    }

    /// Returns the index of the shard that holds all bits of a key.
    #[inline]
    pub fn shard(&self, hash: KeyHash) -> usize {
        choose(hash.high, self.shard_count).0 as usize
    }

    /// Whether a key is in its shard, given the shard's [words](Self::shard_words).
    #[inline]
    pub fn contains(&self, words: &[u64], hash: KeyHash) -> bool {
        dispatch!(Level::new(), simd => self.contains_with(simd, words, hash))
    }

    /// Adds a key to its shard, and returns the number of its bits that were not set before: 0
    /// means that the key was present already (or seemed to be), any other number that it is new. A
    /// key that was present is not counted again.
    #[inline]
    pub fn insert(&self, words: &mut [u64], hash: KeyHash) -> u32 {
        dispatch!(Level::new(), simd => self.insert_with(simd, words, hash))
    }

    /// Runs [`contains`](Self::contains) for many keys, one after the other, faster than separate
    /// calls. The shards start at `first_shard`. Each key comes with its number, and `tell`
    /// receives that number.
    pub fn contains_each<W: AsRef<[u64]>>(
        &self,
        shards: &[W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        tell: impl FnMut(usize, &W, bool),
    ) {
        dispatch!(Level::new(), simd => {
            contains_each(simd, self, shards, first_shard, keys, tell)
        });
    }

    /// Runs [`insert`](Self::insert) for many keys, one after the other, faster than separate
    /// calls. The shards start at `first_shard`. Each key comes with its number, and `tell`
    /// receives both.
    pub fn insert_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        tell: impl FnMut((usize, KeyHash), &mut W, u32),
    ) {
        dispatch!(Level::new(), simd => {
            insert_each(simd, self, shards, first_shard, keys, tell)
        });
    }

    /// Runs a step for each of many keys, in filters of counters. The shards start at
    /// `first_shard`.
    pub fn take_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        stepper: &mut impl Stepper<W>,
    ) {
        dispatch!(Level::new(), simd => {
            take_each(simd, self, shards, first_shard, keys, stepper)
        });
    }

    /// Runs [`contains`](Self::contains) for many keys, in filters of stamps. `there` returns the
    /// stamps that count in a shard. The shards start at `first_shard`.
    pub fn contains_stamped<W: AsRef<[u64]>>(
        &self,
        shards: &[W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        there: impl FnMut(&W) -> Values,
        tell: impl FnMut(usize, &W, bool),
    ) {
        dispatch!(Level::new(), simd => {
            contains_stamped(simd, self, shards, first_shard, keys, there, tell)
        });
    }

    /// Adds many keys, in filters of stamps. The shards start at `first_shard`. `how` returns the
    /// rule that stamps keys in a shard. `renews` decides whether keys that are present are stamped
    /// again. `tell` receives the change.
    pub fn stamp_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        renews: bool,
        how: impl FnMut(&mut W) -> Stamping,
        tell: impl FnMut((usize, KeyHash), &mut W, Option<aging::StampEffect>),
    ) {
        dispatch!(Level::new(), simd => {
            stamp_each(simd, self, shards, first_shard, keys, renews, how, tell)
        });
    }

    /// Runs a step for a key, in filters of counters; `None` if nothing changed.
    #[inline(always)]
    fn take_with<S: Simd>(
        &self,
        simd: S,
        words: &mut [u64],
        hash: KeyHash,
        step: Step,
    ) -> Option<CountEffect> {
        let count = self.hash_count;
        match self.cell_format {
            CellFormat::Counting => {
                counting::take(simd, self.two_lines_mut(words, hash)?, hash, count, step)
            }
            CellFormat::Blocked | CellFormat::Classic | CellFormat::Aging | CellFormat::Foreign => {
                None
            }
        }
    }

    /// Adds a key, in filters of stamps; `None` if nothing changed.
    #[inline(always)]
    fn stamp_with<S: Simd>(
        &self,
        simd: S,
        words: &mut [u64],
        hash: KeyHash,
        how: Stamping,
        renews: bool,
    ) -> Option<aging::StampEffect> {
        let count = self.hash_count;
        match self.cell_format {
            CellFormat::Aging => {
                let lines = self.two_lines_mut(words, hash)?;
                aging::stamp_key(simd, lines, hash, count, how, renews)
            }
            CellFormat::Blocked
            | CellFormat::Classic
            | CellFormat::Counting
            | CellFormat::Foreign => None,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and blocks are chosen inside of it"
    )]
    #[inline(always)]
    fn contains_with<S: Simd>(&self, simd: S, words: &[u64], hash: KeyHash) -> bool {
        let count = self.hash_count;
        match self.cell_format {
            CellFormat::Blocked => {
                blocked::contains(simd, &as_blocks(words)[self.block(hash)], hash, count)
            }
            CellFormat::Counting | CellFormat::Aging => {
                let lines = self.two_lines(hash).map(|line| &as_blocks(words)[line]);
                counting::contains(simd, lines, hash, count)
            }
            CellFormat::Classic => classic::contains(words, hash, count, self.shard_bits),
            // One shard alone does not hold all bits of a key.
            CellFormat::Foreign => false,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and lines are chosen inside of it"
    )]
    #[inline(always)]
    fn contains_stamped_with<S: Simd>(
        &self,
        simd: S,
        words: &[u64],
        hash: KeyHash,
        there: Values,
    ) -> bool {
        let count = self.hash_count;
        match self.cell_format {
            CellFormat::Aging => {
                let lines = self.two_lines(hash).map(|line| &as_blocks(words)[line]);
                aging::contains(simd, lines, hash, count, there)
            }
            CellFormat::Blocked
            | CellFormat::Classic
            | CellFormat::Counting
            | CellFormat::Foreign => false,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and blocks are chosen inside of it"
    )]
    #[inline(always)]
    fn insert_with<S: Simd>(&self, simd: S, words: &mut [u64], hash: KeyHash) -> u32 {
        let count = self.hash_count;
        match self.cell_format {
            CellFormat::Blocked => {
                let block = &mut as_blocks_mut(words)[self.block(hash)];
                blocked::insert(simd, block, hash, count)
            }
            CellFormat::Counting => {
                let change = self.take_with(simd, words, hash, Step::AddNew);
                change.map_or(0, |change| change.bits)
            }
            // Keys cannot be added without a stamp, nor to one shard alone.
            CellFormat::Aging | CellFormat::Foreign => 0,
            CellFormat::Classic => classic::insert(words, hash, count, self.shard_bits),
        }
    }
}

/// Returns the least number of shards for `bit_count` bits.
pub(crate) fn fewest_shards(cell_format: CellFormat, bit_count: u64) -> u64 {
    bit_count
        .div_ceil(MAX_SHARD_BITS / cell_format.cell_bits())
        .max(1)
}

/// Returns the greatest power of two, up to [`SHARDS`], of shards that are not too small. Where the
/// number changes, the number of bits is a multiple of both. So a request for more bits never gets
/// fewer bits after rounding up.
fn powers_of_two(cell_format: CellFormat, bit_count: u64) -> u64 {
    let least = MIN_SHARD_BYTES * 8 / cell_format.cell_bits();
    1 << (bit_count / least).clamp(1, SHARDS).ilog2()
}

#[cfg(test)]
mod tests;
