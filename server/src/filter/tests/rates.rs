//! Promise 4 by measurement: the rate at capacity is at most the one asked for, and at every
//! fill it is the one that sizing predicts. Keys and secret are fixed, so the outcome is too.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

use seenset_filter::{
    hash::{KeyHasher, Secret},
    shape::Shape,
    sizing::{false_positive_rate, false_positive_rate_at_fill},
    spec::{Layout, SpecRequest},
};

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
        let spec = SpecRequest {
            layout,
            ..SpecRequest::new(capacity, rate)
        }
        .resolve()
        .unwrap();
        let shape = Shape::of(&spec);
        Self {
            shape,
            hasher: KeyHasher::new(spec.hash_function, &Secret::new(*b"a fixed secret!!")),
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
}

/// The numbers between which a binomial count lies with a probability of 99.9 %: each tail
/// has at most half of the rest. Sums the distribution up from 0.
fn interval(trials: f64, probability: f64) -> (f64, f64) {
    let tail = 0.0005;
    let (mut low, mut sum) = (None, 0.0);
    let mut log = trials * (-probability).ln_1p();
    let odds = (probability / (1.0 - probability)).ln();
    let mut count = 0.0;
    loop {
        sum += log.exp();
        if low.is_none() && sum > tail {
            low = Some(count);
        }
        if sum >= 1.0 - tail {
            return (low.unwrap_or(0.0), count);
        }
        log += ((trials - count) / (count + 1.0)).ln() + odds;
        count += 1.0;
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

        // From the fill alone, the same comes out.
        let fill = filter.bits_set as f64 / filter.shape.bit_count() as f64;
        let from_fill = false_positive_rate_at_fill(&filter.shape, fill);
        assert!(
            (from_fill / predicted - 1.0).abs() < 0.03,
            "{layout} for {rate} at {percent} %: {from_fill} from the fill, {predicted} from keys"
        );
    }
    filter.shards.len()
}

#[test]
fn one_in_ten() {
    Layout::ALL
        .into_iter()
        .for_each(|layout| measure(layout, 0.1, 1_000_000));
}

#[test]
fn one_in_a_hundred() {
    Layout::ALL
        .into_iter()
        .for_each(|layout| measure(layout, 0.01, 2_000_000));
}

#[test]
fn one_in_a_thousand() {
    Layout::ALL
        .into_iter()
        .for_each(|layout| measure(layout, 0.001, 5_000_000));
}

#[test]
fn one_in_ten_thousand() {
    Layout::ALL
        .into_iter()
        .for_each(|layout| measure(layout, 0.0001, 20_000_000));
}

/// Keys are dealt to several shards before they are dealt to bits.
#[test]
fn in_several_shards() {
    for layout in Layout::ALL {
        assert_eq!(measure_at(layout, 8_000_000, 0.01, 1_000_000), 3);
    }
}
