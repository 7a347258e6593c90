//! Guava's own sizing, so that a filter made here has the same bytes as one made by Guava.
//!
//! The number of bits is the one of the textbook, truncated to a whole number (`optimalNumOfBits`),
//! then rounded up to whole words. The number of hashes (`optimalNumOfHashFunctions`) follows from
//! the rate alone, as in Guava 33.4.6 (google/guava#7494). Guava 31.1 computes it from the
//! truncated number of bits: for some filters of a few keys it is one less. In both cases the file
//! contains it.

use std::f64::consts::LN_2;

use super::{Shape, Strategy};
use crate::exchange::{ExchangeError, error::require};

impl Shape {
    /// Returns the shape that Guava gives a filter for `capacity` keys (0 is taken as 1) and
    /// `false_positive_rate`, as `BloomFilter.create(funnel, capacity, rate)` does.
    ///
    /// # Errors
    ///
    /// Fails if Guava has no such filter, or if it would have more hashes than are supported here.
    pub fn for_capacity(
        strategy: Strategy,
        capacity: u64,
        false_positive_rate: f64,
    ) -> Result<Self, ExchangeError> {
        require(
            i64::try_from(capacity).is_ok(),
            "capacity",
            capacity,
            format!("at most {}", i64::MAX),
        )?;
        require(
            false_positive_rate > 0.0 && false_positive_rate < 1.0,
            "false_positive_rate",
            false_positive_rate,
            "above 0 and below 1",
        )?;
        let bits = bit_count(capacity.max(1), false_positive_rate);
        require(
            bits > 0,
            "false_positive_rate",
            false_positive_rate,
            format!("lower: {capacity} keys would have no bit"),
        )?;
        Self::new(strategy, hash_count(false_positive_rate), bits.div_ceil(64))
    }
}

fn bit_count(capacity: u64, rate: f64) -> u64 {
    (-(capacity as f64) * rate.ln() / (LN_2 * LN_2)) as u64
}

fn hash_count(rate: f64) -> u32 {
    // Java rounds a half up, Rust away from 0. For numbers above 0 that is the same.
    ((-rate.ln() / LN_2).round() as u32).max(1)
}
