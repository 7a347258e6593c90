//! The shards of a filter by their numbers, whether it is in layers or not: as snapshots and copies
//! have them.

use std::ops::Range;

use super::{GuardedFilter, shards::Shard};
use crate::{
    filter::division::Division,
    sync::{MappedRwLockReadGuard, MappedRwLockWriteGuard},
};

impl GuardedFilter {
    /// How the filter is divided into shards.
    pub(super) fn division(&self) -> Division {
        Division::of(&self.spec)
    }

    /// The numbers of all shards that there is memory for.
    pub(super) fn shard_numbers(&self) -> Range<usize> {
        match &self.layered {
            None => 0..self.shape.shard_count(),
            Some(layered) => layered.partitions.numbers(),
        }
    }

    /// Locks a shard against writers; `None` if no key can have come to it yet.
    pub(super) fn read_shard(&self, number: usize) -> Option<MappedRwLockReadGuard<'_, Shard>> {
        match &self.layered {
            None => Some(self.shards.read(number)),
            Some(layered) => layered.partitions.read(number),
        }
    }

    /// Locks a shard against everybody; `None` as of [`Self::read_shard`].
    pub(super) fn write_shard(&self, number: usize) -> Option<MappedRwLockWriteGuard<'_, Shard>> {
        match &self.layered {
            None => Some(self.shards.write(number)),
            Some(layered) => layered.partitions.write(number),
        }
    }

    /// A shard that nobody else knows of yet; `None` if there is no memory for it.
    pub(super) fn shard_mut(&mut self, number: usize) -> Option<&mut Shard> {
        match &mut self.layered {
            None => Some(self.shards.get_mut(number)),
            Some(layered) => layered.partitions.get_mut(number),
        }
    }
}
