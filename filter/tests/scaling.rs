//! Measures filters that grow: at up to 64 times the first capacity the rate is never above the one
//! asked for, and it is the predicted one. The memory is that of the plan. Keys and secret are
//! fixed, so the outcome is fixed too.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod growing;
mod interval;
mod keys;

use std::ops::Range;

use seenset_filter::{
    hash::{KeyHasher, Secret},
    scaling::{HORIZON, Layers, Scaling},
    spec::{HashFunction, SpecRequest},
};

use self::{
    growing::{Growing, Partition},
    interval::interval,
    keys::hash_batches,
};

/// A filter that grows, and the hasher of its keys.
struct Filter {
    growing: Growing,
    hasher: KeyHasher,
}

impl Filter {
    fn new(capacity: u64, rate: f64, growth: u32) -> Self {
        let scaling = Scaling {
            growth,
            max_memory_bytes: None,
        };
        let (layers, _) = Layers::plan(capacity, rate, &scaling).unwrap();
        let secret = Secret::new(*b"a fixed secret!!");
        Self {
            growing: Growing::new(layers),
            hasher: KeyHasher::new(HashFunction::default(), &secret),
        }
    }

    fn add(&mut self, keys: Range<u64>) {
        hash_batches(&self.hasher, keys, |hashes| self.growing.add(hashes));
    }

    fn found(&self, keys: Range<u64>) -> u64 {
        let mut found = 0;
        hash_batches(&self.hasher, keys, |hashes| {
            found += self.growing.found(hashes);
        });
        found
    }

    fn memory_bytes(&self) -> u64 {
        let words = |partition: &Partition| partition.shards.iter().map(Vec::len).sum::<usize>();
        8 * self.growing.partitions.iter().map(words).sum::<usize>() as u64
    }
}

/// Grows a filter to 64 times its capacity. On the way compares the measurements with `rate` and
/// with the predictions, and at the end with a plain filter for as many keys. Returns the ratio of
/// their memory.
fn measure(capacity: u64, rate: f64, growth: u32, queries: u64) -> f64 {
    let mut filter = Filter::new(capacity, rate, growth);
    let mut added = 0;
    for factor in [1, 2, 3, 4, 8, 15, 16, 24, 32, 48, HORIZON] {
        let keys = capacity * factor;
        filter.add(added..keys);
        added = keys;
        assert_eq!(filter.found(0..keys), keys, "a key was forgotten");

        let found = filter.found((1 << 40)..(1 << 40) + queries) as f64;
        let measured = found / queries as f64;
        assert!(
            measured <= rate,
            "{measured} at {factor} times the capacity, where {rate} was asked for"
        );
        for (predicted, from) in [
            (filter.growing.layers.false_positive_rate(keys), "keys"),
            (
                filter
                    .growing
                    .layers
                    .false_positive_rate_at_fill(filter.growing.fills()),
                "fills",
            ),
        ] {
            // The share by which a prediction can be off: some partitions have just begun a layer,
            // and there is chance in the filter itself.
            let off = 0.02;
            let (low, _) = interval(queries as f64, predicted * (1.0 - off));
            let (_, high) = interval(queries as f64, predicted * (1.0 + off));
            assert!(
                (low..=high).contains(&found),
                "{rate}, growth {growth}, {factor} times: {found} of {queries}, by {from} {low} to {high}"
            );
        }
    }
    let keys = capacity * HORIZON;
    assert_eq!(
        filter.memory_bytes(),
        filter.growing.layers.memory_bytes(keys)
    );
    let plain = SpecRequest::new(keys, rate).resolve().unwrap();
    filter.memory_bytes() as f64 / plain.memory_bytes() as f64
}

/// The bounds are those of the plan: `docs/adr/0009-layers.md`.
#[test]
fn one_in_ten() {
    let ratio = measure(20_000, 0.1, 4, 1_000_000);
    assert!(ratio <= 1.44, "{ratio}");
}

#[test]
fn one_in_ten_by_doubling() {
    let ratio = measure(20_000, 0.1, 2, 1_000_000);
    assert!(ratio <= 1.66, "{ratio}");
}

#[test]
fn one_in_a_hundred() {
    let ratio = measure(20_000, 0.01, 2, 1_000_000);
    assert!(ratio <= 1.43, "{ratio}");
}

#[test]
fn one_in_a_thousand() {
    let ratio = measure(20_000, 0.001, 2, 2_000_000);
    assert!(ratio <= 1.35, "{ratio}");
}

#[test]
fn one_in_ten_thousand() {
    let ratio = measure(20_000, 0.0001, 2, 5_000_000);
    assert!(ratio <= 1.24, "{ratio}");
}

/// Each partition grows by itself.
#[test]
fn in_many_partitions() {
    let ratio = measure(300_000, 0.01, 2, 1_000_000);
    assert!(ratio <= 1.43, "{ratio}");
}

/// At the highest rate layers depend on each other most. The keys fill ten layers, four of them
/// past the horizon.
#[test]
fn one_in_two() {
    let (capacity, rate, queries) = (5_000, 0.5, 1_000_000);
    let mut filter = Filter::new(capacity, rate, 2);
    filter.add(0..capacity * 1020);
    let found = filter.found((1 << 40)..(1 << 40) + queries);
    let measured = found as f64 / queries as f64;
    assert!(measured <= rate, "{measured}");
    let fills = filter.growing.fills();
    let predicted = filter.growing.layers.false_positive_rate_at_fill(fills);
    // For independent layers the prediction would be lower by more than this.
    assert!(
        (measured / predicted - 1.0).abs() < 0.015,
        "{measured} for {predicted}"
    );
}
