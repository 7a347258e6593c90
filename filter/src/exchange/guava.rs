//! The Bloom filter of Guava (`com.google.common.hash.BloomFilter`).
//!
//! A key is hashed with MurmurHash3 (x64, 128 bits, seed 0). A [`Strategy`] makes `k` positions
//! from the hash, each of them modulo the number of bits, which is a whole number of words. This
//! follows Guava's `BloomFilter.java` and `BloomFilterStrategies.java` (31.1, 33.4.6). Guava cannot
//! change it, because files depend on it.
//!
//! A Java program hashes the bytes that its funnel writes. The bytes of a key here are those of
//! `Funnels.byteArrayFunnel()`, and of `Funnels.stringFunnel(UTF_8)` if the Java string is valid (a
//! lone surrogate is written as `?`). A file does not record its funnel. A file of another funnel
//! is read without an error, and finds nothing.

mod file;
mod sizing;

pub use self::file::{FilterReader, FilterWriter};
use super::{ExchangeError, array, error::require};
use crate::{
    hash::KeyHash,
    limits::MAX_HASH_COUNT,
    names::named,
    sizing::{
        spaced::{Spaced, Wrapping},
        uneven::Uneven,
    },
};

/// The most words that Guava can have in an array: 16 GiB.
pub const MAX_WORD_COUNT: u64 = i32::MAX as u64;

/// The number of positions that [`Strategy::Mitz32`] can make.
const MITZ_32_BITS: u64 = 1 << 31;

/// The most bits for which coincidences of positions are predicted for [`Strategy::Mitz32`]. With
/// more bits, a step of 32 bits goes around the bits too few times to wrap anywhere.
const MAX_SPACED_MITZ_32_BITS: u64 = 1 << 24;

named! {
    "strategy", name,
    /// The rule by which Guava makes positions from a hash. `ALL` has the order of Guava's ordinals.
    #[derive(Default)]
    pub enum Strategy {
        /// `MURMUR128_MITZ_32`, of the first releases: uses 64 bits of the hash, and positions of
        /// 31 bits, so that bits from 2^31 on are never set.
        Mitz32 = "murmur128-mitz-32",
        /// `MURMUR128_MITZ_64`, of all later releases: uses all bits of the hash, and positions of
        /// 63 bits.
        #[default]
        Mitz64 = "murmur128-mitz-64",
    }
}

/// Everything of a filter except its bits: the rule for the bits that a key sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    strategy: Strategy,
    hash_count: u32,
    word_count: u64,
}

impl Shape {
    /// Returns the shape of an array of `word_count` words of 64 bits.
    ///
    /// # Errors
    ///
    /// Fails if Guava can have no such filter, or if `hash_count` is above [`MAX_HASH_COUNT`].
    pub fn new(
        strategy: Strategy,
        hash_count: u32,
        word_count: u64,
    ) -> Result<Self, ExchangeError> {
        require(
            (1..=MAX_HASH_COUNT).contains(&hash_count),
            "hash_count",
            hash_count,
            format!("1 to {MAX_HASH_COUNT}"),
        )?;
        require(
            (1..=MAX_WORD_COUNT).contains(&word_count),
            "word_count",
            word_count,
            format!("1 to {MAX_WORD_COUNT}"),
        )?;
        Ok(Self {
            strategy,
            hash_count,
            word_count,
        })
    }

    /// Returns the strategy.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Returns the number of bits that each key sets (k), if none of them coincide.
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }

    /// Returns the number of 64-bit words.
    pub fn word_count(&self) -> u64 {
        self.word_count
    }

    /// Returns the number of bits (m).
    pub fn bit_count(&self) -> u64 {
        self.word_count * 64
    }

    /// Returns the number of bits that any key can set.
    pub fn used_bits(&self) -> u64 {
        match self.strategy {
            Strategy::Mitz32 => self.bit_count().min(MITZ_32_BITS),
            Strategy::Mitz64 => self.bit_count(),
        }
    }

    /// Returns how often each bit is chosen, if not all are chosen equally often.
    pub(super) fn uneven(&self) -> Option<Uneven> {
        match self.strategy {
            Strategy::Mitz32 => Some(Uneven::new(MITZ_32_BITS, self.bit_count())),
            // With so many positions each is nearly as likely as any other.
            Strategy::Mitz64 => None,
        }
    }

    /// Returns the coincidences of its positions. Returns `None` if there are so many bits that,
    /// under the old strategy, at most one in thousands of keys has any.
    pub(super) fn spaced(&self) -> Option<Spaced> {
        let (bits, hash_count) = (self.bit_count(), self.hash_count);
        match self.strategy {
            Strategy::Mitz32 => (bits <= MAX_SPACED_MITZ_32_BITS).then(|| {
                let wrapping = Wrapping {
                    range: 1 << 32,
                    is_mirrored: true,
                };
                Spaced::new(bits, hash_count, wrapping, |start, step, index| {
                    let low = start & u64::from(u32::MAX) | step << 32;
                    self.position(KeyHash { low, high: 0 }, index)
                })
            }),
            Strategy::Mitz64 => {
                let wrapping = Wrapping {
                    range: 1 << 63,
                    is_mirrored: false,
                };
                let spaced = Spaced::new(bits, hash_count, wrapping, |low, high, index| {
                    self.position(KeyHash { low, high }, index)
                });
                Some(spaced)
            }
        }
    }

    /// Returns the position of the `index`th bit that a key sets.
    #[inline]
    pub(super) fn position(&self, hash: KeyHash, index: u32) -> u64 {
        let value = match self.strategy {
            Strategy::Mitz32 => mitz_32(hash, index),
            Strategy::Mitz64 => mitz_64(hash, index),
        };
        value % self.bit_count()
    }

    /// Returns the places of a key's bits, as (word, mask). Some can coincide.
    #[inline]
    pub fn positions(&self, hash: KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let shape = *self;
        (0..self.hash_count).map(move |index| array::place(shape.position(hash, index)))
    }

    /// Whether a key is in the filter with these words.
    #[inline]
    pub fn contains(&self, words: &[u64], hash: KeyHash) -> bool {
        array::contains(words, self.positions(hash))
    }

    /// Adds a key to the filter with these words, and returns the number of its bits that were not
    /// set before: 0 means that it was present already (or seemed to be).
    #[inline]
    pub fn insert(&self, words: &mut [u64], hash: KeyHash) -> u32 {
        array::insert(words, self.positions(hash))
    }
}

/// Returns a position of [`Strategy::Mitz32`]. The low half of the hash is two signed numbers of 32
/// bits. The index counts from 1, and the bits of a negative sum are inverted.
#[inline]
fn mitz_32(hash: KeyHash, index: u32) -> u64 {
    let (start, step) = (hash.low as i32, (hash.low >> 32) as i32);
    let sum = start.wrapping_add(step.wrapping_mul(index as i32 + 1));
    let positive = if sum < 0 { !sum } else { sum };
    positive as u64
}

/// Returns a position of [`Strategy::Mitz64`]: from the halves of the hash, with the index from 0,
/// without the sign.
#[inline]
fn mitz_64(hash: KeyHash, index: u32) -> u64 {
    let sum = hash.low.wrapping_add(hash.high.wrapping_mul(index.into()));
    sum & (u64::MAX >> 1)
}
