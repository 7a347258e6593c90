//! Filters whose keys age.
//!
//! Adding a key can be repeated, in any order, as in a plain filter: a stamp is only ever replaced
//! by a younger one. So a call needs no version for each lock. After a crash, recovery replays the
//! log without regard to the content of the snapshots. Each record has the epoch at which its keys
//! were added.
//!
//! # Time
//!
//! A filter's epoch never goes back, neither when the clock does nor over a restart, because
//! snapshots and records hold epochs. A call reads the epoch under the lock of the shard that it
//! stamps. So nobody finds stamps there that are younger than the epoch.
//!
//! If the clock has been set back before the server starts, the filter goes on from the latest time
//! that it finds. This is the time when the last snapshot was begun, in the filter's own time, or
//! the beginning of the latest epoch. Keys then live longer by the time between that and the end of
//! the previous server process. Even a filter whose keys need not be stored must not lose more of
//! its time than a part of a slice: see [`Aging::has_gone_on_since`].

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use super::{
    Answer, GuardedFilter, WriteContext,
    body::{Body, Sharded},
    hashed_key::{HashedKey, answer_again, set},
    one_or_many::OneOrMany,
    shard::Shard,
};
use crate::{
    engine::{Clock, EngineError, call::Action},
    filter::{
        aging::{self, Window},
        cells::Values,
        hash::KeyHash,
        spec,
    },
    store::{RecordHead, RecordKind, ShardState},
};

/// The additional state of a filter whose keys age.
#[derive(Debug)]
pub(super) struct Aging {
    pub sharded: Sharded,
    spec: spec::Aging,
    clock: Clock,
    /// The time by which the filter's time is ahead of the clock.
    ahead: Duration,
    /// The time when the last snapshot was begun, in the filter's time; 0 if there is none.
    stored: Duration,
    /// The current epoch, which is no less than the epoch of any stamp.
    epoch: AtomicU64,
    /// The epoch at which all shards have been cleared.
    cleared: AtomicU64,
}

impl Aging {
    pub fn new(spec: spec::Aging, clock: &Clock, sharded: Sharded) -> Self {
        Self {
            sharded,
            spec,
            clock: clock.clone(),
            ahead: Duration::ZERO,
            stored: Duration::ZERO,
            epoch: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
        }
    }

    /// Reads the clock, and advances the epoch. To be called before a call takes a lock.
    fn look(&self) {
        self.pass(self.spec.epoch(self.clock.now() + self.ahead));
    }

    /// Returns the filter's time: that of the clock, unless it is before the beginning of the
    /// epoch.
    fn time(&self) -> Duration {
        self.look();
        let begun = self.spec.begin(self.epoch());
        begun.max(self.clock.now() + self.ahead)
    }

    /// Records the filter's time at which a snapshot was begun.
    pub fn note_stored(&mut self, time: SystemTime) {
        self.stored = since_1970(time);
    }

    /// Returns whether so much time has passed since a snapshot was begun that another must record
    /// it.
    fn has_gone_on_since(&self, stored: SystemTime) -> bool {
        const SNAPSHOTS_A_SLICE: u32 = 8;
        self.time().saturating_sub(since_1970(stored)) >= self.spec.slice() / SNAPSHOTS_A_SLICE
    }

    /// Advances the epoch to `epoch`, if that is later.
    pub fn pass(&self, epoch: u64) {
        // Checked first, because otherwise all cores would write it.
        if self.epoch() < epoch {
            self.epoch.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Takes over the time of another filter, from which this one has its stamps.
    pub fn follow(&mut self, other: &Self) {
        self.ahead = other.ahead;
        self.pass(other.epoch());
    }

    /// Continues from the latest time that was found, if the clock is before it.
    pub fn go_on(&mut self) {
        let found = self.spec.begin(*self.epoch.get_mut()).max(self.stored);
        self.ahead = found.saturating_sub(self.clock.now());
    }

    /// Returns the number of slices for which a key is there that was added within `max_age`. If
    /// there is no `max_age`, this is as long as the filter remembers the key.
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

    /// Returns the stamps that count in a locked shard.
    fn there(&self, shard: &Shard, slices: u32) -> Values {
        self.window(&shard.state).since(slices)
    }

    /// Returns the window of a shard that is about to be stamped. Clears the shard first if
    /// necessary.
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

    /// Clears stamps that are too old from a shard.
    fn clear(&self, shard: &mut Shard) {
        shard.state = self.cleared(shard.state, &mut shard.words);
    }

    /// Clears stamps that are too old now from the words of a shard, or from a copy of them.
    pub fn cleared(&self, state: ShardState, words: &mut [u64]) -> ShardState {
        Self::cleared_in(self.window(&state), state, words)
    }

    /// Adds the stored words of the same shard of another filter to the words of a shard. Of two
    /// stamps the younger stays. Clears stamps that are too old from both.
    pub fn unite(
        &self,
        (state, words): (ShardState, &mut [u64]),
        (other, others): (ShardState, &mut [u64]),
    ) -> ShardState {
        // The other shard was cleared when it was copied for the disk: no stamp in it is younger.
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

/// The keys that a call has stamped, as one version of the filter.
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
        let Some(aging) = self.body.aging() else {
            let name = self.name();
            return Err(EngineError::NotAging { name });
        };
        let most = aging.spec.max_age;
        if asked.is_zero() || asked > most {
            return Err(EngineError::MaxAge { asked, most });
        }
        Ok(())
    }

    /// Returns the stamps that count in a locked shard; all values if the keys do not age.
    pub(super) fn stamps(&self, shard: &Shard) -> Values {
        match self.body.aging() {
            None => Values::SET,
            Some(aging) => aging.there(shard, aging.spec.slices),
        }
    }

    /// Calls `tell` for each key with whether it is there. All keys lie behind one lock, which the
    /// caller holds.
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

    /// Returns the time. A filter whose keys age has its own time, which does not go back.
    pub(super) fn time(&self) -> SystemTime {
        let since_1970 = self.body.aging().map(Aging::time);
        // A clock that a test drives can return any time.
        let of_aging = since_1970.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time));
        of_aging.unwrap_or_else(SystemTime::now)
    }

    /// Returns whether the keys have aged so much since a snapshot was begun that another is due,
    /// although they have not changed.
    pub(super) fn has_aged_since(&self, stored: SystemTime) -> bool {
        let aging = self.body.aging();
        aging.is_some_and(|aging| aging.has_gone_on_since(stored))
    }

    /// Reads the clock, before a call takes a lock.
    pub(super) fn look_at_clock(&self) {
        if let Some(aging) = self.body.aging() {
            aging.look();
        }
    }

    /// Adds keys, one after the other, and returns for each whether it was there.
    pub(super) fn stamp_places(
        &self,
        aging: &Aging,
        places: Vec<HashedKey>,
        action: Action,
        change: WriteContext<'_>,
    ) -> Answer<Vec<bool>> {
        let WriteContext {
            reservation,
            mut session,
            max_age,
            ..
        } = change;
        let slices = aging.slices(max_age);
        let renews = action == Action::Add || aging.spec.refresh;
        let mut seen = vec![true; places.len()];
        // Only the log and remembered requests need the hashes.
        let keeps_hashes = self.log.is_some() || session.is_some();
        let (mut new, mut renewed, mut depends_on) = (Stamped::default(), Stamped::default(), 0);
        aging.look();
        let places = self.visit_places(&aging.sharded, places, |stripe, first_shard, keys| {
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
                // Inlined, because otherwise the arguments go through memory, where reading them
                // waits for all earlier writes.
                #[inline(always)]
                |(key, hash), shard, change| {
                    if change.is_none_or(|change| !change.is_new) {
                        depends_on = shard.state.version.max(depends_on);
                    }
                    let Some(aging::StampEffect { is_new, bits }) = change else {
                        return;
                    };
                    let stamped = if is_new { &mut new } else { &mut renewed };
                    let version = *stamped.version.get_or_insert_with(|| self.next_version());
                    if keeps_hashes {
                        stamped.hashes.push(hash);
                    }
                    shard.note_stamped(is_new, bits, version);
                    depends_on = version.max(depends_on);
                    if is_new {
                        set(&mut seen, key, false);
                    }
                },
            );
        });
        self.remember(session.as_ref(), new.hashes.iter().copied());
        if let (Some(log), Some(mut reservation)) = (&self.log, reservation) {
            // The request has added the new keys first, and nothing else.
            for (stamped, session) in [(new, session.as_ref()), (renewed, None)] {
                let Some(version) = stamped.version else {
                    continue;
                };
                let head = RecordHead {
                    kind: RecordKind::AddedAt {
                        epoch: aging.epoch(),
                    },
                    ..self.record_head(session, version)
                };
                let hashes = stamped.hashes.iter().copied();
                log.append(&mut reservation, &head, hashes.len(), hashes);
            }
        }
        answer_again(session.as_mut(), &places, &mut seen);
        Answer {
            value: seen,
            depends_on,
        }
    }

    /// Replays keys that an earlier process has hashed. All were added by calls up to `version`, at
    /// `epoch`.
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
        // Keys that are too old by now are not added again.
        let hashes = match age <= aging.spec.slices.into() {
            true => hashes,
            false => &[],
        };
        self.visit_places(
            &aging.sharded,
            self.placed(hashes),
            |stripe, first_shard, keys| {
                let how = |shard: &mut Shard| aging.fit(shard).stamping(epoch, aging.spec.slices);
                let tell = |_, shard: &mut Shard, change: Option<aging::StampEffect>| {
                    if let Some(aging::StampEffect { is_new, bits }) = change {
                        shard.note_stamped(is_new, bits, version);
                    }
                };
                let shards: &mut OneOrMany<Shard> = &mut stripe.write();
                self.shape
                    .stamp_each(shards, first_shard, keys, true, how, tell);
            },
        );
    }

    /// Takes over the time of another filter, from which this one has its stamps.
    pub(super) fn follow(&mut self, other: &Self) {
        if let (Some(own), Some(other)) = (self.body.aging_mut(), other.body.aging()) {
            own.follow(other);
        }
    }

    /// Continues from where the snapshots and the log left the filter.
    pub fn go_on(&mut self) {
        match &mut self.body {
            Body::Aging(aging) => aging.go_on(),
            Body::Layered(layered) => layered.recount(),
            Body::Plain(_) | Body::Counting(_) | Body::Foreign(_) => {}
        }
    }

    /// Clears stamps that are too old from memory, one shard at a time. Calls also clear shards
    /// where they must. If this runs in time, no call has to.
    pub fn clear_old(&self) {
        let Some(aging) = self.body.aging() else {
            return;
        };
        aging.look();
        let epoch = aging.epoch();
        if aging.cleared.load(Ordering::Acquire) >= epoch {
            return;
        }
        for index in 0..self.shape.shard_count() {
            if aging.sharded.shards.read(index).state.cleared < epoch {
                aging.clear(&mut aging.sharded.shards.write(index));
            }
        }
        aging.cleared.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Returns whether a slice has begun since all shards were cleared.
    pub fn has_old(&self) -> bool {
        self.body.aging().is_some_and(|aging| {
            aging.look();
            aging.cleared.load(Ordering::Acquire) < aging.epoch()
        })
    }
}

fn since_1970(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}
