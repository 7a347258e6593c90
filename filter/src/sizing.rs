//! From a false-positive rate to bits, and back from bits to the rate.
//!
//! The classic formula alone would be wrong for blocks: some blocks get more keys than others, and
//! the full ones raise the rate more than the empty ones lower it. Rates are therefore computed for
//! each layout (`sizing/blocked.rs`, `sizing/two_lines.rs`, `sizing/classic.rs`). Sizes are found
//! by a search for the smallest size whose computed rate is low enough.

mod blocked;
pub(crate) mod classic;
mod fill;
pub(crate) mod spaced;
mod two_lines;
pub(crate) mod uneven;

use crate::{
    blocked::Blocked,
    format::{Format, KeyArea, Rates},
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
};

/// The share of the asked rate that a filter is sized for.
///
/// A filter sized for exactly the asked rate would show a higher one in half of all measurements.
/// Four per cent less costs 0.6 to 1 % more bits, and keeps a measured rate at capacity below the
/// asked one.
pub const MARGIN: f64 = 0.96;

/// The number of steps along a line after which a search that has not met its target halves
/// instead.
const MAX_SECANTS: u32 = 8;
/// The assumed slope of the logarithm of a rate against that of the size, before two rates are
/// known.
const FIRST_SLOPE: f64 = 8.0;

/// Returns the expected false-positive rate of a filter after `keys` distinct keys were added.
pub fn false_positive_rate(filter: &(impl Rates + ?Sized), keys: f64) -> f64 {
    filter.rate(keys).clamp(0.0, 1.0)
}

/// Returns the expected false-positive rate of a filter when the share `fill_ratio` of its bits is
/// set, no matter how many keys set them.
pub fn false_positive_rate_at_fill(filter: &(impl Rates + ?Sized), fill_ratio: f64) -> f64 {
    if fill_ratio <= 0.0 {
        return 0.0;
    }
    if fill_ratio >= 1.0 {
        return 1.0;
    }
    filter.rate_at_fill(fill_ratio).clamp(0.0, 1.0)
}

/// Returns the expected number of distinct keys in a filter when the share `fill_ratio` of its bits
/// is set. It is the inverse of the fill that the rates are computed from. Returns `None` if all
/// bits are set, because the number is then unknown.
///
/// S. J. Swamidass and P. Baldi, "Mathematical Correction for Fingerprint Similarity Measures to
/// Improve Chemical Retrieval", J. Chem. Inf. Model. 2007: -m/k · ln(1 - X/m) with X bits set.
pub fn keys_at_fill(filter: &(impl Rates + ?Sized), fill_ratio: f64) -> Option<f64> {
    if fill_ratio >= 1.0 {
        return None;
    }
    if fill_ratio <= 0.0 {
        return Some(0.0);
    }
    Some(filter.keys_at_fill(fill_ratio))
}

/// Returns the expected share of set bits of a filter in blocks after `keys` distinct keys were
/// added.
pub(crate) fn fill_ratio(blocked: &Blocked, keys: f64) -> f64 {
    blocked::fill(blocked).after(keys)
}

/// Returns the smallest filter that keeps `rate` with `capacity` keys, by [`MARGIN`]. Returns `None`
/// if it would take more than [`MAX_BIT_COUNT`] bits. The number of hashes is the given one, or the
/// one that takes the fewest bits.
pub(crate) fn smallest<F: Format>(capacity: u64, rate: f64, hash_count: Option<u32>) -> Option<F> {
    // The number of hashes of the classic layout is near the best one. With its size known, one
    // look shows for most other numbers that they are not better.
    let likely = -rate.log2();
    let distance = |count: &u32| (f64::from(*count) - likely).abs();
    let nearest = |a: &u32, b: &u32| distance(a).total_cmp(&distance(b));
    let likely = candidates::<F>(hash_count).min_by(nearest)?;
    let with = |hash_count, most_bits| smallest_with::<F>(capacity, rate, hash_count, most_bits);
    let mut best = with(likely, MAX_BIT_COUNT);
    for hash_count in candidates::<F>(hash_count).filter(|&count| count != likely) {
        // Among filters with as many bits, the one with the fewest hashes is best.
        let most_bits = best.map_or(MAX_BIT_COUNT, |best| {
            let (bits, most_hashes) = rank(&best);
            match hash_count < most_hashes {
                true => bits,
                false => bits - F::GRAIN.unit,
            }
        });
        // Shards are equal, so a limit of one bit less can give the same number of bits.
        let is_better = |filter: &F| best.is_none_or(|best| rank(filter) < rank(&best));
        best = with(hash_count, most_bits).filter(is_better).or(best);
    }
    best
}

/// Returns the numbers of bits and of hashes. The least is best.
fn rank(filter: &impl Format) -> (u64, u32) {
    (filter.shape().bit_count(), filter.shape().hash_count())
}

/// Returns the number of hashes with the lowest rate for `bit_count` bits and `capacity` keys.
pub(crate) fn best_hash_count<F: Format>(bit_count: u64, capacity: u64) -> u32 {
    let rate = |hash_count: &u32| {
        let filter = F::new(bit_count, *hash_count);
        false_positive_rate(&filter, capacity as f64)
    };
    candidates::<F>(None)
        .min_by(|a, b| rate(a).total_cmp(&rate(b)))
        .unwrap_or(1)
}

/// Returns the numbers of hashes worth trying. In a block, beyond one round of lanes only whole
/// rounds are worth it: a part of a round takes the same time and fills the lanes unevenly.
fn candidates<F: Format>(hash_count: Option<u32>) -> impl Iterator<Item = u32> {
    let all = match hash_count {
        Some(given) => given..=given,
        None => 1..=MAX_HASH_COUNT,
    };
    let takes_all = hash_count.is_some() || F::KEY_AREA == KeyArea::Shard;
    all.filter(move |&count| takes_all || count <= 8 || count % 8 == 0)
}

/// Returns the smallest filter with `hash_count` hashes and at most `most_bits` bits that keeps the
/// rate.
fn smallest_with<F: Format>(
    capacity: u64,
    rate: f64,
    hash_count: u32,
    most_bits: u64,
) -> Option<F> {
    let unit = F::GRAIN.unit;
    let filter = |units: u64| F::new(units * unit, hash_count);
    let most = most_bits / unit;
    let keys = capacity as f64;
    let target = rate * MARGIN;
    let rate_at = |units: u64| false_positive_rate(&filter(units), keys);
    if most == 0 || rate_at(most) > target {
        return None;
    }
    let guess = classic::bits(hash_count, keys, target) / unit as f64;
    Some(filter(least(most, guess, target, rate_at)))
}

/// Returns the least number up to `most` whose `rate` is at most `target`. The rate falls as
/// numbers grow, and the rate of `most` must be at most `target`.
///
/// Rates are close to powers of sizes. So a line through two of them, in logarithms of both, meets
/// the target next to the number after a few steps (secant method). From there the steps double
/// until the number lies between two tried ones, and then halve.
fn least(most: u64, guess: f64, target: f64, rate: impl Fn(u64) -> f64) -> u64 {
    // The rate of `short` is too high, unless it is 0, and that of `enough` is low enough.
    let (mut short, mut enough) = (0, most);
    let (mut next, mut last) = (guess, None);
    let mut is_enough = true;
    for _ in 0..MAX_SECANTS {
        if enough - short <= 1 {
            return enough;
        }
        let number = (next as u64).clamp(short + 1, enough - 1);
        let excess = (rate(number) / target).max(f64::MIN_POSITIVE).ln();
        is_enough = excess <= 0.0;
        *(if is_enough { &mut enough } else { &mut short }) = number;
        let here = ((number as f64).ln(), excess);
        let (x, y) = last
            .replace(here)
            .unwrap_or((here.0 + 1.0, here.1 - FIRST_SLOPE));
        let slope = (here.1 - y) / (here.0 - x);
        next = (here.0 - excess / slope).exp();
        // This is not a number if the line is flat.
        let leads_on = (next - number as f64).abs() >= 1.0;
        if !leads_on || slope >= 0.0 {
            break;
        }
    }
    let mut step = 1;
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        let number = match is_enough {
            true => middle.max(enough.saturating_sub(step)),
            false => middle.min(short.saturating_add(step)),
        };
        *(if rate(number) <= target {
            &mut enough
        } else {
            &mut short
        }) = number;
        step = step.saturating_mul(2);
    }
    enough
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        classic::Classic,
        counters::Counters,
        format::tests::with_each,
        spec::{FilterSpec, Kind, Layout, SpecRequest},
    };

    fn spec(layout: Layout, kind: Kind, rate: f64) -> FilterSpec {
        SpecRequest {
            layout,
            kind,
            ..SpecRequest::new(100_000_000, rate)
        }
        .resolve()
        .unwrap()
    }

    #[test]
    fn bits_per_key_stay_within_budget() {
        for (layout, rate, budget) in [
            (Layout::Classic, 0.01, 9.7),
            (Layout::Classic, 0.001, 14.5),
            (Layout::Blocked, 0.01, 10.2),
            (Layout::Blocked, 0.001, 15.9),
        ] {
            let bits = spec(layout, Kind::Plain, rate).body.bit_count() as f64 / 1e8;
            assert!(bits <= budget, "{layout} at {rate}: {bits} bits a key");
            // At least as much as information theory and the overhead of a Bloom filter require.
            assert!(
                bits >= (1.0 / rate).ln() / 2_f64.ln().powi(2),
                "{layout} at {rate}: {bits}"
            );
        }
    }

    /// Two lines have as many cells for a key as a block has, and keys fill them nearly as evenly.
    #[test]
    fn counters_take_four_times_the_bits() {
        for rate in [0.1, 0.01, 0.001, 1e-4] {
            let [plain, counting] = [Kind::Plain, Kind::Counting]
                .map(|kind| spec(Layout::Blocked, kind, rate).memory_bytes() as f64);
            let times = counting / plain;
            assert!((3.9..4.1).contains(&times), "{rate}: {times}");
        }
    }

    #[test]
    fn the_rate_is_kept_and_one_unit_less_would_not_keep_it() {
        with_each!(F in [Blocked, Classic, Counters] => {
            for rate in [0.5, 0.1, 0.01, 0.001, 1e-4, 1e-6, 1e-9] {
                let filter: F = smallest(200_000, rate, None).unwrap();
                let shape = filter.shape();
                let at = |bits| {
                    let filter = F::new(bits, shape.hash_count());
                    false_positive_rate(&filter, 200_000.0)
                };
                assert!(at(shape.bit_count()) <= rate * MARGIN);
                let unit = 512 * shape.shard_count() as u64;
                assert!(at(shape.bit_count() - unit) > rate * MARGIN, "{filter:?}");
            }
        });
    }

    /// The search finds the same shape as a comparison of all numbers would.
    #[test]
    fn no_other_number_of_hashes_takes_fewer_bits() {
        fn halving<F: Format>(capacity: u64, rate: f64, hash_count: u32) -> F {
            let filter = |units: u64| F::new(units * F::GRAIN.unit, hash_count);
            let (mut short, mut enough) = (0, MAX_BIT_COUNT / F::GRAIN.unit);
            while enough - short > 1 {
                let middle = short + (enough - short) / 2;
                let reached = false_positive_rate(&filter(middle), capacity as f64);
                let is_enough = reached <= rate * MARGIN;
                *(if is_enough { &mut enough } else { &mut short }) = middle;
            }
            filter(enough)
        }
        with_each!(F in [Blocked, Classic] => {
            for capacity in [1, 2, 77, 1000, 45_678, 3_000_000, 200_000_000_000] {
                for rate in [0.9, 0.5, 0.1, 0.03, 0.01, 0.001, 1e-4, 1e-6, 1e-9, 1e-15] {
                    let all = candidates::<F>(None);
                    let all = all.map(|count| halving::<F>(capacity, rate, count));
                    let best = all.min_by_key(rank);
                    let found = smallest(capacity, rate, None);
                    assert_eq!(found, best, "{capacity} keys at {rate}");
                }
            }
        });
    }

    /// The line through two rates does not always lead closer to the target.
    #[test]
    fn rates_that_do_not_fall_evenly_are_searched() {
        type Rate = fn(u64) -> f64;
        let rates: [(&str, Rate); 6] = [
            ("a step", |n| f64::from(u8::from(n < 700_001))),
            ("none", |_| 0.0),
            ("the last alone", |n| f64::from(u8::from(n < 1_000_000))),
            ("plateaus", |n| 1.0 / (n / 1000 + 1) as f64),
            ("nearly flat", |n| {
                0.01 + 1e-9 * (1_000_000 - n) as f64 - 1e-6
            }),
            ("steep", |n| (-(n as f64) / 1000.0).exp()),
        ];
        for (name, rate) in rates {
            for guess in [
                f64::NAN,
                -1.0,
                0.0,
                1.0,
                5000.0,
                999_999.0,
                1e30,
                f64::INFINITY,
            ] {
                let expected = (1..=1_000_000).find(|&n| rate(n) <= 0.01);
                let found = least(1_000_000, guess, 0.01, rate);
                assert_eq!(Some(found), expected, "{name} from {guess}");
            }
        }
    }

    #[test]
    fn the_rate_grows_with_keys_and_with_fill() {
        with_each!(F in [Blocked, Classic, Counters] => {
            for hash_count in [1, 3, 7, 8, 9, 12, 16, 30, 64] {
                let filter = F::new(1 << 20, hash_count);
                let filter = &filter;
                let mut last = 0.0;
                for step in 1..60 {
                    let rate = false_positive_rate(filter, f64::from(step) * 4000.0);
                    assert!(rate >= last - 1e-13, "{filter:?}, step {step}");
                    last = rate;
                }
                assert!(last > 0.1, "{filter:?}: {last}");
                assert_eq!(false_positive_rate_at_fill(filter, 0.0), 0.0);
                assert_eq!(false_positive_rate_at_fill(filter, 1.0), 1.0);
            }
        });
    }

    #[test]
    fn no_rate_is_ever_out_of_range() {
        with_each!(F in [Blocked, Classic, Counters] => {
            for bits in [1, 512, 1 << 20, MAX_BIT_COUNT] {
                for hash_count in [1, 7, 8, 23, 64] {
                    let filter = &F::new(bits, hash_count);
                    for keys in [0.0, 1.0, 1e3, 1e9, u64::MAX as f64] {
                        let rate = false_positive_rate(filter, keys);
                        assert!((0.0..=1.0).contains(&rate), "{filter:?} with {keys}: {rate}");
                    }
                    for fill in [1e-12, 0.3, 1.0 - 1e-12] {
                        let rate = false_positive_rate_at_fill(filter, fill);
                        assert!((0.0..=1.0).contains(&rate), "{filter:?} at {fill}: {rate}");
                    }
                }
            }
        });
    }
}
