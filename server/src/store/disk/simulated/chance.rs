//! Chance that can be had again.

use crate::filter::hash::KeyHash;

/// A source of chance that is the same for the same seed.
#[derive(Debug, Clone, Copy)]
pub struct Chance(KeyHash, u64);

impl Chance {
    /// Chance from a seed.
    pub fn new(seed: u64) -> Self {
        let low = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(KeyHash { low, high: !seed }, 0)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.1 += 1;
        let Self(KeyHash { low, high }, count) = *self;
        let low = low.wrapping_add(count.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        KeyHash { low, high }.value(1)
    }

    /// A number below another, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Yes in one of so many cases.
    pub fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }
}
