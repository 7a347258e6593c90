//! Filters whose keys age.
//!
//! What adds a key may be done again, in any order, as in a plain filter: a stamp is only ever
//! replaced by a younger one. So a call needs no version for each lock, and what the log holds is
//! done again after a crash without a care for what the snapshots hold; each record says at which
//! epoch its keys were added.
//!
//! # Time
//!
//! A filter's epoch never goes back: not when the clock does, and not over a restart, for snapshots
//! and records hold epochs. It is read under the lock of what is stamped, so nobody finds stamps
//! there that are younger than that. A server that starts with a clock that has been set back goes
//! on from the latest time that it finds: when the last snapshot was begun, which is told in the
//! filter's own time, or the beginning of the latest epoch. So keys live longer by what has passed
//! between that and the end of the server before. That a filter need not be stored for its keys is
//! no reason to lose more of its time than a part of a slice: see [`Aging::has_gone_on_since`].

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use super::{
    Answer, Change, GuardedFilter,
    batch::{Place, answer_again, set},
    counting::Action,
    one_or_many::OneOrMany,
    shards::Shard,
};
use crate::{
    engine::{Clock, EngineError},
    filter::{
        aging::{self, Window},
        cells::Values,
        hash::KeyHash,
        spec,
    },
    store::{RecordHead, ShardState},
};

/// What a filter whose keys age has besides.
#[derive(Debug)]
pub(super) struct Aging {
    spec: spec::Aging,
    clock: Clock,
    /// By how much the filter's time is ahead of the clock.
    ahead: Duration,
    /// When the last snapshot was begun, by the filter's time; 0 if there is none.
    stored: Duration,
    /// No less than that of any stamp.
    epoch: AtomicU64,
    /// The one at which all shards have been cleared.
    cleared: AtomicU64,
}

impl Aging {
    pub fn new(spec: spec::Aging, clock: &Clock) -> Self {
        Self {
            spec,
            clock: clock.clone(),
            ahead: Duration::ZERO,
            stored: Duration::ZERO,
            epoch: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
        }
    }

    /// Looks at the clock. To be done before a call takes a lock.
    fn look(&self) {
        self.pass(self.spec.epoch(self.clock.now() + self.ahead));
    }

    /// The filter's time: that of the clock, if that is not behind.
    fn time(&self) -> Duration {
        self.look();
        let begun = self.spec.begin(self.epoch());
        begun.max(self.clock.now() + self.ahead)
    }

    /// Notes that a snapshot was begun at a time of the filter.
    pub fn note_stored(&mut self, time: SystemTime) {
        self.stored = since_1970(time);
    }

    /// Whether so much time has passed since a snapshot was begun that another is to tell of it.
    fn has_gone_on_since(&self, stored: SystemTime) -> bool {
        const SNAPSHOTS_A_SLICE: u32 = 8;
        self.time().saturating_sub(since_1970(stored)) >= self.spec.slice() / SNAPSHOTS_A_SLICE
    }

    /// Notes that it is an epoch, or a later one.
    pub fn pass(&self, epoch: u64) {
        // Or all cores would write it.
        if self.epoch() < epoch {
            self.epoch.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Has time be the same as for another filter, from which this one has its stamps.
    pub fn follow(&mut self, other: &Self) {
        self.ahead = other.ahead;
        self.pass(other.epoch());
    }

    /// Has time go on from the latest that was found, should the clock be behind that.
    pub fn go_on(&mut self) {
        let found = self.spec.begin(*self.epoch.get_mut()).max(self.stored);
        self.ahead = found.saturating_sub(self.clock.now());
    }

    /// For how many slices a key is there that was added within an age; for as long as the filter
    /// remembers it if none is given.
    fn slices(&self, max_age: Option<Duration>) -> u32 {
        max_age.map_or(self.spec.slices, |age| self.spec.slices_of(age))
    }

    fn window(&self, state: &ShardState) -> Window {
        Window {
            cleared: state.cleared,
            now: self.epoch(),
            slices: self.spec.slices,
        }
    }

    /// The stamps that count in a shard, which is locked.
    fn there(&self, shard: &Shard, slices: u32) -> Values {
        self.window(&shard.state).since(slices)
    }

    /// That of a shard which is about to be stamped, and is cleared first if it must be.
    fn fit(&self, shard: &mut Shard) -> Window {
        let window = self.window(&shard.state);
        if window.is_fit() {
            return window;
        }
        self.clear(shard);
        Window {
            now: shard.state.cleared,
            ..self.window(&shard.state)
        }
    }

    /// Clears a shard of what is too old.
    fn clear(&self, shard: &mut Shard) {
        shard.state = self.cleared(shard.state, &mut shard.words);
    }

    /// Clears the words of a shard of what is too old now, or a copy of them.
    pub fn cleared(&self, state: ShardState, words: &mut [u64]) -> ShardState {
        Self::cleared_in(self.window(&state), state, words)
    }

    /// Adds to the words of a shard those of the same shard of another filter, as they are stored:
    /// of two stamps the younger stays. Both are cleared.
    pub fn unite(
        &self,
        (state, words): (ShardState, &mut [u64]),
        (other, others): (ShardState, &mut [u64]),
    ) -> ShardState {
        // It was cleared when it was copied for the disk: no stamp is younger.
        self.pass(other.cleared);
        let now = self.epoch();
        let window = |state: &ShardState| Window {
            now,
            ..self.window(state)
        };
        let state = Self::cleared_in(window(&state), state, words);
        Self::cleared_in(window(&other), other, others);
        ShardState {
            bits_set: state.bits_set + aging::unite(words, others, now),
            ..state
        }
    }

    fn cleared_in(mut window: Window, state: ShardState, words: &mut [u64]) -> ShardState {
        let bits_set = match state.bits_set {
            // Memory that has not been touched stays so.
            0 => {
                window.cleared = window.now;
                0
            }
            _ => window.clear(words),
        };
        ShardState {
            bits_set,
            cleared: window.cleared,
            ..state
        }
    }
}

/// Keys that a call has stamped, as one version of the filter.
#[derive(Default)]
struct Stamped {
    version: Option<u64>,
    hashes: Vec<KeyHash>,
}

impl GuardedFilter {
    /// Checks the age that a call asks for.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotAging`] or [`EngineError::MaxAge`].
    pub fn check_age(&self, max_age: Option<Duration>) -> Result<(), EngineError> {
        let Some(asked) = max_age else { return Ok(()) };
        let Some(aging) = &self.aging else {
            let name = self.name();
            return Err(EngineError::NotAging { name });
        };
        let most = aging.spec.max_age;
        if asked.is_zero() || asked > most {
            return Err(EngineError::MaxAge { asked, most });
        }
        Ok(())
    }

    /// The stamps that count in a shard, which is locked; all, where there are none.
    pub(super) fn stamps(&self, shard: &Shard) -> Values {
        match &self.aging {
            None => Values::SET,
            Some(aging) => aging.there(shard, aging.spec.slices),
        }
    }

    /// Whether keys that lie behind one lock, which is held, are there.
    pub(super) fn are_there(
        &self,
        aging: &Aging,
        shards: &[Shard],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        max_age: Option<Duration>,
        tell: impl FnMut(usize, &Shard, bool),
    ) {
        let slices = aging.slices(max_age);
        let there = |shard: &Shard| aging.there(shard, slices);
        self.shape
            .contains_stamped(shards, first_shard, keys, there, tell);
    }

    /// What time it is; for a filter whose keys age, by its own time, which does not go back.
    pub(super) fn time(&self) -> SystemTime {
        let since_1970 = self.aging.as_ref().map(Aging::time);
        // A clock that a test drives may tell any time.
        let of_aging = since_1970.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
        of_aging.unwrap_or_else(SystemTime::now)
    }

    /// Whether the keys have aged since a snapshot was begun, so that it is to be followed by
    /// another although they have not changed.
    pub(super) fn has_aged_since(&self, stored: SystemTime) -> bool {
        let aging = self.aging.as_ref();
        aging.is_some_and(|aging| aging.has_gone_on_since(stored))
    }

    /// Looks at the clock, before a call takes a lock.
    pub(super) fn look_at_clock(&self) {
        if let Some(aging) = &self.aging {
            aging.look();
        }
    }

    /// Adds one key, and tells whether it was there.
    pub(super) fn stamp(
        &self,
        aging: &Aging,
        hash: KeyHash,
        action: Action,
        change: Change<'_>,
    ) -> Answer<bool> {
        let places = vec![self.place(0, hash)];
        let answer = self.stamp_places(aging, places, action, change);
        answer.map(|seen| seen.first() == Some(&true))
    }

    /// Adds keys, one after the other, and tells of each whether it was there.
    pub(super) fn stamp_places(
        &self,
        aging: &Aging,
        places: Vec<Place>,
        action: Action,
        change: Change<'_>,
    ) -> Answer<Vec<bool>> {
        let Change {
            room,
            mut turn,
            max_age,
            ..
        } = change;
        let slices = aging.slices(max_age);
        let renews = action == Action::Add || aging.spec.refresh;
        let mut seen = vec![true; places.len()];
        // Nobody has a use for them where they are neither logged nor remembered.
        let keeps_hashes = self.log.is_some() || turn.is_some();
        let (mut new, mut renewed, mut rests_on) = (Stamped::default(), Stamped::default(), 0);
        aging.look();
        let places = self.visit_places(places, |stripe, first_shard, keys| {
            let shards = &mut stripe.write();
            let how = |shard: &mut Shard| {
                let window = aging.fit(shard);
                window.stamping(window.now, slices)
            };
            self.shape.stamp_each(
                shards,
                first_shard,
                keys,
                renews,
                how,
                // Or what is told goes by way of memory, where reading it waits for all that was
                // written before.
                #[inline(always)]
                |(key, hash), shard, change| {
                    if change.is_none_or(|change| !change.is_new) {
                        rests_on = shard.state.version.max(rests_on);
                    }
                    let Some(aging::Change { is_new, bits }) = change else {
                        return;
                    };
                    let stamped = if is_new { &mut new } else { &mut renewed };
                    let version = *stamped.version.get_or_insert_with(|| self.next_version());
                    if keeps_hashes {
                        stamped.hashes.push(hash);
                    }
                    shard.note_stamped(is_new, bits, version);
                    rests_on = version.max(rests_on);
                    if is_new {
                        set(&mut seen, key, false);
                    }
                },
            );
        });
        self.remember(turn.as_ref(), new.hashes.iter().copied());
        if let (Some(log), Some(mut room)) = (&self.log, room) {
            // A request has won what was new to it, and nothing else.
            for (stamped, turn) in [(new, turn.as_ref()), (renewed, None)] {
                let Some(version) = stamped.version else {
                    continue;
                };
                let head = RecordHead {
                    epoch: Some(aging.epoch()),
                    ..self.record_head(turn, version)
                };
                let hashes = stamped.hashes.iter().copied();
                log.append(&mut room, &head, hashes.len(), hashes);
            }
        }
        answer_again(turn.as_mut(), &places, &mut seen);
        Answer {
            value: seen,
            rests_on,
        }
    }

    /// Adds keys that an earlier process has hashed, all in calls up to a version and at an epoch.
    pub(super) fn replay_stamped(
        &self,
        aging: &Aging,
        version: u64,
        epoch: u64,
        hashes: &[KeyHash],
    ) {
        aging.pass(epoch);
        aging.look();
        let age = aging.epoch().saturating_sub(epoch);
        // What is forgotten is not added again.
        let hashes = match age <= aging.spec.slices.into() {
            true => hashes,
            false => &[],
        };
        self.visit_places(self.placed(hashes), |stripe, first_shard, keys| {
            let how = |shard: &mut Shard| aging.fit(shard).stamping(epoch, aging.spec.slices);
            let tell = |_, shard: &mut Shard, change: Option<aging::Change>| {
                if let Some(aging::Change { is_new, bits }) = change {
                    shard.note_stamped(is_new, bits, version);
                }
            };
            let shards: &mut OneOrMany<Shard> = &mut stripe.write();
            self.shape
                .stamp_each(shards, first_shard, keys, true, how, tell);
        });
    }

    /// Has time be the same as for another filter, from which this one has its stamps.
    pub(super) fn follow(&mut self, other: &Self) {
        if let (Some(own), Some(other)) = (&mut self.aging, &other.aging) {
            own.follow(other);
        }
    }

    /// Has the filter go on from where the snapshots and the log left it.
    pub fn go_on(&mut self) {
        if let Some(aging) = &mut self.aging {
            aging.go_on();
        }
        if let Some(layered) = &mut self.layered {
            layered.count();
        }
    }

    /// Clears the memory of what is too old, one shard at a time. Calls do so where they must;
    /// done in time, none has to.
    pub fn clear_old(&self) {
        let Some(aging) = &self.aging else { return };
        aging.look();
        let epoch = aging.epoch();
        if aging.cleared.load(Ordering::Acquire) >= epoch {
            return;
        }
        for index in 0..self.shape.shard_count() {
            if self.shards.read(index).state.cleared < epoch {
                aging.clear(&mut self.shards.write(index));
            }
        }
        aging.cleared.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Whether a slice has begun since all was cleared.
    pub fn has_old(&self) -> bool {
        self.aging.as_ref().is_some_and(|aging| {
            aging.look();
            aging.cleared.load(Ordering::Acquire) < aging.epoch()
        })
    }
}

fn since_1970(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}
