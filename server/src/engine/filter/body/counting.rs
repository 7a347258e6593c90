//! Filters that count, so that keys can be removed.
//!
//! # Which calls count a key
//!
//! `QueryAndAdd` counts a key only if it is not there. So one removal undoes it, however often
//! crawlers have come by. `Add` counts a key every time, because the key can be a false positive:
//! it is found, but was never added. The caller of `Add` relies on the key being there, even after
//! the keys that set its bits are removed.
//!
//! # Once, and in order
//!
//! Setting bits can be repeated, in any order. Counting cannot, and recovery replays the log after
//! a crash. So if there is a log, a call gets a version under each lock that it takes to change
//! something. In every shard versions grow. So a shard's version shows exactly which changes it
//! holds. Each version has one record, whose keys lie behind one lock. Without a log a call has one
//! version, as in other filters.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    Body,
    content::Content,
    group::Group,
    sharded::{Sharded, asks_whether_bits_are_set, in_one_shard, whole_in_shards},
    tally::Tally,
    whole::{KeyBits, Whole, united},
};
use crate::{
    engine::{
        call::Action,
        error::Full,
        filter::{Filter, mapping::Cache, records::full_locks, shard::Shard, stripes::Stripe},
    },
    filter::{
        cells::Values,
        counters::{self, CountEffect, Counters, Step, Stepper},
        format::Format,
        hash::KeyHash,
        key_set::KeySet,
        spec::FilterSpec,
    },
    planted::Bug,
    store::{Counted, Direction, RecordHead, RecordKind, ShardState},
};

/// The counters of a filter.
#[derive(Debug)]
pub struct Counting {
    pub sharded: Sharded<Counters>,
    /// See [`Counted::since`].
    since: u64,
    /// The number of counters that have reached their greatest value.
    saturated: AtomicU64,
}

impl Counting {
    pub fn new(sharded: Sharded<Counters>) -> Self {
        Self {
            sharded,
            since: 0,
            saturated: AtomicU64::new(0),
        }
    }

    /// Returns the part of a record's head for counted keys.
    fn counted(&self, direction: Direction) -> Counted {
        let since = self.since;
        Counted { direction, since }
    }

    /// Records in the state of a shard the change by a call with `version`.
    #[inline(always)]
    fn note(&self, shard: &mut Shard, direction: Direction, change: CountEffect, version: u64) {
        let (bits, keys) = (u64::from(change.bits), u64::from(change.bits > 0));
        let state = &mut shard.state;
        match direction {
            Direction::Up => {
                state.bits_set += bits;
                state.keys_added += keys;
            }
            Direction::Down => {
                state.bits_set -= bits;
                // Which keys were new is a guess where false positives were added.
                state.keys_added = state.keys_added.saturating_sub(keys).min(state.bits_set);
            }
        }
        state.version = state.version.max(version);
        self.add_saturated(change.saturated.into());
    }
}

impl Body for Counting {
    type Tag = ();
    type Replay = Step;

    const HAS_VERSION_PER_LOCK: bool = true;
    const ABSENCE_DEPENDS: bool = true;

    in_one_shard!();
    asks_whether_bits_are_set!();

    #[inline]
    fn apply(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        (): &mut (),
        tally: &mut Tally<'_, '_, Self>,
    ) {
        let mut counter = Counter {
            counting: self,
            tally,
        };
        self.sharded
            .format
            .take_each(&mut stripe.write(), first, keys, &mut counter);
    }

    fn record_kind(&self, action: Action, (): ()) -> RecordKind {
        RecordKind::Counted(self.counted(action.direction()))
    }

    fn begin_replay(&self, head: &RecordHead) -> Result<Option<Step>, Full> {
        Ok(Some(match head.kind {
            RecordKind::Counted(Counted { direction, .. }) => match direction {
                Direction::Up => Step::Add,
                Direction::Down => Step::Remove,
            },
            // Records that were salvaged are not counted.
            RecordKind::Added | RecordKind::AddedAt { .. } | RecordKind::AddedTo { .. } => {
                Step::AddNew
            }
        }))
    }

    /// Counts the keys of a record, unless they are counted already.
    fn replay(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        version: u64,
        &step: &Step,
    ) {
        let Sharded { format, .. } = &self.sharded;
        let mut stripe = stripe.write();
        // Looked at before the first key of the record gives the shard its version.
        let is_missing = |hash| {
            let shard = stripe.get(format.shape().shard(hash) - first);
            shard.is_some_and(|shard| shard.state.version < version)
        };
        let is_missing =
            |hash| step == Step::AddNew || is_missing(hash) || Bug::CountedAgain.is_planted();
        let missing: Vec<bool> = keys.hashes().map(is_missing).collect();
        let missing = keys.zip(missing).filter(|(_, is_missing)| *is_missing);
        let keys = missing.map(|(key, _)| key);
        let mut replay = Replay {
            counting: self,
            step,
            version,
        };
        format.take_each(&mut stripe, first, keys, &mut replay);
    }
}

impl Whole for Counting {
    whole_in_shards!();

    fn note_filled(&self, shard: &Shard) {
        self.add_saturated(self.saturated_in(&shard.words));
    }

    fn content(&self, spec: &FilterSpec) -> Content<'_> {
        self.sharded.content(spec)
    }

    fn explain(&self, hash: KeyHash) -> KeyBits {
        self.sharded.explain(hash, |_| Values::SET)
    }

    fn saturated(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    fn saturated_in(&self, words: &[u64]) -> u64 {
        counters::saturated(words)
    }

    fn add_saturated(&self, counters: u64) {
        if counters > 0 {
            self.saturated.fetch_add(counters, Ordering::Relaxed);
        }
    }

    /// One for each lock that the call takes, and more if its keys exceed one record.
    fn records_of_a_call(&self, keys: usize, record_keys: usize) -> usize {
        let locks = self.sharded.shards.locks().len();
        keys.min(locks + full_locks(keys) + keys / record_keys)
    }

    fn begin_log(&mut self, latest: u64) {
        self.since = latest;
    }

    fn unite(
        &self,
        bits: u64,
        (own, words): (ShardState, &mut [u64]),
        (other, others): (ShardState, &mut [u64]),
    ) -> ShardState {
        let bits_set = own.bits_set + counters::unite(words, others);
        united(bits, own, other, bits_set)
    }

    fn merge_kind(&self) -> RecordKind {
        RecordKind::Counted(self.counted(Direction::Up))
    }
}

/// The steps of a call.
struct Counter<'a, 'b, 'c, 'd> {
    counting: &'a Counting,
    tally: &'b mut Tally<'c, 'd, Counting>,
}

impl Stepper<Shard> for Counter<'_, '_, '_, '_> {
    #[inline(always)]
    fn step(&self, hash: KeyHash) -> Step {
        match self.tally.action() {
            Action::QueryAndAdd => Step::AddNew,
            // The key is there then, unless it was removed meanwhile.
            Action::Add if self.tally.is_done(hash) => Step::AddNew,
            Action::Add => Step::Add,
            Action::Remove if self.tally.is_done(hash) => Step::Leave,
            Action::Remove => Step::Remove,
        }
    }

    #[inline(always)]
    fn done(&mut self, key: usize, hash: KeyHash, shard: &mut Shard, change: Option<CountEffect>) {
        self.tally.depends_on(shard.state.version);
        if let Some(change) = change {
            let version = self.tally.version();
            self.tally.changed((key, hash), ());
            let direction = self.tally.action().direction();
            self.counting.note(shard, direction, change, version);
        }
    }
}

/// The steps of the replay of one record: counts its keys, with its version.
struct Replay<'a> {
    counting: &'a Counting,
    step: Step,
    version: u64,
}

impl Stepper<Shard> for Replay<'_> {
    #[inline(always)]
    fn step(&self, _: KeyHash) -> Step {
        self.step
    }

    #[inline(always)]
    fn done(&mut self, _: usize, _: KeyHash, shard: &mut Shard, change: Option<CountEffect>) {
        if let Some(change) = change {
            let direction = match self.step {
                Step::Remove => Direction::Down,
                Step::Leave | Step::AddNew | Step::Add => Direction::Up,
            };
            self.counting.note(shard, direction, change, self.version);
        }
    }
}

impl Filter {
    /// Makes sure that the filter does not give out again a version that an earlier process has
    /// given out.
    pub fn pass_version(&self, version: u64) {
        self.versions.pass(version);
    }
}
