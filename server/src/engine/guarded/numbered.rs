//! Access to the shards of a filter by number, whether it is in layers or not. Snapshots and copies
//! use it.

use std::ops::Range;

use super::{GuardedFilter, body::Body, shard::Shard};
use crate::{
    filter::shard_map::ShardMap,
    sync::{MappedRwLockReadGuard, MappedRwLockWriteGuard},
};

impl GuardedFilter {
    /// Returns the division of the filter into shards.
    pub(super) fn shard_map(&self) -> ShardMap {
        ShardMap::of(&self.spec)
    }

    /// Returns the numbers of all shards that have memory.
    pub(super) fn shard_numbers(&self) -> Range<usize> {
        match &self.body {
            Body::Layered(layered) => layered.partitions.numbers(),
            _ => 0..self.shape.shard_count(),
        }
    }

    /// Locks a shard against writers. Returns `None` if no key can have reached it yet.
    pub(super) fn read_shard(&self, number: usize) -> Option<MappedRwLockReadGuard<'_, Shard>> {
        match self.body.layered() {
            Some(layered) => layered.partitions.read(number),
            None => Some(self.body.sharded()?.shards.read(number)),
        }
    }

    /// Locks a shard against readers and writers. Returns `None` as [`Self::read_shard`] does.
    pub(super) fn write_shard(&self, number: usize) -> Option<MappedRwLockWriteGuard<'_, Shard>> {
        match self.body.layered() {
            Some(layered) => layered.partitions.write(number),
            None => Some(self.body.sharded()?.shards.write(number)),
        }
    }

    /// Returns a shard of a filter that no other thread uses yet; `None` if the shard has no
    /// memory.
    pub(super) fn shard_mut(&mut self, number: usize) -> Option<&mut Shard> {
        match &mut self.body {
            Body::Layered(layered) => layered.partitions.get_mut(number),
            body => Some(body.sharded_mut()?.shards.get_mut(number)),
        }
    }
}
