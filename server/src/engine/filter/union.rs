//! Merge: a filter takes the keys of another, as the union of their bits or the sums of their
//! counters.
//!
//! # On stable storage first
//!
//! Keys that calls add are in the log before the calls are acknowledged. The bits of another filter
//! are not in the log. If they reached memory first, a call could report a key among them as seen
//! or as added, and a crash could then lose the key.
//!
//! So a merge writes the union to the disk before any call can see it. It writes a snapshot of the
//! shards together with the new bits. This becomes the snapshot of the filter in one step of the
//! manifest. Only then does the merge add the bits to the shards in memory, one by one, on top of
//! the changes that calls have made meanwhile. After a crash, the filter has the whole union if the
//! crash came after the step, and nothing of it otherwise.
//!
//! # The same bits on the disk and in memory
//!
//! Memory must get the same bits as the disk. A crash loses a key that was added to memory alone.
//! Where keys are counted, one key could have one count in memory and two on the disk.
//!
//! The other filter goes on changing, but its stored copy does not. So the other filter is stored
//! first, and both the disk and memory get their bits from the stored copy. In layers, the merge
//! reads the copy once more before that, to find out whether it fits.
//!
//! # Versions
//!
//! A merge is one change with one version. It waits for calls with earlier versions, as a snapshot
//! does.
//!
//! The bits of the merge are not in the log, because no answer depends on them before they are on
//! stable storage. Its version is in the log. Otherwise there would be a gap if the merge fails,
//! and recovery would leave out counts after the gap.
//!
//! As always, the version of a shard shows exactly which changes it holds. It holds all changes up
//! to the version of the merge, because the merge has waited for them. So later changes are counted
//! once, on top of the sums. On the disk, a counter can be saturated when the counter in memory is
//! not, or can have been saturated for longer. The counter on the disk is never less.

use std::{iter, thread};

use super::{
    Filter,
    body::{Unfit, Whole},
    snapshot_lock::{Presence, SnapshotLock},
};
use crate::{
    engine::{
        EngineError,
        barrier::WriteBarrier,
        journal::{FilterLog, WalReservation},
    },
    store::{DataDirectory, FilterName, FilterReader, RecordHead, ShardState, StoreError},
};

/// The reason why two filters in layers cannot be merged.
const OVERFULL: &str = "together they have more keys than the layers are made for that they have \
                        come to, and would be wrong more often than was asked for; fill a filter \
                        for more keys from a list";

/// The bits that a merge adds to the shards of a filter, from the stored copy of another.
#[derive(Debug)]
pub(super) struct Addition<'a> {
    target: &'a Filter,
    stored: &'a FilterReader,
    /// The version of the merge.
    version: u64,
    words: Vec<u64>,
}

impl<'a> Addition<'a> {
    fn new(target: &'a Filter, stored: &'a FilterReader, version: u64) -> Self {
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
    fn add_to_memory(&mut self) -> Result<(), StoreError> {
        let target = self.target;
        for number in self.stored.shards() {
            let other = self.read(number)?;
            let Some(mut shard) = target.body.whole().write(number) else {
                continue;
            };
            let saturated = target.shape.saturated(&shard.words);
            shard.state = self.unite(number, (shard.state, &mut shard.words), other);
            let saturated = target.shape.saturated(&shard.words) - saturated;
            target.body.whole().add_saturated(saturated);
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

/// The guard of bits that a merge is about to set. When it is dropped, only bits that are set count.
struct Expected<'a>(&'a dyn Whole);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.recount();
    }
}

impl Filter {
    /// Fails if another filter cannot be merged into this one.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`], with the differences.
    pub fn check_mergeable(&self, source: &Self) -> Result<(), EngineError> {
        let (own, other) = (&self.spec, &source.spec);
        let differences = [
            ("capacity", own.capacity != other.capacity),
            (
                "false_positive_rate",
                own.false_positive_rate != other.false_positive_rate,
            ),
            ("bit_count", own.bit_count != other.bit_count),
            ("hash_count", own.hash_count != other.hash_count),
            ("layout", own.layout != other.layout),
            ("hash_function", own.hash_function != other.hash_function),
            ("kind", own.kind != other.kind),
            ("key_profile", own.key_profile != other.key_profile),
            ("number of shards", own.shard_count != other.shard_count),
            (
                "layers",
                own.chain != other.chain || own.layers != other.layers,
            ),
            // Keys of other programs' filters are hashed without a secret.
            (
                "secret",
                own.foreign_bits().is_none() && self.secret != source.secret,
            ),
        ];
        let names = differences.iter().filter(|(_, differs)| *differs);
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(self.not_mergeable(
            &source.name(),
            format!(
                "they differ in {}, so their bits mean other keys; a filter can be merged with its \
                 copies",
                names.join(", ")
            ),
        ))
    }

    fn not_mergeable(&self, source: &FilterName, reason: String) -> EngineError {
        EngineError::NotMergeable {
            source_name: source.clone(),
            target: self.name(),
            reason,
        }
    }

    /// Adds all keys of the stored copy of another filter, which [can be
    /// merged](Self::check_mergeable) into this one. Returns `false` if this one has been deleted.
    /// If there is a log, there must be room for a record without keys. Blocks until the keys are
    /// on stable storage. Locks one shard at a time (with its neighbours behind the same lock).
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no key has been added then. [`EngineError::NotDurable`] is an exception:
    /// all keys, some or none can have been added, now and after a crash.
    pub fn merge(
        &self,
        source: &FilterReader,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        reservation: Option<WalReservation<'_>>,
        mut lock: SnapshotLock,
    ) -> Result<bool, EngineError> {
        let Presence::Present { files, .. } = &mut *lock.presence else {
            return Ok(false);
        };
        let body = self.body.whole();
        let expected = body.expect_merge(self, source);
        expected.map_err(|why| self.unfit(source, why))?;
        let _expected = Expected(body);
        let stored = *self.last_store.lock();
        // In the same order as `begin_snapshot`: the segment first, then the version.
        let segment = self.log.as_ref().map_or(0, FilterLog::segment);
        let version = self.versions.next_sealed();
        // The record is appended before any wait: no later version is durable without it.
        if let (Some(log), Some(mut reservation)) = (&self.log, reservation) {
            let head = RecordHead {
                kind: body.merge_kind(),
                ..self.record_head(None, version)
            };
            log.append(&mut reservation, &head, 0, iter::empty());
        }
        barrier.wait_for_writes();
        let begin = (version, segment);
        let mut addition = Addition::new(self, source, version);
        self.write_snapshot(directory, files, begin, stored, Some(&mut addition))?;
        let taken = addition.add_to_memory();
        taken.map_err(|error| StoreError::InDoubt(error.into()))?;
        Ok(true)
    }

    /// Returns the error of a merge whose bits do not fit.
    fn unfit(&self, source: &FilterReader, why: Unfit) -> EngineError {
        let name = &source.header().name;
        match why {
            Unfit::Full(why) => EngineError::NoRoomToMerge {
                source_name: name.clone(),
                target: self.name(),
                why,
            },
            Unfit::Overfull => self.not_mergeable(name, OVERFULL.to_owned()),
            Unfit::Unread(error) => error.into(),
        }
    }
}
