//! A filter that takes the keys of another: the union of their bits.
//!
//! # On stable storage first
//!
//! What calls add is in the log before it is acknowledged; the bits of another filter are not. If
//! they came into memory first, a key that is found among them could be told to be seen, or be
//! taken for added, and be gone after a crash. So the union comes to the disk before anybody sees
//! it: a snapshot is written of what the shards hold and what they are to get, and becomes the
//! filter's in one step of the manifest. Then what it holds is read back, shard by shard, and comes
//! to those in memory, whatever has been added to them meanwhile. A crash after the step finds the
//! union, one before finds nothing of it.
//!
//! The merge is one change of one version. It is given out between calls, like that of a snapshot,
//! and needs no record in the log: nothing rests on it before it is on stable storage.

use std::thread;

use super::{
    GuardedFilter,
    snapshots::{Presence, Turn},
};
use crate::{
    engine::{EngineError, gate::Gate, journal::FilterLog},
    filter::{
        spec::Kind,
        union::{Fill, keys_of_union, unite},
    },
    store::{DataDirectory, ShardState, StoreError},
};

/// What shards of a snapshot get from another filter.
#[derive(Debug)]
pub(super) struct Addition<'a> {
    source: &'a GuardedFilter,
    target: &'a GuardedFilter,
    /// That of the merge.
    version: u64,
    /// The bits of a shard in the snapshot, and how many keys that are taken to have been added.
    added: Vec<(usize, u64)>,
    /// The latest version of what has been taken.
    latest: u64,
    words: Vec<u64>,
}

impl<'a> Addition<'a> {
    fn new(source: &'a GuardedFilter, target: &'a GuardedFilter, version: u64) -> Self {
        Self {
            source,
            target,
            version,
            added: Vec::new(),
            latest: 0,
            words: vec![0; source.shape.shard_words()],
        }
    }

    /// Whether there is anything for a shard.
    pub fn has(&self, shard: usize) -> bool {
        self.source.shards.read(shard).state.bits_set > 0
    }

    /// Adds to the words of a shard what there is for it. To be called with no lock held.
    pub fn add(&mut self, shard: usize, words: &mut [u64], state: &mut ShardState) {
        let from = {
            let from = self.source.shards.read(shard);
            if from.state.bits_set == 0 {
                return;
            }
            self.words.copy_from_slice(&from.words);
            from.state
        };
        self.latest = self.latest.max(from.version);
        let before = *state;
        let other = (from, &mut *self.words);
        *state = self.target.unite((before, words), self.source, other);
        let bits = self.source.shape.shard_bits();
        state.keys_added = match self.source.aging {
            None => keys_of_union(bits, fill(before), fill(from), state.bits_set),
            // Of those that are too old by now no bits tell.
            Some(_) => before.keys_added.max(from.keys_added),
        };
        state.version = state.version.max(self.version);
        let keys = state.keys_added.saturating_sub(before.keys_added);
        self.added.push((shard, keys));
    }

    /// Waits until all that has been taken is on stable storage where it was taken from, as far
    /// as there is a log: nobody finds a key here that a crash takes from there.
    pub fn flush(&self) -> Result<(), String> {
        let log = self.source.log.as_ref();
        log.map_or(Ok(()), |log| log.flush(self.latest))
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
            ("layers", own.chain != other.chain),
            // Keys of other programs' filters are hashed without one.
            (
                "secret",
                self.array.is_none() && self.secret != source.secret,
            ),
        ];
        let names = differences.iter().filter(|(_, differs)| *differs);
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        let reason = match (&*names, own.kind) {
            ([], Kind::Plain | Kind::Aging(_)) => return Ok(()),
            ([], Kind::Counting) => "they count their keys, and none could be removed as often as \
                                     it was added"
                .to_owned(),
            ([], Kind::Scaling(_)) => "each has grown in its own way, and keys of one layer \
                                       cannot be found in another"
                .to_owned(),
            (names, _) => format!(
                "they differ in {}, so their bits mean other keys; a filter can be merged with its \
                 copies",
                names.join(", ")
            ),
        };
        Err(EngineError::NotMergeable {
            source_name: source.name(),
            target: self.name(),
            reason,
        })
    }

    /// Takes all keys of another filter, which [can be merged](Self::check_mergeable) into this one:
    /// those that it had before this was called. `false` if this one has been deleted. Blocks until
    /// they are on stable storage. Locks one shard of one filter (and its neighbours behind the
    /// same lock) at a time.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing has been taken then. [`StoreError::InDoubt`]; all of it may have been
    /// taken, some of it, or nothing, now and after a crash.
    pub fn merge(
        &self,
        source: &Self,
        directory: &DataDirectory,
        gate: &Gate,
        mut turn: Turn,
    ) -> Result<bool, StoreError> {
        let Presence::Present { files, .. } = &mut *turn.presence else {
            return Ok(false);
        };
        let stored = *self.last_store.lock();
        let segment = || self.log.as_ref().map_or(0, FilterLog::segment);
        let begin = gate.between_calls(|| (self.next_version(), segment()));
        let (version, _) = begin;
        if let Some(log) = &self.log {
            log.pass(version);
        }
        let mut addition = Addition::new(source, self, version);
        self.write(directory, files, begin, stored, Some(&mut addition))?;
        let taken = self.take_stored(directory, &addition);
        taken
            .map(|()| true)
            .map_err(|error| StoreError::InDoubt(error.into()))
    }

    /// Adds to the words of a shard those of the same shard of another filter.
    fn unite(
        &self,
        (state, words): (ShardState, &mut [u64]),
        source: &Self,
        (other, others): (ShardState, &mut [u64]),
    ) -> ShardState {
        match (&self.aging, &source.aging) {
            (Some(own), Some(its)) => own.unite((state, words), its, (other, others)),
            _ => ShardState {
                bits_set: state.bits_set + unite(words, others),
                ..state
            },
        }
    }

    /// Adds to the shards in memory what their snapshot has got.
    fn take_stored(
        &self,
        directory: &DataDirectory,
        addition: &Addition<'_>,
    ) -> Result<(), StoreError> {
        let Some(stored) = directory.read_filter(&self.name())? else {
            return Ok(());
        };
        let mut words = vec![0; self.shape.shard_words()];
        for &(shard, keys) in &addition.added {
            let stored = stored.read_shard(shard, &mut words, &mut Err)?;
            let mut shard = self.shards.write(shard);
            let before = shard.state;
            shard.state = self.unite((before, &mut shard.words), self, (stored, &mut words));
            let state = &mut shard.state;
            state.keys_added += keys;
            if self.aging.is_none() {
                // Some of them may have been added meanwhile.
                state.keys_added = state.keys_added.min(state.bits_set);
            }
            state.version = state.version.max(addition.version);
            drop(shard);
            thread::yield_now();
        }
        if let Some(array) = &self.array {
            array.recount();
        }
        Ok(())
    }
}
