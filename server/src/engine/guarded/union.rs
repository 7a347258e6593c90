//! A filter that takes the keys of another: the union of their bits, or the sums of their counters.
//!
//! # On stable storage first
//!
//! What calls add is in the log before it is acknowledged; the bits of another filter are not. If
//! they came into memory first, a key that is found among them could be told to be seen, or be
//! taken for added, and be gone after a crash. So the union comes to the disk before anybody sees
//! it: a snapshot is written of what the shards hold and what they are to get, and becomes the
//! filter's in one step of the manifest. Only then does it come to the shards in memory, one by
//! one, whatever has been added to them meanwhile. A crash after the step finds the union, one
//! before finds nothing of it.
//!
//! # The same twice
//!
//! What comes to memory has to be what came to the disk: a key that comes there alone is lost by a
//! crash, and where keys are counted it would be one count here and two there. The other filter
//! goes on, so it is not what it was. What is stored of it is: it is stored first, and both are
//! read from there; in layers once more before, to find out whether it fits.
//!
//! # Versions
//!
//! The merge is one change of one version, and calls with earlier ones are waited for, as for a
//! snapshot.
//! What it changes is not in the log, for nothing rests on it before it is on stable storage, but its
//! version is: what is counted behind a gap would be left out if the merge comes to nothing. The
//! version of a shard tells exactly what it holds, as ever: of the changes up to the merge's all, for
//! they have been waited for. So what was counted later is counted on top of the sums,
//! once. On the disk a counter may have come to where it stays when the one in memory has not, or has
//! stayed there longer; it is never less.

pub(super) mod coming;

use std::{iter, thread};

use self::coming::{Coming, Expectation, Unfit};
use super::{
    GuardedFilter,
    layered::Layered,
    snapshots::{Presence, Turn},
};
use crate::{
    engine::{
        EngineError,
        barrier::WriteBarrier,
        journal::{FilterLog, Room},
    },
    filter::{
        counting,
        union::{Fill, keys_of_union, unite},
    },
    store::{
        DataDirectory, Direction, FilterName, FilterReader, RecordHead, ShardState, StoreError,
    },
};

/// Why filters in layers have no union.
const OVERFULL: &str = "together they have more keys than the layers are made for that they have \
                        come to, and would be wrong more often than was asked for; fill a filter \
                        for more keys from a list";

/// What the shards of a filter get from what is stored of another.
#[derive(Debug)]
pub(super) struct Addition<'a> {
    target: &'a GuardedFilter,
    stored: &'a FilterReader,
    /// That of the merge.
    version: u64,
    words: Vec<u64>,
}

impl<'a> Addition<'a> {
    fn new(target: &'a GuardedFilter, stored: &'a FilterReader, version: u64) -> Self {
        Self {
            target,
            stored,
            version,
            words: Vec::new(),
        }
    }

    /// Whether there is anything for a shard.
    pub fn has(&self, shard: usize) -> bool {
        self.stored.holds(shard)
    }

    /// Adds to a copy of a shard what there is for it.
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

    /// Adds to all shards in memory what there is for them. Locks one (and its neighbours behind the
    /// same lock) at a time, and none while it reads.
    fn add_to_memory(&mut self) -> Result<(), StoreError> {
        let target = self.target;
        for number in self.stored.shards() {
            let other = self.read(number)?;
            let Some(mut shard) = target.write_shard(number) else {
                continue;
            };
            let saturated = target.shape.saturated(&shard.words);
            shard.state = self.unite(number, (shard.state, &mut shard.words), other);
            if let Some(counting) = &target.counting {
                counting.add_saturated(target.shape.saturated(&shard.words) - saturated);
            }
            drop(shard);
            thread::yield_now();
        }
        Ok(())
    }

    /// Reads what there is for a shard.
    fn read(&mut self, shard: usize) -> Result<ShardState, StoreError> {
        let words = self.target.division().shape(shard).shard_words();
        self.words.resize(words, 0);
        self.stored.read_shard(shard, &mut self.words, &mut Err)
    }

    /// Adds to the words of a shard those that have been read, which are those of the same shard.
    fn unite(
        &mut self,
        shard: usize,
        (before, words): (ShardState, &mut [u64]),
        other: ShardState,
    ) -> ShardState {
        let (target, others) = (self.target, &mut *self.words);
        let mut state = before;
        match (&target.counting, &target.aging) {
            (_, Some(aging)) => state = aging.unite((before, words), (other, others)),
            (Some(_), None) => state.bits_set += counting::unite(words, others),
            (None, None) => state.bits_set += unite(words, others),
        }
        let bits = target.division().shape(shard).shard_bits();
        state.keys_added = match target.aging {
            None => keys_of_union(bits, fill(before), fill(other), state.bits_set),
            // Of those that are too old by now no bits tell.
            Some(_) => before.keys_added.max(other.keys_added),
        };
        state.version = state.version.max(self.version);
        state
    }
}

fn fill(state: ShardState) -> Fill {
    Fill {
        bits_set: state.bits_set,
        keys: state.keys_added,
    }
}

impl GuardedFilter {
    /// Lets through what a merge of another filter into this one makes sense of.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`], with what differs.
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
            (
                "where a key has its counters or stamps (one was made before format 7 of snapshots)",
                own.cell_lines != other.cell_lines,
            ),
            (
                "number of shards (one was made before format 8 of snapshots)",
                own.shard_count != other.shard_count,
            ),
            (
                "layers",
                own.chain != other.chain || own.layers != other.layers,
            ),
            // Keys of other programs' filters are hashed without one.
            (
                "secret",
                self.array.is_none() && self.secret != source.secret,
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

    /// Takes all keys of another filter, which [can be merged](Self::check_mergeable) into this one:
    /// those that are stored of it. `false` if this one has been deleted. There is to be room for a
    /// record without keys, if there is a log. Blocks until the keys are on stable storage. Locks one
    /// shard (and its neighbours behind the same lock) at a time.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; nothing has been taken then. [`EngineError::NotDurable`]; all of it may have
    /// been taken, some of it, or nothing, now and after a crash.
    pub fn merge(
        &self,
        source: &FilterReader,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        room: Option<Room<'_>>,
        mut turn: Turn,
    ) -> Result<bool, EngineError> {
        let Presence::Present { files, .. } = &mut *turn.presence else {
            return Ok(false);
        };
        let _expected = match &self.layered {
            Some(layered) => Some(self.expect(layered, source)?),
            None => None,
        };
        let stored = *self.last_store.lock();
        // As a snapshot is begun.
        let segment = self.log.as_ref().map_or(0, FilterLog::segment);
        let version = self.versions.next_settled();
        // Before anything is waited for: no later version is durable without it.
        if let (Some(log), Some(mut room)) = (&self.log, room) {
            let counted = self.counting.as_ref();
            let head = RecordHead {
                counted: counted.map(|counting| counting.counted(Direction::Up)),
                ..self.record_head(None, version)
            };
            log.append(&mut room, &head, 0, iter::empty());
        }
        barrier.wait_for_writes();
        let begin = (version, segment);
        let mut addition = Addition::new(self, source, version);
        self.write_snapshot(directory, files, begin, stored, Some(&mut addition))?;
        let taken = addition.add_to_memory();
        if let Some(array) = &self.array {
            array.recount();
        }
        taken.map_err(|error| StoreError::InDoubt(error.into()))?;
        Ok(true)
    }

    /// Has the layers be ready for what is stored of another filter.
    fn expect<'a>(
        &self,
        layered: &'a Layered,
        source: &FilterReader,
    ) -> Result<Expectation<'a>, EngineError> {
        let coming = Coming::find(layered, source)?;
        let name = &source.header().name;
        let mapped = layered.partitions.mapped();
        let expected = coming.expect(layered);
        self.tell_of_growth(layered, mapped, None);
        expected.map_err(|why| match why {
            Unfit::Full(why) => EngineError::NoRoomToMerge {
                source_name: name.clone(),
                target: self.name(),
                why,
            },
            Unfit::Overfull => self.not_mergeable(name, OVERFULL.to_owned()),
        })
    }
}
