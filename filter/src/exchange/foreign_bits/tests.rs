//! Predicted rates against measured ones, where evenly spaced positions raise them.

use super::*;
use crate::{
    exchange::{guava::Strategy, redisbloom::ChainLayer},
    spec::{Layout, SpecRequest},
};

const QUERIES: u64 = 3_000_000;

fn guava(strategy: Strategy, capacity: u64, rate: f64) -> Part {
    let shape = guava::Shape::for_capacity(strategy, capacity, rate).unwrap();
    Part {
        rule: Rule::Guava(shape),
        first_word: 0,
    }
}

/// Returns a layer of RedisBloom with `bits` bits.
fn redisbloom(bits: u64, hash_count: u32) -> Part {
    let layer = ChainLayer::new(bits.div_ceil(64), bits, hash_count, 100, 0.001).unwrap();
    Part {
        rule: Rule::RedisBloom(layer),
        first_word: 0,
    }
}

/// Random hashes, the same in each run.
struct Hashes(u64);

impl Hashes {
    fn next(&mut self) -> KeyHash {
        let seed = KeyHash { low: 3, high: 5 };
        self.0 += 2;
        let [low, high] = [self.0, self.0 + 1]
            .map(|number| seed.value(number as u32).rotate_left(32) ^ seed.value(!number as u32));
        KeyHash { low, high }
    }
}

/// Returns the number of false positives that filters with `keys` keys show for keys that were not
/// added, and the number predicted from their fill. Small filters are measured many times, because
/// chance makes a single one better or worse.
fn measured(part: &Part, keys: u64) -> (u64, f64) {
    let words = part.words().end as usize;
    let per_filter = (20 * keys).clamp(1_000, 200_000);
    let parts = ForeignBits {
        old: Vec::new(),
        last: *part,
        spaced: Arc::default(),
    };
    let mut hashes = Hashes(0);
    let (mut found, mut by_fill) = (0, 0.0);
    for _ in 0..QUERIES / per_filter {
        let mut filter = vec![0; words];
        for _ in 0..keys {
            array::insert(&mut filter, part.positions(hashes.next()));
        }
        for _ in 0..per_filter {
            found += u64::from(array::contains(&filter, part.positions(hashes.next())));
        }
        let bits_set = filter.iter().map(|word| u64::from(word.count_ones())).sum();
        by_fill += parts.false_positive_rate_at_fill(&[bits_set]) * per_filter as f64;
    }
    (found, by_fill)
}

/// Compares a prediction with a measurement. The difference can be a share of it, plus chance.
fn check(name: &str, part: &Part, keys: u64, allowed: f64) {
    let predicted = part.false_positive_rate(keys as f64);
    let (found, by_fill) = measured(part, keys);
    for (what, mean) in [("keys", predicted * QUERIES as f64), ("fill", by_fill)] {
        // 4.5 standard deviations of a binomial count.
        let bound = allowed * mean + 4.5 * mean.sqrt();
        let text = format!("{name}, {keys} keys, by {what}: {found} found, {mean:.0} predicted");
        println!(
            "{text}, off by {:.1} %",
            100.0 * (mean / found as f64 - 1.0)
        );
        assert!((found as f64 - mean).abs() < bound, "{text}");
    }
}

#[test]
fn the_predicted_rate_is_the_measured_one_where_positions_are_evenly_spaced() {
    for strategy in Strategy::ALL {
        for (keys, rate, allowed) in [
            (2, 0.001, 0.2),
            (10, 0.001, 0.15),
            (10, 1e-5, 0.25),
            (30, 0.01, 0.08),
            (100, 0.001, 0.06),
            (100, 1e-4, 0.08),
            (300, 1e-4, 0.06),
            (1_000, 0.001, 0.04),
            (1_000, 0.1, 0.03),
            (5_000, 0.01, 0.03),
        ] {
            let part = guava(strategy, keys, rate);
            check(&format!("{strategy} at {rate}"), &part, keys, allowed);
        }
    }
    // Bits for which sums wrap at a multiple, and bits for which they do not.
    for (bits, hash_count, keys, allowed) in [
        (1_024, 7, 100, 0.06),
        (2_048, 13, 100, 0.06),
        (1_919, 13, 100, 0.08),
        (8_192, 10, 500, 0.04),
    ] {
        let name = format!("RedisBloom, {bits} bits");
        check(&name, &redisbloom(bits, hash_count), keys, allowed);
    }
}

/// Half as many keys as the filter is for, and twice as many.
#[test]
fn it_is_so_at_other_fills() {
    let part = guava(Strategy::Mitz64, 100, 1e-3);
    check("a half", &part, 50, 0.08);
    check("twice", &part, 200, 0.04);
}

/// The filters for which the classic formula is wrong, with the error, and one for which it is
/// right.
#[test]
fn small_filters_and_low_rates_are_predicted_to_miss_their_rate() {
    for (keys, rate, least, most) in [
        (2, 0.001, 6.0, 9.0),
        (100, 1e-4, 2.6, 3.2),
        (1_000, 1e-5, 2.0, 2.6),
        (1_000_000, 0.01, 0.98, 1.02),
        (1_000_000, 1e-4, 0.98, 1.02),
    ] {
        let predicted = guava(Strategy::Mitz64, keys, rate).false_positive_rate(keys as f64);
        let times = predicted / rate;
        assert!(
            (least..most).contains(&times),
            "{keys} keys at {rate}: {times} times"
        );
    }
}

/// For the specs that a server resolves. Specs of our own layouts always keep their rate.
#[test]
fn a_spec_says_that_it_misses_its_rate() {
    let spec = |layout, capacity, rate| {
        let request = SpecRequest {
            layout,
            hash_function: Layout::hash_function(layout),
            ..SpecRequest::new(capacity, rate)
        };
        request.resolve().unwrap()
    };
    for layout in [Layout::Guava, Layout::GuavaMitz32] {
        let small = spec(layout, 30, 0.001);
        let missed = small.missed_rate().unwrap();
        assert!(
            missed > 0.0014 && small.predicted_rate() == missed,
            "{missed}"
        );
        assert_eq!(spec(layout, 1_000_000, 0.01).missed_rate(), None);
    }
    for layout in [Layout::Blocked, Layout::Classic] {
        assert_eq!(spec(layout, 10, 0.001).missed_rate(), None);
    }
}

#[test]
fn one_bit_a_key_and_full_filters_have_a_rate() {
    for strategy in Strategy::ALL {
        for (hash_count, words) in [(1, 1), (2, 1), (64, 1), (64, 1000)] {
            let shape = guava::Shape::new(strategy, hash_count, words).unwrap();
            let parts = ForeignBits::of_guava(shape);
            for keys in [0.0, 1.0, 1e3, 1e9] {
                let rate = parts.last().false_positive_rate(keys);
                assert!((0.0..=1.0).contains(&rate), "{rate}");
            }
            assert_eq!(parts.last().false_positive_rate(0.0), 0.0);
            assert_eq!(parts.false_positive_rate_at_fill(&[0]), 0.0);
            assert_eq!(parts.false_positive_rate_at_fill(&[words * 64]), 1.0);
        }
    }
}
