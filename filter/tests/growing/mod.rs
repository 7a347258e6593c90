//! A filter in plain memory that grows.

#![allow(
    clippy::indexing_slicing,
    reason = "a partition has no layers but those of its plan"
)]

use seenset_filter::{
    hash::KeyHash,
    scaling::{Fill, Layers},
};

/// The partitions of a filter that was planned.
pub struct Growing {
    pub layers: Layers,
    pub partitions: Vec<Partition>,
}

#[derive(Clone, Default)]
pub struct Partition {
    pub shards: Vec<Vec<u64>>,
    /// The number of set bits in each layer.
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
    /// Takes the next layer, if there is one.
    fn grow(&mut self, layers: &Layers) {
        if let Some(layer) = layers.layers().get(self.bits_set.len()) {
            let shard = vec![0; layer.shape().shard_words()];
            self.shards.extend(vec![shard; layer.shards()]);
            self.bits_set.push(0);
        }
    }

    /// Whether the newest layer is full.
    fn is_full(&self, layers: &Layers) -> bool {
        let newest = self.bits_set.len().checked_sub(1);
        newest
            .is_some_and(|newest| self.bits_set[newest] >= layers.layers()[newest].spec().full_bits)
    }
}

impl Growing {
    pub fn new(layers: Layers) -> Self {
        let mut first = Partition::default();
        first.grow(&layers);
        Self {
            partitions: vec![first; layers.partitions()],
            layers,
        }
    }

    pub fn add(&mut self, hashes: &[KeyHash]) {
        let layers = &self.layers;
        layers.insert_each(
            &mut self.partitions,
            0,
            hashes.iter().copied().enumerate(),
            |_, partition: &mut Partition, added| {
                partition.bits_set[added.layer] += u64::from(added.bits);
                if partition.is_full(layers) {
                    partition.grow(layers);
                }
            },
        );
    }

    /// Returns the number of keys that are present, or seem to be.
    pub fn found(&self, hashes: &[KeyHash]) -> u64 {
        let mut found = 0;
        let hashes = hashes.iter().copied().enumerate();
        self.layers
            .find_each(&self.partitions, 0, hashes, |_, _, shard| {
                found += u64::from(shard.is_some());
            });
        found
    }

    pub fn fills(&self) -> impl Iterator<Item = Fill> {
        (0..self.layers.layers().len()).map(|layer| {
            let own = self.partitions.iter().filter_map(|p| p.bits_set.get(layer));
            Fill {
                partitions: own.clone().count() as u64,
                bits_set: own.sum(),
            }
        })
    }
}
