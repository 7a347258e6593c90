//! Bits that a filter takes from the stored copy of another.

use std::thread;

use super::Filter;
use crate::store::{FilterReader, ShardState, StoreError};

/// The bits that a merge adds to the shards of a filter, from the stored copy of another.
#[derive(Debug)]
pub struct Addition<'a> {
    target: &'a Filter,
    stored: &'a FilterReader,
    /// The version of the merge.
    version: u64,
    words: Vec<u64>,
}

impl<'a> Addition<'a> {
    pub fn new(target: &'a Filter, stored: &'a FilterReader, version: u64) -> Self {
        Self {
            target,
            stored,
            version,
            words: Vec::new(),
        }
    }

    /// Returns whether the stored copy has a shard.
    pub fn has(&self, shard: usize) -> bool {
        self.stored.holds(shard)
    }

    /// Adds the stored bits of a shard to a copy of the same shard of the target.
    pub fn add_to_copy(
        &mut self,
        shard: usize,
        (state, words): (ShardState, &mut [u64]),
    ) -> Result<ShardState, StoreError> {
        if !self.has(shard) {
            return Ok(state);
        }
        let other = self.read(shard)?;
        Ok(self.unite(shard, (state, words), other))
    }

    /// Adds the stored bits to all shards in memory. Locks one shard at a time (with its neighbours
    /// behind the same lock), and none while it reads.
    pub fn add_to_memory(&mut self) -> Result<(), StoreError> {
        let target = self.target;
        for number in self.stored.shards() {
            let other = self.read(number)?;
            let whole = target.body.whole();
            let Some(mut shard) = whole.write(number) else {
                continue;
            };
            let saturated = whole.saturated_in(&shard.words);
            shard.state = self.unite(number, (shard.state, &mut shard.words), other);
            whole.add_saturated(whole.saturated_in(&shard.words) - saturated);
            drop(shard);
            thread::yield_now();
        }
        Ok(())
    }

    /// Reads the stored bits of a shard.
    fn read(&mut self, shard: usize) -> Result<ShardState, StoreError> {
        let words = self.target.shard_map().shape(shard).shard_words();
        self.words.resize(words, 0);
        self.stored.read_shard(shard, &mut self.words, &mut Err)
    }

    /// Adds the words that have been read to the words of the same shard of the target.
    fn unite(
        &mut self,
        shard: usize,
        own: (ShardState, &mut [u64]),
        other: ShardState,
    ) -> ShardState {
        let bits = self.target.shard_map().shape(shard).shard_bits();
        let others = (other, &mut *self.words);
        let mut state = self.target.body.whole().unite(bits, own, others);
        state.version = state.version.max(self.version);
        state
    }
}
