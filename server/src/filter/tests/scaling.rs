//! Filters that grow, by measurement: the rate is never above the one asked for, at up to 64 times
//! the first capacity, and the one that is predicted; the memory is that of the plan. Keys and
//! secret are fixed, so the outcome is too.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod interval;

use seenset_filter::{
    hash::{KeyHash, KeyHasher, Secret},
    scaling::{Fill, HORIZON, Layers, Scaling},
    spec::{HashFunction, SpecRequest},
};

use self::interval::interval;

/// A filter in plain memory that grows.
struct Filter {
    layers: Layers,
    hasher: KeyHasher,
    partitions: Vec<Partition>,
}

#[derive(Clone, Default)]
struct Partition {
    shards: Vec<Vec<u64>>,
    /// In each layer.
    bits_set: Vec<u64>,
}

impl AsMut<[Vec<u64>]> for Partition {
    fn as_mut(&mut self) -> &mut [Vec<u64>] {
        &mut self.shards
    }
}

impl AsRef<[Vec<u64>]> for Partition {
    fn as_ref(&self) -> &[Vec<u64>] {
        &self.shards
    }
}

impl Partition {
    fn grow(&mut self, layers: &Layers) {
        let layer = &layers.layers()[self.bits_set.len()];
        let shard = vec![0; layer.shape().shard_words()];
        self.shards.extend(vec![shard; layer.shards()]);
        self.bits_set.push(0);
    }
}

impl Filter {
    fn new(capacity: u64, rate: f64, growth: u32) -> Self {
        let scaling = Scaling {
            growth,
            max_memory_bytes: None,
        };
        let (layers, _) = Layers::plan(capacity, rate, &scaling).unwrap();
        let secret = Secret::new(*b"a fixed secret!!");
        let mut first = Partition::default();
        first.grow(&layers);
        Self {
            hasher: KeyHasher::new(HashFunction::default(), &secret),
            partitions: vec![first; layers.partitions()],
            layers,
        }
    }

    fn hashes(&self, keys: impl Iterator<Item = u64>) -> impl Iterator<Item = (usize, KeyHash)> {
        keys.map(|key| self.hasher.hash(&key.to_le_bytes()))
            .enumerate()
    }

    fn add(&mut self, keys: impl Iterator<Item = u64>) {
        let hashes: Vec<_> = self.hashes(keys).collect();
        let layers = &self.layers;
        layers.insert_each(
            &mut self.partitions,
            0,
            hashes.into_iter(),
            |_, partition: &mut Partition, added| {
                partition.bits_set[added.layer] += u64::from(added.bits);
                let newest = partition.bits_set.len() - 1;
                if layers.layers()[newest].is_full(partition.bits_set[newest]) {
                    partition.grow(layers);
                }
            },
        );
    }

    fn found(&self, keys: impl Iterator<Item = u64>) -> u64 {
        let mut found = 0;
        self.layers
            .find_each(&self.partitions, 0, self.hashes(keys), |_, _, shard| {
                found += u64::from(shard.is_some());
            });
        found
    }

    fn fills(&self) -> impl Iterator<Item = Fill> {
        (0..self.layers.layers().len()).map(|layer| {
            let own = self.partitions.iter().filter_map(|p| p.bits_set.get(layer));
            Fill {
                partitions: own.clone().count() as u64,
                bits_set: own.sum(),
            }
        })
    }

    fn memory_bytes(&self) -> u64 {
        let words = |partition: &Partition| partition.shards.iter().map(Vec::len).sum::<usize>();
        8 * self.partitions.iter().map(words).sum::<usize>() as u64
    }
}

/// Grows a filter to 64 times its capacity, and holds what is measured on the way against `rate`,
/// against what is predicted, and at the end against a plain filter for as many keys. Returns the
/// ratio of their memory.
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
            (filter.layers.false_positive_rate(keys), "keys"),
            (
                filter.layers.false_positive_rate_at_fill(filter.fills()),
                "fills",
            ),
        ] {
            // Whichever layers partitions have just begun, and the chance in the filter itself.
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
    assert_eq!(filter.memory_bytes(), filter.layers.memory_bytes(keys));
    let plain = SpecRequest::new(keys, rate).resolve().unwrap();
    filter.memory_bytes() as f64 / plain.memory_bytes() as f64
}

/// A growth of 2 would need 1.55 times as much memory: `docs/decisions/0021-scaling.md`.
#[test]
fn one_in_ten() {
    let ratio = measure(20_000, 0.1, 4, 1_000_000);
    assert!(ratio <= 1.35, "{ratio}");
}

#[test]
fn one_in_ten_by_doubling() {
    let ratio = measure(20_000, 0.1, 2, 1_000_000);
    assert!(ratio <= 1.56, "{ratio}");
}

#[test]
fn one_in_a_hundred() {
    let ratio = measure(20_000, 0.01, 2, 1_000_000);
    assert!(ratio <= 1.35, "{ratio}");
}

#[test]
fn one_in_a_thousand() {
    let ratio = measure(20_000, 0.001, 2, 2_000_000);
    assert!(ratio <= 1.35, "{ratio}");
}

#[test]
fn one_in_ten_thousand() {
    let ratio = measure(20_000, 0.0001, 2, 5_000_000);
    assert!(ratio <= 1.35, "{ratio}");
}

/// Each grows by itself.
#[test]
fn in_many_partitions() {
    let ratio = measure(300_000, 0.01, 2, 1_000_000);
    assert!(ratio <= 1.35, "{ratio}");
}
