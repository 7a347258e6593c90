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

mod tally;

use std::sync::atomic::{AtomicU64, Ordering};

use self::tally::Tally;
use super::{
    Answer, GuardedFilter, WriteContext, body::Sharded, hashed_key::HashedKey, shard::Shard,
};
use crate::{
    engine::call::Action,
    filter::{
        counting::{self, Step, Stepper},
        hash::KeyHash,
    },
    planted::Bug,
    store::{Counted, Direction, RecordKind},
};

/// The additional state of a filter that counts.
#[derive(Debug)]
pub(super) struct Counting {
    pub sharded: Sharded,
    /// See [`Counted::since`].
    pub since: u64,
    /// The number of counters that have reached their greatest value.
    saturated: AtomicU64,
}

/// The replay of one record: counts its keys, with its version.
struct Replay<'a> {
    counting: &'a Counting,
    direction: Direction,
    version: u64,
}

impl Stepper<Shard> for Replay<'_> {
    #[inline(always)]
    fn step(&self, _: KeyHash) -> Step {
        match self.direction {
            Direction::Up => Step::Add,
            Direction::Down => Step::Remove,
        }
    }

    #[inline(always)]
    fn done(
        &mut self,
        _: usize,
        _: KeyHash,
        shard: &mut Shard,
        change: Option<counting::CountEffect>,
    ) {
        if let Some(change) = change {
            self.counting
                .note(shard, self.direction, change, self.version);
        }
    }
}

impl Counting {
    pub fn new(sharded: Sharded) -> Self {
        Self {
            sharded,
            since: 0,
            saturated: AtomicU64::new(0),
        }
    }

    pub fn saturated(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    pub fn add_saturated(&self, counters: u64) {
        if counters > 0 {
            self.saturated.fetch_add(counters, Ordering::Relaxed);
        }
    }

    /// Returns the part of a record's head for counted keys.
    pub fn counted(&self, direction: Direction) -> Counted {
        let since = self.since;
        Counted { direction, since }
    }

    /// Records in the state of a shard the change by a call with `version`.
    #[inline(always)]
    fn note(
        &self,
        shard: &mut Shard,
        direction: Direction,
        change: counting::CountEffect,
        version: u64,
    ) {
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

impl GuardedFilter {
    /// Applies an action to keys, one after the other. Returns for each key whether it was there.
    /// For [`Action::Remove`], returns whether the key was removed. For [`Action::Add`], the values
    /// mean nothing.
    pub(super) fn count_places(
        &self,
        counting: &Counting,
        places: Vec<HashedKey>,
        action: Action,
        change: WriteContext<'_>,
    ) -> Answer<Vec<bool>> {
        let WriteContext {
            reservation,
            session,
            ..
        } = change;
        let mut tally = Tally::new(self, counting, action, session, places.len());
        self.visit_places(&counting.sharded, places, |stripe, first_shard, keys| {
            tally.begin_lock();
            let shards = &mut stripe.write();
            self.shape.take_each(shards, first_shard, keys, &mut tally);
        });
        self.remember(tally.session.as_ref(), tally.counted.iter().copied());
        if let (Some(log), Some(mut reservation)) = (&self.log, reservation) {
            for (version, hashes) in tally.records() {
                let mut head = self.record_head(tally.session.as_ref(), version);
                head.kind = RecordKind::Counted(counting.counted(action.direction()));
                log.append(
                    &mut reservation,
                    &head,
                    hashes.len(),
                    hashes.iter().copied(),
                );
            }
        }
        tally.answer()
    }

    /// Replays the keys of a record that an earlier process has logged, unless they are counted
    /// already. They lie behind one lock.
    pub fn replay_counted(&self, version: u64, direction: Direction, hashes: &[KeyHash]) {
        let Some(counting) = self.body.counting() else {
            return;
        };
        let is_missing = |hash: &&KeyHash| {
            let shard = counting.sharded.shards.read(self.shape.shard(**hash));
            shard.state.version < version || Bug::CountedAgain.is_planted()
        };
        let missing = hashes.iter().filter(is_missing);
        let places = self.placed(missing);
        let mut replay = Replay {
            counting,
            direction,
            version,
        };
        self.visit_places(&counting.sharded, places, |stripe, first_shard, keys| {
            let shards = &mut stripe.write();
            self.shape.take_each(shards, first_shard, keys, &mut replay);
        });
        self.pass_version(version);
    }

    /// Makes sure that the filter does not give out again a version that an earlier process has
    /// given out.
    pub fn pass_version(&self, version: u64) {
        self.versions.pass(version);
    }
}
