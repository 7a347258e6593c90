//! Filters that count, so that keys can be removed.
//!
//! # Who counts what
//!
//! `QueryAndAdd` counts a key that is not there, and leaves one alone that is: so one removal
//! undoes it, however often crawlers have come by. `Add` counts every time, for it may be that a
//! key is found which was never added (a false positive): whoever adds it relies on its being
//! there, also when the keys are removed that it was taken for.
//!
//! # Once, and in order
//!
//! What adds bits may be done again, in any order. To count is not so, and what the log holds is
//! done again after a crash. So here, if there is a log, a version is given out under each lock
//! that a call takes to change something: in every shard versions grow, a shard's version tells
//! exactly which changes it holds, and each version has one record, whose keys lie behind one
//! lock. Without a log a call has one version, as elsewhere.

mod tally;

use std::sync::atomic::{AtomicU64, Ordering};

use self::tally::Tally;
use super::{Answer, Change, GuardedFilter, batch::Place, shards::Shard};
use crate::{
    engine::{EngineError, Keys, call::check_deadline},
    filter::{
        counting::{self, Step, Stepper},
        hash::KeyHash,
    },
    planted::Bug,
    store::{Counted, Direction},
};

/// What a filter that counts has besides.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// See [`Counted::since`].
    pub since: u64,
    /// The counters that have come to their greatest value.
    saturated: AtomicU64,
}

/// What a call does with its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Tells whether they are there, and counts those that are not.
    QueryAndAdd,
    /// Counts them.
    Add,
    /// Counts those down that are there, and tells which.
    Remove,
}

impl Action {
    fn direction(self) -> Direction {
        match self {
            Self::QueryAndAdd | Self::Add => Direction::Up,
            Self::Remove => Direction::Down,
        }
    }
}

/// Counts what a record says, as a version of the filter.
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
    fn done(&mut self, _: usize, _: KeyHash, shard: &mut Shard, change: Option<counting::Change>) {
        if let Some(change) = change {
            self.counting
                .note(shard, self.direction, change, self.version);
        }
    }
}

impl Counting {
    pub fn saturated(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    pub fn add_saturated(&self, counters: u64) {
        if counters > 0 {
            self.saturated.fetch_add(counters, Ordering::Relaxed);
        }
    }

    /// What the log is told of keys that are counted.
    pub fn counted(&self, direction: Direction) -> Counted {
        let since = self.since;
        Counted { direction, since }
    }

    /// Notes what a call of a version did to a shard.
    #[inline(always)]
    fn note(
        &self,
        shard: &mut Shard,
        direction: Direction,
        change: counting::Change,
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
    /// Takes the keys out that are there. Tells of each whether it was taken out.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotCounting`].
    pub fn remove_batch(
        &self,
        keys: &impl Keys,
        change: Change<'_>,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        let counting = self.counting()?;
        let places = self.places(keys);
        check_deadline(change.deadline)?;
        Ok(self.count_places(counting, places, Action::Remove, change))
    }

    pub(super) fn counting(&self) -> Result<&Counting, EngineError> {
        let name = || self.name();
        let counting = self.counting.as_ref();
        counting.ok_or_else(|| EngineError::NotCounting { name: name() })
    }

    /// Does something with one key.
    pub(super) fn count(
        &self,
        counting: &Counting,
        hash: KeyHash,
        action: Action,
        change: Change<'_>,
    ) -> Answer<bool> {
        let places = vec![self.place(0, hash)];
        let answer = self.count_places(counting, places, action, change);
        answer.map(|told| told.first() == Some(&true))
    }

    /// Does something with keys, one after the other. Tells of each whether it was there or, of
    /// those to be removed, whether it was taken out; of those to be added nothing.
    pub(super) fn count_places(
        &self,
        counting: &Counting,
        places: Vec<Place>,
        action: Action,
        change: Change<'_>,
    ) -> Answer<Vec<bool>> {
        let Change { room, turn, .. } = change;
        let mut tally = Tally::new(self, counting, action, turn, places.len());
        self.visit_places(places, |stripe, first_shard, keys| {
            tally.begin_lock();
            let shards = &mut stripe.write();
            self.shape.take_each(shards, first_shard, keys, &mut tally);
        });
        self.remember(tally.turn.as_ref(), tally.counted.iter().copied());
        if let (Some(log), Some(mut room)) = (&self.log, room) {
            for (version, hashes) in tally.records() {
                let mut head = self.record_head(tally.turn.as_ref(), version);
                head.counted = Some(counting.counted(action.direction()));
                log.append(&mut room, &head, hashes.len(), hashes.iter().copied());
            }
        }
        tally.answer()
    }

    /// Counts the keys of a record that an earlier process has logged, as far as that is not done
    /// yet. They lie behind one lock.
    pub fn replay_counted(&self, version: u64, direction: Direction, hashes: &[KeyHash]) {
        let Some(counting) = &self.counting else {
            return;
        };
        let is_missing = |hash: &&KeyHash| {
            let shard = self.shards.read(self.shape.shard(**hash));
            shard.state.version < version || Bug::CountedAgain.is_planted()
        };
        let missing = hashes.iter().filter(is_missing);
        let places = self.placed(missing);
        let mut replay = Replay {
            counting,
            direction,
            version,
        };
        self.visit_places(places, |stripe, first_shard, keys| {
            let shards = &mut stripe.write();
            self.shape.take_each(shards, first_shard, keys, &mut replay);
        });
        self.pass_version(version);
    }

    /// Has the filter give out no version again that an earlier process has given out.
    pub fn pass_version(&self, version: u64) {
        self.versions.pass(version);
    }
}
