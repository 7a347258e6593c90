//! The Bloom filter of RedisBloom, as `BF.SCANDUMP` returns it.
//!
//! It is a chain of [`ChainLayer`]s, each of which is a filter of its own. When one is full, the
//! next is created, larger and with half of the rate. A key is present if any layer has it, and is
//! added to the last. All layers share its hash: MurmurHash64A under a fixed seed, and once more
//! under the first hash. This follows RedisBloom's `src/sb.c` and `deps/bloom/bloom.c` (2.8):
//! `bloom_calc_hash64`, `CHECK_ADD_FUNC`, `bloom_validate_integrity`.

mod dump;
mod header;

pub use self::{
    dump::DumpReader,
    header::{Chain, MAX_LAYERS},
};
use super::array;
use crate::{
    hash::KeyHash,
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
    sizing::spaced::{Spaced, Wrapping},
};

/// Everything of one filter of a chain except its bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainLayer {
    word_count: u64,
    /// Positions are taken modulo this, which is at most the number of bits.
    modulus: u64,
    hash_count: u32,
    capacity: u64,
    keys_added: u64,
    false_positive_rate: f64,
}

impl ChainLayer {
    /// Returns a layer without keys, from its stored numbers; `None` if no layer can have them.
    pub fn new(
        word_count: u64,
        modulus: u64,
        hash_count: u32,
        capacity: u64,
        false_positive_rate: f64,
    ) -> Option<Self> {
        let bits = word_count.checked_mul(64)?;
        let is_possible = (1..=MAX_BIT_COUNT).contains(&bits)
            && (1..=bits).contains(&modulus)
            && (1..=MAX_HASH_COUNT).contains(&hash_count)
            && false_positive_rate > 0.0
            && false_positive_rate < 1.0;
        is_possible.then_some(Self {
            word_count,
            modulus,
            hash_count,
            capacity,
            keys_added: 0,
            false_positive_rate,
        })
    }

    /// Returns the number of 64-bit words.
    pub fn word_count(&self) -> u64 {
        self.word_count
    }

    /// Returns the number of bits that each key sets (k), if none of them coincide.
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }

    /// Returns the number of keys that the layer takes before the chain gets another.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of keys that were new when they were added to this layer.
    pub fn keys_added(&self) -> u64 {
        self.keys_added
    }

    /// Returns the false-positive rate of the layer at capacity.
    pub fn false_positive_rate(&self) -> f64 {
        self.false_positive_rate
    }

    /// Returns the number of bits that any key can set: positions are taken modulo this.
    pub fn used_bits(&self) -> u64 {
        self.modulus
    }

    /// Returns the coincidences of its positions.
    pub(super) fn spaced(&self) -> Spaced {
        let wrapping = Wrapping {
            range: 1 << 64,
            is_mirrored: false,
        };
        let position = |low, high, index| self.position(KeyHash { low, high }, index);
        Spaced::new(self.modulus, self.hash_count, wrapping, position)
    }

    /// Returns the position of the `index`th bit that a key sets.
    #[inline]
    pub(super) fn position(&self, hash: KeyHash, index: u32) -> u64 {
        let sum = hash.low.wrapping_add(hash.high.wrapping_mul(index.into()));
        sum % self.modulus
    }

    /// Returns the places of a key's bits, as (word, mask). Some can coincide.
    #[inline]
    pub fn positions(&self, hash: KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let layer = *self;
        (0..self.hash_count).map(move |index| array::place(layer.position(hash, index)))
    }

    /// Whether a key is in the layer with these words.
    #[inline]
    pub fn contains(&self, words: &[u64], hash: KeyHash) -> bool {
        array::contains(words, self.positions(hash))
    }

    /// Adds a key to the layer with these words, and returns the number of its bits that were not
    /// set before: 0 means that it was present already (or seemed to be).
    #[inline]
    pub fn insert(&self, words: &mut [u64], hash: KeyHash) -> u32 {
        array::insert(words, self.positions(hash))
    }
}
