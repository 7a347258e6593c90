//! Measures promise 4: the rate at capacity is at most the one asked for, and at every fill it is
//! the one that sizing predicts. Keys and secret are fixed, so the outcome is fixed too.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod interval;

use seenset_filter::{
    blocked::Blocked,
    classic::Classic,
    counters::Counters,
    hash::{KeyHasher, Secret},
    key_set::KeySet,
    sizing::{false_positive_rate, false_positive_rate_at_fill, keys_at_fill},
    spec::{Kind, Layout, SpecRequest},
};

use self::interval::interval;

const CAPACITY: u64 = 500_000;

/// A filter in one piece of plain memory.
struct Filter<F> {
    format: F,
    hasher: KeyHasher,
    shards: Vec<Vec<u64>>,
    bits_set: u64,
}

impl<F: KeySet> Filter<F> {
    fn new(layout: Layout, capacity: u64, rate: f64) -> Self {
        Self::of(SpecRequest {
            layout,
            ..SpecRequest::new(capacity, rate)
        })
    }

    fn of(request: SpecRequest) -> Self {
        let spec = request.resolve().unwrap();
        let shape = spec.body.shape();
        let format = F::from(shape.dimensions());
        assert_eq!(*format.shape(), shape, "the format of the spec");
        Self {
            format,
            hasher: KeyHasher::new(spec.hash_function, &Secret::new(*b"the same secret!")),
            shards: vec![vec![0; shape.shard_words()]; shape.shard_count()],
            bits_set: 0,
        }
    }

    fn add(&mut self, key: u64) {
        let hash = self.hasher.hash(&key.to_le_bytes());
        let shard = &mut self.shards[self.format.shape().shard(hash)];
        self.bits_set += u64::from(self.format.insert(shard, hash));
    }

    fn contains(&self, key: u64) -> bool {
        let hash = self.hasher.hash(&key.to_le_bytes());
        self.format
            .contains(&self.shards[self.format.shape().shard(hash)], hash)
    }

    fn fill(&self) -> f64 {
        self.bits_set as f64 / self.format.shape().bit_count() as f64
    }
}

fn measure(rate: f64, queries: u64) {
    measure_at::<Blocked>(Layout::Blocked, CAPACITY, rate, queries);
    measure_at::<Classic>(Layout::Classic, CAPACITY, rate, queries);
}

fn measure_at<F: KeySet>(layout: Layout, capacity: u64, rate: f64, queries: u64) -> usize {
    let mut filter = Filter::<F>::new(layout, capacity, rate);
    let mut added = 0;
    for percent in [10, 50, 100, 200] {
        let keys = capacity * percent / 100;
        (added..keys).for_each(|key| filter.add(key));
        added = keys;
        assert!(
            (0..keys).all(|key| filter.contains(key)),
            "{layout}: a key was forgotten"
        );

        let found = (0..queries)
            .filter(|key| filter.contains((1 << 40) + key))
            .count() as f64;
        let predicted = false_positive_rate(&filter.format, keys as f64);
        let (low, high) = interval(queries as f64, predicted);
        assert!(
            (low..=high).contains(&found),
            "{layout} for {rate} at {percent} %: {found} of {queries}, expected {low} to {high}"
        );
        if percent == 100 {
            let measured = found / queries as f64;
            assert!(
                measured <= rate,
                "{layout}: {measured} where {rate} was asked for"
            );
        }

        // The fill alone gives the same result.
        let from_fill = false_positive_rate_at_fill(&filter.format, filter.fill());
        assert!(
            (from_fill / predicted - 1.0).abs() < 0.03,
            "{layout} for {rate} at {percent} %: {from_fill} from the fill, {predicted} from keys"
        );
    }
    filter.shards.len()
}

#[test]
fn one_in_ten() {
    measure(0.1, 1_000_000);
}

#[test]
fn one_in_a_hundred() {
    measure(0.01, 2_000_000);
}

#[test]
fn one_in_a_thousand() {
    measure(0.001, 5_000_000);
}

#[test]
fn one_in_ten_thousand() {
    measure(0.0001, 20_000_000);
}

/// Keys are distributed to several shards before their bits are chosen.
#[test]
fn in_several_shards() {
    let (capacity, rate, queries) = (8_000_000, 0.01, 1_000_000);
    let blocked = measure_at::<Blocked>(Layout::Blocked, capacity, rate, queries);
    let classic = measure_at::<Classic>(Layout::Classic, capacity, rate, queries);
    assert_eq!([blocked, classic], [256; 2]);
}

/// The fill gives the number of keys, including keys that were reported as seen when they were
/// added. This also holds for a filter with a hundredth of its keys, and for one with twice as
/// many.
#[test]
fn keys_are_counted_by_the_fill() {
    count_by_fill::<Blocked>(Layout::Blocked, Kind::Plain);
    count_by_fill::<Classic>(Layout::Classic, Kind::Plain);
    count_by_fill::<Counters>(Layout::Blocked, Kind::Counting);
}

fn count_by_fill<F: KeySet>(layout: Layout, kind: Kind) {
    // With one bit for each key, with several lanes, with rounds, and with rounds that some lanes
    // lack.
    for (rate, hash_count) in [(0.3, 1), (0.01, 6), (0.001, 8), (1e-4, 16), (1e-3, 11)] {
        let mut filter = Filter::<F>::of(SpecRequest {
            layout,
            kind,
            hash_count: Some(hash_count),
            ..SpecRequest::new(200_000, rate)
        });
        let mut added = 0;
        for percent in [1, 10, 50, 100, 200] {
            let keys = 200_000 * percent / 100;
            (added..keys).for_each(|key| filter.add(key));
            added = keys;
            let estimate = keys_at_fill(&filter.format, filter.fill()).unwrap();
            assert!(
                (estimate / keys as f64 - 1.0).abs() < 0.01,
                "{layout}, {kind}, k = {hash_count}, {percent} %: {estimate} of {keys}"
            );
        }
    }
}

#[test]
fn a_fill_that_says_nothing_of_the_keys_is_told() {
    check_empty_and_full::<Blocked>(Layout::Blocked);
    check_empty_and_full::<Classic>(Layout::Classic);
}

fn check_empty_and_full<F: KeySet>(layout: Layout) {
    let format = Filter::<F>::new(layout, 1000, 0.01).format;
    assert_eq!(keys_at_fill(&format, 0.0), Some(0.0));
    assert_eq!(keys_at_fill(&format, 1.0), None);
    let all_but_one = 1.0 - 1.0 / format.shape().bit_count() as f64;
    let most = keys_at_fill(&format, all_but_one).unwrap();
    assert!(most.is_finite() && most > 5000.0, "{layout}: {most}");
}
