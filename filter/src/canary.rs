//! Canaries: keys that nobody can add, used to measure the false-positive rate of a filter.
//!
//! If a filter reports a canary as seen, it is wrong. It is wrong about canaries as often as about
//! any other key that was never added. Canaries are numbers, the same for all filters. They are
//! hashed by a [function of their own](crate::hash::Purpose::Canaries): SipHash under a secret that
//! is derived from the filter's secret, no matter which hash function and which key profile the
//! filter has. So a canary meets the bits of keys by chance alone, even if a key has the same
//! bytes, and no caller can choose keys that meet it.

/// The number of canaries that a filter with the rate asked for should report as seen. A count of
/// this size varies by a tenth (its standard deviation is its square root).
const SEEN_AT_RATE: f64 = 100.0;
/// The fewest canaries. Fewer would take less time than the request itself.
const FEWEST: f64 = 1e4;
/// The most canaries: bounds the time. Below a rate of 1e-4 fewer than [`SEEN_AT_RATE`] are seen.
const MOST: f64 = 1e6;
/// The quantile of the normal distribution that leaves 2.5 % on either side.
const Z: f64 = 1.959_963_984_540_054;

/// A key that nobody can add: the bytes that [a function of its own](self) hashes.
#[derive(Debug, Clone, Copy)]
pub struct Canary([u8; 8]);

impl Canary {
    /// Returns the canary of a number.
    pub fn new(number: u64) -> Self {
        Self(number.to_le_bytes())
    }

    /// Returns the number of canaries, numbered from 0, that measure a rate to about 10 % of it:
    /// 10,000 to 1,000,000. If the rate is so low that not even the most canaries would find one
    /// seen, it returns the fewest: more would show nothing more than these, namely that the rate
    /// is not far greater.
    pub fn count_for(rate: f64) -> u64 {
        if rate * MOST < 1.0 {
            return FEWEST as u64;
        }
        (SEEN_AT_RATE / rate).clamp(FEWEST, MOST) as u64
    }
}

impl AsRef<[u8]> for Canary {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A measured false-positive rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// The canaries that were looked up: at least 1.
    pub canaries: u64,
    /// The canaries that the filter reported as seen.
    pub seen: u64,
}

impl Measurement {
    /// Returns the share of canaries that were seen.
    pub fn rate(self) -> f64 {
        self.seen as f64 / self.canaries as f64
    }

    /// Returns the lowest and the highest rate that fit this measurement: in 95 of 100 filters the
    /// true rate lies between them. If no canary was seen, the rate is not 0: with 10,000 canaries
    /// it is up to 3.8e-4.
    ///
    /// E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference",
    /// JASA 1927.
    pub fn interval(self) -> (f64, f64) {
        let (count, rate) = (self.canaries as f64, self.rate());
        let square = Z * Z / count;
        let middle = rate + square / 2.0;
        let half = (square * (rate * (1.0 - rate) + square / 4.0)).sqrt();
        let bound = |value: f64| (value / (1.0 + square)).clamp(0.0, 1.0);
        // Removes rounding errors where the bounds are 0 and 1 by definition.
        let low = if self.seen == 0 {
            0.0
        } else {
            bound(middle - half)
        };
        let high = if self.seen == self.canaries {
            1.0
        } else {
            bound(middle + half)
        };
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::hash::{HashFunction, KeyHasher, Purpose, Secret};

    /// Neither a key with the same bytes, hashed by any function, nor another canary has it.
    #[test]
    fn no_key_has_the_hash_of_a_canary() {
        let secret = Secret::new([7; 16]);
        let hasher = KeyHasher::of_purpose(Purpose::Canaries, &secret);
        let others = HashFunction::ALL.map(|function| KeyHasher::new(function, &secret));
        let requests = KeyHasher::of_purpose(Purpose::Requests, &secret);
        let mut hashes = HashSet::new();
        for canary in [0, 1, 255, 256, 999_999].map(Canary::new) {
            let hash = hasher.hash(canary.as_ref());
            assert!(hashes.insert((hash.low, hash.high)));
            for other in others.iter().chain([&requests]) {
                let key = other.hash(canary.as_ref());
                assert!(key.low != hash.low && key.high != hash.high, "{other:?}");
            }
        }
    }

    #[test]
    fn a_low_rate_takes_more_of_them_up_to_a_limit() {
        for (rate, count) in [
            (0.5, 10_000),
            (0.01, 10_000),
            (0.001, 100_000),
            (1e-4, 1_000_000),
            (1e-6, 1_000_000),
            (1e-9, 10_000),
            (f64::MIN_POSITIVE, 10_000),
        ] {
            assert_eq!(Canary::count_for(rate), count, "{rate}");
        }
    }

    /// The ends are the rates from which the measured one is [`Z`] standard deviations away, for a
    /// count at that rate.
    #[test]
    fn the_interval_is_wilsons() {
        for (canaries, seen) in [(10_000, 0), (10_000, 1), (10_000, 9_999), (100, 50), (1, 0)] {
            let measured = Measurement { canaries, seen };
            let (low, high) = measured.interval();
            assert!(
                (low..=high).contains(&measured.rate()),
                "{measured:?}: {low} to {high}"
            );
            for end in [low, high] {
                let deviation = (end * (1.0 - end) / canaries as f64).sqrt();
                let away = (end - measured.rate()).abs();
                assert!((away - Z * deviation).abs() < 1e-12, "{measured:?}: {end}");
            }
        }
        let ends = |canaries, seen| Measurement { canaries, seen }.interval();
        assert_eq!(ends(10_000, 0).0, 0.0);
        assert!(ends(10_000, 0).1 > 3e-4);
        assert_eq!(ends(10_000, 10_000).1, 1.0);
    }
}
