//! Filters with the layouts of other programs: requested ones, and imported ones.

use std::f64::consts::LN_2;

use super::{BodySpec, FilterSpec, SpecError, SpecRequest};
use crate::{
    exchange::{
        ForeignBits, either,
        guava::{Shape, Strategy},
        redisbloom::{Chain, ChainLayer},
    },
    hash::HashFunction,
    limits::MAX_HASH_COUNT,
};

impl SpecRequest {
    /// Returns the body of a filter as Guava would size it, or with the number of bits asked for, and
    /// its false-positive rate at capacity.
    /// Guava's own sizes may miss the rate: [`FilterSpec::missed_rate`] returns by how much.
    pub(super) fn guava_body(&self, strategy: Strategy) -> Result<(BodySpec, f64), SpecError> {
        let own = self.false_positive_rate.map(|rate| {
            let shape = Shape::for_capacity(strategy, self.capacity, rate);
            shape.map_err(|error| self.refused(error))
        });
        let own = match own {
            // Guava may have no filter for these numbers, but the requested bits can still work.
            Some(Err(_)) if self.bit_count.is_some() => None,
            own => own.transpose()?,
        };
        let words = match (self.bit_count, &own) {
            (Some(bits), _) => bits.div_ceil(64),
            (None, Some(own)) => own.word_count(),
            (None, None) => return Err(SpecError::FalsePositiveRate { value: 0.0 }),
        };
        let hash_count = match (self.hash_count, &own) {
            (Some(count), _) => count,
            (None, Some(own)) if self.bit_count.is_none() => own.hash_count(),
            (None, _) => best_hash_count(words * 64, self.capacity),
        };
        let shape = Shape::new(strategy, hash_count, words).map_err(|error| self.refused(error))?;
        let reached = rate_at(shape, self.capacity);
        let false_positive_rate = match self.false_positive_rate {
            Some(asked) if own == Some(shape) && shape.used_bits() == shape.bit_count() => asked,
            Some(asked) if reached > asked * (1.0 + 1e-6) => {
                return Err(SpecError::RateOutOfReach {
                    bit_count: shape.bit_count(),
                    asked,
                    reached,
                });
            }
            Some(asked) => asked,
            None => reached,
        };
        Ok((BodySpec::Guava(shape), false_positive_rate))
    }

    fn refused(&self, error: impl ToString) -> SpecError {
        SpecError::Exchange {
            layout: self.layout,
            reason: error.to_string(),
        }
    }
}

/// The share of the asked rate by which a filter can miss it before that is reported.
const MISSED: f64 = 0.02;

impl FilterSpec {
    /// Returns the predicted false-positive rate of the filter at capacity. It is at most the one
    /// asked for, except in a layout of Guava. Guava's sizes follow the textbook. They ignore the
    /// rounding of the number of hashes, the even spacing of positions (`sizing/spaced.rs`), which
    /// affects small filters and low rates, and bits that are chosen unevenly (`sizing/uneven.rs`).
    pub fn predicted_rate(&self) -> f64 {
        match self.body {
            BodySpec::Guava(shape) => rate_at(shape, self.capacity),
            _ => self.false_positive_rate,
        }
    }

    /// Returns the [predicted rate](Self::predicted_rate), if it is above the one asked for by more
    /// than rounding.
    pub fn missed_rate(&self) -> Option<f64> {
        let rate = self.predicted_rate();
        (rate > self.false_positive_rate * (1.0 + MISSED)).then_some(rate)
    }

    /// Returns the spec of a filter of Guava with this capacity. If none is given, the capacity is
    /// the number of keys that its bits and its number of hashes are made for.
    pub fn of_guava(shape: Shape, capacity: Option<u64>) -> Self {
        let capacity = capacity.unwrap_or_else(|| {
            let keys = shape.bit_count() as f64 * LN_2 / f64::from(shape.hash_count());
            (keys.round() as u64).max(1)
        });
        Self {
            capacity,
            false_positive_rate: rate_at(shape, capacity),
            hash_function: HashFunction::Murmur3X64_128,
            key_profile: None,
            body: BodySpec::Guava(shape),
        }
    }

    /// Returns the spec of a filter of RedisBloom with this capacity. If none is given, the
    /// capacity is that of its layers.
    pub fn of_chain(chain: &Chain, capacity: Option<u64>) -> Self {
        let layers = chain.layers();
        let capacities = layers.iter().map(ChainLayer::capacity);
        let capacity = capacity.unwrap_or_else(|| capacities.fold(0, u64::saturating_add).max(1));
        let rates = layers.iter().map(ChainLayer::false_positive_rate);
        Self {
            capacity,
            false_positive_rate: bounded(either(rates)),
            hash_function: HashFunction::Murmur2_64A,
            key_profile: None,
            body: BodySpec::RedisBloom(chain.emptied().into()),
        }
    }
}

/// Returns Guava's number of hashes for `bit_count` bits: `optimalNumOfHashFunctions`.
fn best_hash_count(bit_count: u64, capacity: u64) -> u32 {
    let count = bit_count as f64 / capacity as f64 * LN_2;
    count.round().clamp(1.0, MAX_HASH_COUNT.into()) as u32
}

fn rate_at(shape: Shape, capacity: u64) -> f64 {
    let parts = ForeignBits::of_guava(shape);
    bounded(parts.last().false_positive_rate(capacity as f64))
}

/// Keeps a probability from rounding to 0 or 1, which a spec does not allow.
fn bounded(rate: f64) -> f64 {
    rate.clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON)
}
