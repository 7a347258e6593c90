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
//! done again after a crash. So here a version is given out under each lock that a call takes to
//! change something: in every shard versions grow, a shard's version tells exactly which changes
//! it holds, and each version has one record, whose keys lie behind one lock.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    Answer, Change, GuardedFilter,
    batch::{Place, set},
    shards::Shard,
};
use crate::{
    engine::{EngineError, Keys, journal::FilterLog},
    filter::{
        counting::{self, Step},
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

/// What a call has counted under one lock, as one version of the filter.
struct Group {
    version: u64,
    /// Where its keys end among those that the call has counted.
    end: usize,
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

    /// Notes what a call of a version did to a shard.
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
        state.version = version;
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
        Ok(self.count_places(counting, self.places(keys), Action::Remove, change))
    }

    pub(super) fn counting(&self) -> Result<&Counting, EngineError> {
        let name = || self.name();
        let counting = self.counting.as_ref();
        counting.ok_or_else(|| EngineError::NotCounting { name: name() })
    }

    /// The most versions that a call with so many keys gives the filter. Where they are counted, one
    /// for each stripe that they lie in, and more where they are more than a record has; where they
    /// age, one for what is new and one for what is not.
    pub fn versions_of_a_call(&self, keys: usize) -> usize {
        if !self.counts() {
            return if self.aging.is_some() { 2 } else { 1 };
        }
        let record = self.log.as_ref().map(FilterLog::hashes_of_a_record);
        let full = record.map_or(0, |hashes| keys / hashes);
        keys.min(self.shards.stripes().len() + full)
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
        let log = self.log.as_ref();
        let most = log.map_or(usize::MAX, FilterLog::hashes_of_a_record);
        let direction = action.direction();
        let mut told = vec![false; places.len()];
        // Nobody has a use for them where they are neither logged nor remembered.
        let keeps_hashes = log.is_some() || turn.is_some();
        let (mut counted, mut groups): (Vec<KeyHash>, Vec<Group>) = Default::default();
        let mut rests_on = 0;
        let turn = RefCell::new(turn);
        // What a request has done before is done. A key that stands in its batch twice was counted
        // twice, under one lock.
        let is_done = |hash| {
            let turn = turn.borrow();
            turn.as_ref().is_some_and(|turn| turn.has_ever_won(hash))
        };
        let decide = |hash| match action {
            Action::QueryAndAdd => Step::AddNew,
            // It is there then, but for one that was removed meanwhile.
            Action::Add if is_done(hash) => Step::AddNew,
            Action::Add => Step::Add,
            Action::Remove if is_done(hash) => Step::Leave,
            Action::Remove => Step::Remove,
        };
        self.visit_places(places, |stripe, first_shard, keys| {
            let (mut version, mut begin) = (0, counted.len());
            let tell = |(key, hash), shard: &mut Shard, change: Option<counting::Change>| {
                rests_on = shard.state.version.max(rests_on);
                let answer = match action {
                    Action::QueryAndAdd => {
                        let mut turn = turn.borrow_mut();
                        let has_won = turn.as_mut().map(|turn| turn.has_won(hash));
                        change.is_none() && has_won != Some(true)
                    }
                    Action::Add => false,
                    Action::Remove => change.is_some() || is_done(hash),
                };
                set(&mut told, key, answer);
                let Some(change) = change else { return };
                if version == 0 || counted.len() - begin == most {
                    (version, begin) = (self.next_version(), counted.len());
                    let end = begin;
                    groups.push(Group { version, end });
                }
                if keeps_hashes {
                    counted.push(hash);
                }
                if let Some(group) = groups.last_mut() {
                    group.end = counted.len();
                }
                counting.note(shard, direction, change, version);
            };
            let shards = &mut stripe.write();
            self.shape
                .take_each(shards, first_shard, keys, decide, tell);
        });
        let turn = turn.into_inner();
        if let Some(last) = groups.last() {
            rests_on = last.version.max(rests_on);
            self.remember(turn.as_ref(), counted.iter().copied());
        }
        if let (Some(log), Some(mut room)) = (log, room) {
            let mut left = counted.as_slice();
            for Group { version, end } in groups {
                let begin = counted.len() - left.len();
                let (hashes, behind) = left.split_at(end - begin);
                left = behind;
                let mut head = self.record_head(turn.as_ref(), version);
                let since = counting.since;
                head.counted = Some(Counted { direction, since });
                log.append(&mut room, &head, hashes.len(), hashes.iter().copied());
            }
        }
        Answer {
            value: told,
            rests_on,
        }
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
        let step = match direction {
            Direction::Up => Step::Add,
            Direction::Down => Step::Remove,
        };
        self.visit_places(places, |stripe, first_shard, keys| {
            let tell = |_, shard: &mut Shard, change: Option<counting::Change>| {
                if let Some(change) = change {
                    counting.note(shard, direction, change, version);
                }
            };
            let shards = &mut stripe.write();
            self.shape
                .take_each(shards, first_shard, keys, |_| step, tell);
        });
        self.pass_version(version);
    }

    /// Has the filter give out no version again that an earlier process has given out.
    pub fn pass_version(&self, version: u64) {
        self.version.fetch_max(version, Ordering::AcqRel);
    }
}
