//! A filter as a whole: its shards by number, its memory, its content and its time.

use std::{
    ops::Range,
    time::{Duration, SystemTime},
};

use super::content::Content;
use crate::{
    engine::{
        error::Full,
        filter::{Filter, shard::Shard},
    },
    filter::{
        hash::KeyHash,
        shard_map::ShardMap,
        spec::FilterSpec,
        union::{Fill, keys_of_union, unite},
    },
    store::{FilterReader, RecordKind, ShardState, StoreError},
    sync::{MappedRwLockReadGuard, MappedRwLockWriteGuard},
};

/// The bits of a filter, as operations on the whole filter use them: snapshots, copies, merges, the
/// status and the upkeep. Each method with a body is for the kinds that have nothing special here.
pub trait Whole {
    /// Returns the numbers of all shards that have memory.
    fn numbers(&self) -> Range<usize>;

    /// Locks a shard against writers. Returns `None` if no key can have reached it yet.
    fn read(&self, number: usize) -> Option<MappedRwLockReadGuard<'_, Shard>>;

    /// Locks a shard against readers and writers. Returns `None` as [`Self::read`] does.
    fn write(&self, number: usize) -> Option<MappedRwLockWriteGuard<'_, Shard>>;

    /// Returns a shard of a filter that no other thread uses yet; `None` if the shard has no
    /// memory.
    fn get_mut(&mut self, number: usize) -> Option<&mut Shard>;

    /// Notes a shard that was filled in another way than by keys.
    fn note_filled(&self, _: &Shard) {}

    /// Counts the bits of the shards again, after they were filled in another way than by keys.
    fn recount(&self) {}

    /// Reserves memory for all shards up to a number.
    ///
    /// # Errors
    ///
    /// [`Full`].
    fn reserve(&self, _last: usize) -> Result<(), Full> {
        Ok(())
    }

    /// Returns the memory that was reserved after the filter was created, in bytes.
    fn grown_bytes(&self) -> u64 {
        0
    }

    /// Moves memory that has become dense to huge pages. Returns the number of keys that make the
    /// rest dense; `None` if there is no rest.
    fn look_at_pages(&self, bits_set: u64) -> Option<u64>;

    /// Moves memory that will be dense to huge pages, before shards with these states are restored.
    fn prepare_pages(&self, states: &mut dyn Iterator<Item = (usize, ShardState)>);

    /// Returns the content of all shards. Takes each lock for a moment.
    fn content(&self, spec: &FilterSpec) -> Content<'_>;

    /// Returns the bits of a key and whether each is set.
    fn explain(&self, hash: KeyHash) -> KeyBits;

    /// Returns the number of counters that have reached their greatest value.
    fn saturated(&self) -> u64 {
        0
    }

    /// Returns the number of counters in words of a shard that have reached their greatest value.
    fn saturated_in(&self, _words: &[u64]) -> u64 {
        0
    }

    /// Notes counters that have reached their greatest value.
    fn add_saturated(&self, _counters: u64) {}

    /// Returns the number of layers that have memory; `None` if there are no layers.
    fn layers(&self) -> Option<usize> {
        None
    }

    /// Returns the greatest number of records that a call with `keys` keys appends to the log,
    /// apart from full records. A record takes `record_keys` keys.
    fn records_of_a_call(&self, _keys: usize, _record_keys: usize) -> usize {
        1
    }

    /// Notes that all changes after a version are in the log.
    fn begin_log(&mut self, _latest: u64) {}

    /// Brings the copy of a shard into the form in which it is stored.
    fn for_disk(&self, state: ShardState, _words: &mut [u64]) -> ShardState {
        state
    }

    /// Adds the stored words of the same shard of another filter to the words of a shard, which has
    /// `bits` bits.
    fn unite(
        &self,
        bits: u64,
        (own, words): (ShardState, &mut [u64]),
        (other, others): (ShardState, &mut [u64]),
    ) -> ShardState {
        let bits_set = own.bits_set + unite(words, others);
        united(bits, own, other, bits_set)
    }

    /// Prepares for the bits of the stored copy of another filter, which a merge is about to add.
    /// They count as if they were set, until the bits are [counted again](Self::recount).
    ///
    /// # Errors
    ///
    /// [`Unfit`].
    fn expect_merge(&self, _filter: &Filter, _source: &FilterReader) -> Result<(), Unfit> {
        Ok(())
    }

    /// Returns the kind of the record of a merge.
    fn merge_kind(&self) -> RecordKind {
        RecordKind::Added
    }

    /// Returns the greatest age of a key that a call can ask for; `None` if keys do not age.
    fn max_age(&self) -> Option<Duration> {
        None
    }

    /// Returns the filter's own time since 1970, if it has one.
    fn time(&self) -> Option<Duration> {
        None
    }

    /// Returns the state of the filter's own time, for a filter that takes its place or its
    /// content.
    fn clock_state(&self) -> ClockState {
        ClockState::default()
    }

    /// Takes over the time of a filter of the same kind.
    fn follow(&mut self, _: ClockState) {}

    /// Records the filter's time at which its snapshot was begun.
    fn note_stored(&mut self, _: SystemTime) {}

    /// Continues from where the snapshots and the log left the filter.
    fn go_on(&mut self) {
        self.recount();
    }

    /// Returns whether so much time has passed since a snapshot was begun that another must record
    /// it.
    fn has_gone_on_since(&self, _stored: SystemTime) -> bool {
        false
    }

    /// Clears stamps that are too old, one shard at a time. Calls also clear shards where they
    /// must. If this runs in time, no call has to.
    fn clear_old(&self) {}

    /// Returns whether some stamps may be too old.
    fn has_old(&self) -> bool {
        false
    }
}

/// The reason why the bits of a merge do not fit.
#[derive(Debug)]
pub enum Unfit {
    /// The filter has no memory for a layer that the other filter has.
    Full(Full),
    /// A layer would have more bits than it is made for.
    Overfull,
    /// The stored copy of the other filter could not be read.
    Unread(StoreError),
}

impl From<StoreError> for Unfit {
    fn from(error: StoreError) -> Self {
        Self::Unread(error)
    }
}

/// The bits of a key, and where they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBits {
    /// The layer that holds the key, or the layer that would take it. `None` if the filter has no
    /// layers.
    pub layer: Option<usize>,
    /// The shard that holds all bits of the key. `None` if they can lie in several shards.
    pub shard: Option<usize>,
    /// The block in the shard that holds the bits. `None` if the layout has no blocks, or if the
    /// key has counters or stamps.
    pub block: Option<usize>,
    /// The 64-byte lines in the shard that hold the counters or stamps of the key. Empty if it has
    /// none.
    pub lines: Vec<usize>,
    /// The bits of the key: for each, its index and whether it is set. The index is in the shard,
    /// or in the filter if the bits can lie in several shards.
    pub bits: Vec<(u64, bool)>,
}

/// The state of a filter's own time.
#[derive(Debug, Default, Clone, Copy)]
pub struct ClockState {
    /// The time by which the filter's time is ahead of the clock.
    pub ahead: Duration,
    pub epoch: u64,
}

/// Returns the state of a shard after the union of its bits with those of another shard. `bits_set`
/// of its `bits` bits are set now.
pub fn united(bits: u64, own: ShardState, other: ShardState, bits_set: u64) -> ShardState {
    let fill = |state: ShardState| Fill {
        bits_set: state.bits_set,
        keys: state.keys_added,
    };
    let keys_added = keys_of_union(bits, fill(own), fill(other), bits_set);
    ShardState {
        bits_set,
        keys_added,
        ..own
    }
}

impl Filter {
    /// Returns the division of the filter into shards.
    pub fn shard_map(&self) -> ShardMap {
        ShardMap::of(&self.spec)
    }

    /// Returns the time. A filter whose keys age has its own time, which does not go back.
    pub fn time(&self) -> SystemTime {
        let since_1970 = self.body.whole().time();
        // A clock that a test drives can return any time.
        let own = since_1970.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
        own.unwrap_or_else(SystemTime::now)
    }

    /// Continues from where the snapshots and the log left the filter.
    pub fn go_on(&mut self) {
        self.body.whole_mut().go_on();
    }

    /// Clears stamps that are too old from memory.
    pub fn clear_old(&self) {
        self.body.whole().clear_old();
    }

    /// Returns whether some stamps may be too old.
    pub fn has_old(&self) -> bool {
        self.body.whole().has_old()
    }
}
