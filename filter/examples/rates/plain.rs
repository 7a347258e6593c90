//! Filters that keep their keys: plain ones in both layouts, and counting ones.

use seenset_filter::{hash::KeyHash, shape::Shape, sizing};

use crate::filter::Filter;

pub struct Plain {
    shape: Shape,
    shards: Vec<Vec<u64>>,
    bits_set: u64,
}

impl Plain {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            shards: vec![vec![0; shape.shard_words()]; shape.shard_count()],
            bits_set: 0,
        }
    }
}

impl Filter for Plain {
    fn add(&mut self, hashes: &mut [KeyHash]) {
        hashes.sort_unstable_by_key(|hash| hash.high);
        let hashes = hashes.iter().copied().enumerate();
        self.shape
            .insert_each(&mut self.shards, 0, hashes, |_, _, bits| {
                self.bits_set += u64::from(bits);
            });
    }

    fn found(&self, hashes: &mut [KeyHash]) -> u64 {
        let mut found = 0;
        hashes.sort_unstable_by_key(|hash| hash.high);
        let hashes = hashes.iter().copied().enumerate();
        self.shape
            .contains_each(&self.shards, 0, hashes, |_, _, is_there| {
                found += u64::from(is_there);
            });
        found
    }

    fn rate_by_keys(&self, keys: u64) -> f64 {
        sizing::false_positive_rate(&self.shape, keys as f64)
    }

    fn rate_by_fill(&self) -> f64 {
        let fill_ratio = self.bits_set as f64 / self.shape.bit_count() as f64;
        sizing::false_positive_rate_at_fill(&self.shape, fill_ratio)
    }
}
