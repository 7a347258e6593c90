//! Measures promise 4: the rate at capacity is at most the one asked for, and at every fill it is
//! the one that sizing predicts. Keys and secret are fixed, so the outcome is fixed too.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod interval;

use seenset_filter::{
    hash::{KeyHasher, Secret},
    shape::Shape,
    sizing::{false_positive_rate, false_positive_rate_at_fill, keys_at_fill},
    spec::{Kind, Layout, SpecRequest},
};

use self::interval::interval;

const CAPACITY: u64 = 500_000;

/// A filter in one piece of plain memory.
struct Filter {
    shape: Shape,
    hasher: KeyHasher,
    shards: Vec<Vec<u64>>,
    bits_set: u64,
}

impl Filter {
    fn new(layout: Layout, capacity: u64, rate: f64) -> Self {
        Self::of(SpecRequest {
            layout,
            ..SpecRequest::new(capacity, rate)
        })
    }

    fn of(request: SpecRequest) -> Self {
        let spec = request.resolve().unwrap();
        let shape = spec.body.shape();
        Self {
            shape,
            hasher: KeyHasher::new(spec.hash_function, &Secret::new(*b"the same secret!")),
            shards: vec![vec![0; shape.shard_words()]; shape.shard_count()],
            bits_set: 0,
        }
    }

    fn add(&mut self, key: u64) {
        let hash = self.hasher.hash(&key.to_le_bytes());
        let shard = &mut self.shards[self.shape.shard(hash)];
        self.bits_set += u64::from(self.shape.insert(shard, hash));
    }

    fn contains(&self, key: u64) -> bool {
        let hash = self.hasher.hash(&key.to_le_bytes());
        self.shape
            .contains(&self.shards[self.shape.shard(hash)], hash)
    }

    fn fill(&self) -> f64 {
        self.bits_set as f64 / self.shape.bit_count() as f64
    }
}

fn measure(layout: Layout, rate: f64, queries: u64) {
    measure_at(layout, CAPACITY, rate, queries);
}

fn measure_at(layout: Layout, capacity: u64, rate: f64, queries: u64) -> usize {
    let mut filter = Filter::new(layout, capacity, rate);
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
        let predicted = false_positive_rate(&filter.shape, keys as f64);
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
        let from_fill = false_positive_rate_at_fill(&filter.shape, filter.fill());
        assert!(
            (from_fill / predicted - 1.0).abs() < 0.03,
            "{layout} for {rate} at {percent} %: {from_fill} from the fill, {predicted} from keys"
        );
    }
    filter.shards.len()
}

#[test]
fn one_in_ten() {
    Layout::OWN
        .into_iter()
        .for_each(|layout| measure(layout, 0.1, 1_000_000));
}

#[test]
fn one_in_a_hundred() {
    Layout::OWN
        .into_iter()
        .for_each(|layout| measure(layout, 0.01, 2_000_000));
}

#[test]
fn one_in_a_thousand() {
    Layout::OWN
        .into_iter()
        .for_each(|layout| measure(layout, 0.001, 5_000_000));
}

#[test]
fn one_in_ten_thousand() {
    Layout::OWN
        .into_iter()
        .for_each(|layout| measure(layout, 0.0001, 20_000_000));
}

/// Keys are distributed to several shards before their bits are chosen.
#[test]
fn in_several_shards() {
    for layout in Layout::OWN {
        assert_eq!(measure_at(layout, 8_000_000, 0.01, 1_000_000), 256);
    }
}

/// The fill gives the number of keys, including keys that were reported as seen when they were
/// added. This also holds for a filter with a hundredth of its keys, and for one with twice as
/// many.
#[test]
fn keys_are_counted_by_the_fill() {
    let kinds = [
        (Layout::Blocked, Kind::Plain),
        (Layout::Classic, Kind::Plain),
        (Layout::Blocked, Kind::Counting),
    ];
    for (layout, kind) in kinds {
        // With one bit for each key, with several lanes, with rounds, and with rounds that some
        // lanes lack.
        for (rate, hash_count) in [(0.3, 1), (0.01, 6), (0.001, 8), (1e-4, 16), (1e-3, 11)] {
            let mut filter = Filter::of(SpecRequest {
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
                let estimate = keys_at_fill(&filter.shape, filter.fill()).unwrap();
                assert!(
                    (estimate / keys as f64 - 1.0).abs() < 0.01,
                    "{layout}, {kind}, k = {hash_count}, {percent} %: {estimate} of {keys}"
                );
            }
        }
    }
}

#[test]
fn a_fill_that_says_nothing_of_the_keys_is_told() {
    for layout in Layout::OWN {
        let shape = Filter::new(layout, 1000, 0.01).shape;
        assert_eq!(keys_at_fill(&shape, 0.0), Some(0.0));
        assert_eq!(keys_at_fill(&shape, 1.0), None);
        let all_but_one = 1.0 - 1.0 / shape.bit_count() as f64;
        let most = keys_at_fill(&shape, all_but_one).unwrap();
        assert!(most.is_finite() && most > 5000.0, "{layout}: {most}");
    }
}
