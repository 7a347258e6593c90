//! The rate of the classic layout.

use crate::{
    classic::Classic,
    format::{Format, Rates},
};

impl Rates for Classic {
    fn rate(&self, keys: f64) -> f64 {
        let shape = self.shape();
        let (shards, bits) = (shape.shard_count() as f64, shape.shard_bits() as f64);
        rate(shards, bits, shape.hash_count(), keys / shards)
    }

    fn keys_at_fill(&self, fill_ratio: f64) -> f64 {
        let shape = self.shape();
        let of_shard = keys_at_fill(shape.shard_bits() as f64, shape.hash_count(), fill_ratio);
        shape.shard_count() as f64 * of_shard
    }

    fn rate_at_fill(&self, fill_ratio: f64) -> f64 {
        let shape = self.shape();
        let (shards, bits) = (shape.shard_count() as f64, shape.shard_bits() as f64);
        rate_at_fill(shards, bits, shape.hash_count(), fill_ratio)
    }
}

/// Returns the false-positive rate of `shards` shards of `bits` bits each with `hash_count` hashes
/// after `keys` keys for each shard.
///
/// Bloom (1970): a bit is still unset with probability (1 - 1/m)^(k·n), and a false positive finds
/// k bits set. The number of set bits varies around its mean. In a filter of few bits that raises
/// the rate noticeably. The second factor adds this effect, to second order. (P. Bose et al., "On
/// the False-Positive Rate of Bloom Filters", 2008, prove that the first factor alone is too low.)
/// If there are several shards, some get more keys than others, by the binomial distribution, and
/// so more bits.
pub fn rate(shards: f64, bits: f64, hash_count: u32, keys: f64) -> f64 {
    let k = f64::from(hash_count);
    let draws = k * keys;
    let fill = fill(bits, draws);
    if fill <= 0.0 {
        return 0.0;
    }
    let [of_bits, of_keys] = variances(bits, k, draws / bits);
    all_set(fill, hash_count, of_bits + of_keys * (1.0 - 1.0 / shards))
}

/// Returns the false-positive rate of filters with the share `fill_ratio` of all bits set, between
/// 0 and 1. The share is known for all shards together, and not for each shard.
pub fn rate_at_fill(shards: f64, bits: f64, hash_count: u32, fill_ratio: f64) -> f64 {
    let load = -(-fill_ratio).ln_1p();
    let variances: f64 = variances(bits, hash_count.into(), load).iter().sum();
    all_set(fill_ratio, hash_count, variances * (1.0 - 1.0 / shards))
}

/// Returns the variances of the fill of a shard: by the places of its bits, and by its number of
/// keys.
fn variances(bits: f64, k: f64, load: f64) -> [f64; 2] {
    let empty = (-load).exp();
    let of_bits = empty * (1.0 - (1.0 + load) * empty);
    [of_bits.max(0.0) / bits, load * k * empty * empty / bits]
}

/// Returns the probability that as many bits of a shard as a key has are all set, if the fill
/// varies.
fn all_set(fill: f64, hash_count: u32, variance: f64) -> f64 {
    let k = f64::from(hash_count);
    fill.powi(hash_count as i32) * (1.0 + k * (k - 1.0) / 2.0 * variance / (fill * fill))
}

/// Returns the number of bits, if it is large, that has about `rate` with `hash_count` hashes after
/// `keys` keys.
pub fn bits(hash_count: u32, keys: f64, rate: f64) -> f64 {
    let k = f64::from(hash_count);
    k * keys / -(-rate.powf(1.0 / k)).ln_1p()
}

/// Returns the expected share of `bits` bits that is set after `draws` random choices of one bit.
pub fn fill(bits: f64, draws: f64) -> f64 {
    -(draws * (-1.0 / bits).ln_1p()).exp_m1()
}

/// Returns the number of keys after which the share `fill_ratio` of `bits` bits (one shard) is
/// expected to be set. It is the inverse of the fill in [`rate`]. `fill_ratio` lies between 0 and
/// 1, 1 not included.
pub fn keys_at_fill(bits: f64, hash_count: u32, fill_ratio: f64) -> f64 {
    (-fill_ratio).ln_1p() / (f64::from(hash_count) * (-1.0 / bits).ln_1p())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_textbook_on_large_filters() {
        // m/n = 10, k = 7: 0.00819 in every table of Bloom filter rates.
        assert!((rate(1.0, 1e9, 7, 1e8) - 0.008_19).abs() < 1e-5);
        assert!((rate(1.0, 1e9, 1, 1e8) - 0.0952).abs() < 1e-4);
    }

    /// Compares with a sum over all numbers of keys that a shard can have, by the Poisson
    /// distribution, which is the limit of the binomial one for many shards.
    #[test]
    fn shards_with_more_keys_than_others_do_worse() {
        let (bits, hash_count, mean) = (4000.0, 7, 400.0_f64);
        let (mut chance, mut expected) = ((-mean).exp(), 0.0);
        for keys in 1..800 {
            chance *= mean / f64::from(keys);
            expected += chance * rate(1.0, bits, hash_count, keys.into());
        }
        let of_many = rate(1e6, bits, hash_count, mean);
        assert!(expected > 1.02 * rate(1.0, bits, hash_count, mean));
        assert!(
            (of_many / expected - 1.0).abs() < 0.005,
            "{of_many}, {expected}"
        );
    }

    #[test]
    fn a_filter_of_few_bits_does_worse() {
        assert!(rate(1.0, 100.0, 7, 10.0) > 1.05 * rate(1.0, 1e6, 7, 1e5));
    }
}
