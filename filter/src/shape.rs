//! The sizes of a filter: the division of its bits into shards.
//!
//! All bits of a key lie in one shard, so that one lock, the lock of the shard, makes the check for
//! a key and its insertion one atomic step. Shards are equal in size, at most 4 MiB. That is small
//! enough to copy a shard under a lock in well under a millisecond, and large enough that a filter
//! of hundreds of GiB has few enough shards to list. A filter that would fit into a few such shards
//! has more, smaller ones, so that cores need not wait for each other. Filters of other programs
//! are divided too, but their keys have bits in several shards
//! ([`ForeignBits`](crate::exchange::ForeignBits)), so they have few shards.

use crate::{
    cells::{Cell, Values},
    hash::{KeyHash, choose},
};

/// The most bytes of a shard.
pub const MAX_SHARD_BYTES: u64 = 4 << 20;
pub(crate) const MAX_SHARD_BITS: u64 = MAX_SHARD_BYTES * 8;
/// The fewest bytes of a shard if there are several.
pub const MIN_SHARD_BYTES: u64 = 16 << 10;
/// The least number of shards of a filter, if they are not too small (`docs/adr/0005-locks.md`).
const SHARDS: u64 = 256;

/// The sizes of a filter in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    grain: Grain,
    dimensions: Dimensions,
}

/// The smallest parts of a filter's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// The memory in the place of each bit.
    pub(crate) cell: Cell,
    /// The unit of the number of bits of a shard: it is always a multiple of this.
    pub(crate) unit: u64,
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
}

impl Grain {
    /// Bits, in whole words.
    pub(crate) const WORDS: Self = Self {
        cell: Cell::Bit,
        unit: 64,
    };

    /// Returns the least number of shards for `bit_count` bits.
    fn fewest_shards(self, bit_count: u64) -> u64 {
        bit_count.div_ceil(MAX_SHARD_BITS / self.cell.bits()).max(1)
    }

    /// Returns the greatest power of two, up to [`SHARDS`], of shards that are not too small. Where
    /// the number changes, the number of bits is a multiple of both. So a request for more bits
    /// never gets fewer bits after rounding up.
    fn powers_of_two(self, bit_count: u64) -> u64 {
        let least = MIN_SHARD_BYTES * 8 / self.cell.bits();
        1 << (bit_count / least).clamp(1, SHARDS).ilog2()
    }
}

impl Shape {
    /// Returns the shape of a filter with at least `bit_count` bits, which must be at least 1 and
    /// at most [`crate::limits::MAX_BIT_COUNT`].
    pub(crate) fn new(grain: Grain, bit_count: u64, hash_count: u32) -> Self {
        // The rounded-up number of bits can be enough for more shards.
        let unit = grain.powers_of_two(bit_count) * grain.unit;
        let shard_count = grain.powers_of_two(bit_count.next_multiple_of(unit));
        let shard_count = shard_count.max(grain.fewest_shards(bit_count));
        Self::in_shards(grain, shard_count, bit_count, hash_count)
    }

    /// Returns the shape of an array of at least `bit_count` bits whose keys have bits in several
    /// shards. It has the fewest shards, because adding a key takes the locks of all that hold its
    /// bits.
    pub(crate) fn of_array(bit_count: u64, hash_count: u32) -> Self {
        let grain = Grain::WORDS;
        Self::in_shards(grain, grain.fewest_shards(bit_count), bit_count, hash_count)
    }

    fn in_shards(grain: Grain, shard_count: u64, bit_count: u64, hash_count: u32) -> Self {
        let dimensions = Dimensions {
            shard_count,
            shard_bits: bit_count.div_ceil(shard_count),
            hash_count,
        };
        Self::of(grain, dimensions)
    }

    /// Returns a shape with at least these dimensions. There must be a shard and a bit at least,
    /// and at most [`crate::limits::MAX_BIT_COUNT`] bits.
    pub(crate) fn of(grain: Grain, mut dimensions: Dimensions) -> Self {
        dimensions.shard_bits = dimensions.shard_bits.next_multiple_of(grain.unit);
        Self { grain, dimensions }
    }

    /// Returns the sizes of the shards.
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    /// Returns the bits that as many shards have for at least `bit_count` bits.
    pub(crate) fn rounded(&self, bit_count: u64) -> u64 {
        let (shard_count, hash_count) = (self.dimensions.shard_count, self.hash_count());
        Self::in_shards(self.grain, shard_count, bit_count, hash_count).bit_count()
    }

    /// Returns whether the shards are neither too large nor too small.
    pub fn has_good_shards(&self) -> bool {
        let is_small = self.shard_bytes() < MIN_SHARD_BYTES && self.shard_count() > 1;
        self.shard_bytes() <= MAX_SHARD_BYTES && !is_small
    }

    /// Returns the number of bits in all shards together: the number asked for, rounded up.
    pub fn bit_count(&self) -> u64 {
        self.dimensions.bit_count()
    }

    /// Returns the number of bits that each key sets.
    pub fn hash_count(&self) -> u32 {
        self.dimensions.hash_count
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> usize {
        self.dimensions.shard_count as usize
    }

    /// Returns the number of bits in each shard.
    pub fn shard_bits(&self) -> u64 {
        self.dimensions.shard_bits
    }

    /// Returns the number of bits of memory for each bit of the filter.
    pub(crate) fn cell_bits(&self) -> u64 {
        self.grain.cell.bits()
    }

    /// Returns the number of 64-bit words in each shard.
    pub fn shard_words(&self) -> usize {
        (self.shard_bits() / 64 * self.cell_bits()) as usize
    }

    /// Returns the memory of each shard, in bytes.
    pub fn shard_bytes(&self) -> u64 {
        self.shard_bits() / 8 * self.cell_bits()
    }

    /// Returns the number of bits that are set in the words of a shard. A bit with a counter or a
    /// stamp in its place is set if that is above 0.
    pub fn bits_set(&self, words: &[u64]) -> u64 {
        self.grain.cell.above_zero(words)
    }

    /// Returns whether a bit of a shard has one of these values, given the shard's
    /// [words](Self::shard_words): the values of its counter or stamp, if it has one.
    pub fn is_set(&self, words: &[u64], bit: u64, values: Values) -> bool {
        let value = self.grain.cell.value(words, bit);
        value.is_some_and(|value| values.has(value))
    }

    /// Returns the index of the shard that holds all bits of a key.
    #[inline]
    pub fn shard(&self, hash: KeyHash) -> usize {
        self.choose(hash).0
    }

    /// Returns the [shard](Self::shard) of a key, and the rest of the high half of its hash, which
    /// chooses the place in the shard.
    #[inline]
    pub(crate) fn choose(&self, hash: KeyHash) -> (usize, u64) {
        let (shard, rest) = choose(hash.high, self.dimensions.shard_count);
        (shard as usize, rest)
    }
}

impl AsRef<Self> for Shape {
    fn as_ref(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests;
