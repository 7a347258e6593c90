//! Filters that keep their keys: plain ones in both layouts, and counting ones.

use seenset_filter::{hash::KeyHash, key_set::KeySet, sizing};

use crate::filter::Filter;

pub struct Plain<F> {
    format: F,
    shards: Vec<Vec<u64>>,
    bits_set: u64,
}

impl<F: KeySet> Plain<F> {
    pub fn new(format: F) -> Self {
        let shape = format.shape();
        Self {
            format,
            shards: vec![vec![0; shape.shard_words()]; shape.shard_count()],
            bits_set: 0,
        }
    }
}

impl<F: KeySet> Filter for Plain<F> {
    fn add(&mut self, hashes: &mut [KeyHash]) {
        hashes.sort_unstable_by_key(|hash| hash.high);
        let hashes = hashes.iter().copied().enumerate();
        self.format
            .insert_each(&mut self.shards, 0, hashes, |_, _, bits| {
                self.bits_set += u64::from(bits);
            });
    }

    fn found(&self, hashes: &mut [KeyHash]) -> u64 {
        let mut found = 0;
        hashes.sort_unstable_by_key(|hash| hash.high);
        let hashes = hashes.iter().copied().enumerate();
        self.format
            .contains_each(&self.shards, 0, hashes, |_, _, is_there| {
                found += u64::from(is_there);
            });
        found
    }

    fn rate_by_keys(&self, keys: u64) -> f64 {
        sizing::false_positive_rate(&self.format, keys as f64)
    }

    fn rate_by_fill(&self) -> f64 {
        let fill_ratio = self.bits_set as f64 / self.format.shape().bit_count() as f64;
        sizing::false_positive_rate_at_fill(&self.format, fill_ratio)
    }
}
