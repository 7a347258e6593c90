//! Access to the shards of a filter by number, whether it is in layers or not. Snapshots and copies
//! use it.

use std::ops::Range;

use super::{GuardedFilter, shards::Shard};
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
        match &self.layered {
            None => 0..self.shape.shard_count(),
            Some(layered) => layered.partitions.numbers(),
        }
    }

    /// Locks a shard against writers. Returns `None` if no key can have reached it yet.
    pub(super) fn read_shard(&self, number: usize) -> Option<MappedRwLockReadGuard<'_, Shard>> {
        match &self.layered {
            None => Some(self.shards.read(number)),
            Some(layered) => layered.partitions.read(number),
        }
    }

    /// Locks a shard against readers and writers. Returns `None` as [`Self::read_shard`] does.
    pub(super) fn write_shard(&self, number: usize) -> Option<MappedRwLockWriteGuard<'_, Shard>> {
        match &self.layered {
            None => Some(self.shards.write(number)),
            Some(layered) => layered.partitions.write(number),
        }
    }

    /// Returns a shard of a filter that no other thread uses yet; `None` if the shard has no
    /// memory.
    pub(super) fn shard_mut(&mut self, number: usize) -> Option<&mut Shard> {
        match &mut self.layered {
            None => Some(self.shards.get_mut(number)),
            Some(layered) => layered.partitions.get_mut(number),
        }
    }
}
