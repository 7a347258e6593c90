//! Random numbers that can be repeated.

use crate::filter::hash::KeyHash;

/// A source of random numbers that is the same for the same seed.
#[derive(Debug, Clone, Copy)]
pub struct Chance(KeyHash, u64);

impl Chance {
    /// Returns a source with a seed.
    pub fn new(seed: u64) -> Self {
        let low = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(KeyHash { low, high: !seed }, 0)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.1 += 1;
        let Self(KeyHash { low, high }, count) = *self;
        let low = low.wrapping_add(count.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        KeyHash { low, high }.value(1)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Returns true in one of `cases` cases.
    pub fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }
}
