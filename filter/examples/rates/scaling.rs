//! Filters that grow.

use seenset_filter::hash::KeyHash;

use crate::{filter::Filter, growing::Growing};

impl Filter for Growing {
    /// The keys of a partition stay in their order. If they were sorted, the keys that fill a layer
    /// would fill only its first blocks.
    fn add(&mut self, hashes: &mut [KeyHash]) {
        hashes.sort_by_key(|hash| self.layers.partition(*hash));
        Self::add(self, hashes);
    }

    fn found(&self, hashes: &mut [KeyHash]) -> u64 {
        hashes.sort_unstable_by_key(|hash| hash.high);
        Self::found(self, hashes)
    }

    fn rate_by_keys(&self, keys: u64) -> f64 {
        self.layers.false_positive_rate(keys)
    }

    fn rate_by_fill(&self) -> f64 {
        self.layers.false_positive_rate_at_fill(self.fills())
    }
}
