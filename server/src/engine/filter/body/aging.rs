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
//! its time than a part of a slice: see [`Whole::has_gone_on_since`].

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use super::{
    Body,
    content::Content,
    group::Group,
    sharded::{Sharded, in_one_shard, whole_in_shards},
    tally::Tally,
    whole::{ClockState, KeyBits, Whole},
};
use crate::{
    engine::{
        call::Action,
        clock::Clock,
        error::Full,
        filter::{mapping::Cache, shard::Shard, stripes::Stripe},
    },
    filter::{
        cells::Values,
        format::Format,
        hash::KeyHash,
        spec::{self, FilterSpec},
        stamps::{self, StampEffect, Stamps, Window},
    },
    store::{RecordHead, RecordKind, ShardState},
};

/// The stamps of a filter whose keys age.
#[derive(Debug)]
pub struct Aging {
    pub sharded: Sharded<Stamps>,
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
    pub fn new(spec: spec::Aging, clock: &Clock, sharded: Sharded<Stamps>) -> Self {
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
    fn now(&self) -> Duration {
        self.look();
        let begun = self.spec.begin(self.epoch());
        begun.max(self.clock.now() + self.ahead)
    }

    /// Advances the epoch to `epoch`, if that is later.
    fn pass(&self, epoch: u64) {
        // Checked first, because otherwise all cores would write it.
        if self.epoch() < epoch {
            self.epoch.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
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
    fn cleared(&self, state: ShardState, words: &mut [u64]) -> ShardState {
        Self::cleared_in(self.window(&state), state, words)
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

/// The parameters of one call.
pub struct Call {
    /// The number of slices for which a key is there.
    slices: u32,
    /// Whether keys that are there are stamped again.
    renews: bool,
}

/// The effect of a call on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stamped {
    /// The key was not there.
    New,
    /// The key was there, and got a younger stamp.
    Renewed,
}

impl Body for Aging {
    type Call = Call;
    type Tag = Stamped;
    /// The epoch at which the keys were added.
    type Replay = u64;

    in_one_shard!();

    fn begin_query(&self, max_age: Option<Duration>) -> Call {
        self.begin_write(Action::QueryAndAdd, max_age)
    }

    fn begin_write(&self, action: Action, max_age: Option<Duration>) -> Call {
        self.look();
        Call {
            slices: self.slices(max_age),
            renews: action == Action::Add || self.spec.refresh,
        }
    }

    #[inline]
    fn probe(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        &Call { slices, .. }: &Call,
        mut found: impl FnMut(usize, u64, bool),
    ) {
        let there = |shard: &Shard| self.there(shard, slices);
        self.sharded.format.contains_stamped(
            &stripe.read(),
            first,
            keys,
            there,
            #[inline(always)]
            |key, shard: &Shard, there| found(key, shard.state.version, there),
        );
    }

    #[inline]
    fn apply(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        &mut Call { slices, renews }: &mut Call,
        tally: &mut Tally<'_, '_, Self>,
    ) {
        let how = |shard: &mut Shard| {
            let window = self.fit(shard);
            window.stamping(window.now, slices)
        };
        self.sharded.format.stamp_each(
            &mut stripe.write(),
            first,
            keys,
            renews,
            how,
            // Inlined, because otherwise the arguments go through memory, where reading them waits
            // for all earlier writes.
            #[inline(always)]
            |key, shard, effect| {
                if effect.is_none_or(|effect| !effect.is_new) {
                    tally.depends_on(shard.state.version);
                }
                let Some(StampEffect { is_new, bits }) = effect else {
                    return;
                };
                shard.note_stamped(is_new, bits, tally.version());
                match is_new {
                    true => tally.changed(key, Stamped::New),
                    false => tally.changed_again(key.1, Stamped::Renewed),
                }
            },
        );
    }

    fn record_kind(&self, _: Action, _: Stamped) -> RecordKind {
        RecordKind::AddedAt {
            epoch: self.epoch(),
        }
    }

    /// The request has added the new keys first, and nothing else.
    fn is_first(tag: Stamped) -> bool {
        tag == Stamped::New
    }

    fn begin_replay(&self, head: &RecordHead) -> Result<Option<u64>, Full> {
        let epoch = match head.kind {
            RecordKind::AddedAt { epoch } => epoch,
            _ => 0,
        };
        self.pass(epoch);
        self.look();
        let age = self.epoch().saturating_sub(epoch);
        // Keys that are too old by now are not added again.
        Ok((age <= self.spec.slices.into()).then_some(epoch))
    }

    fn replay(
        &self,
        stripe: &Stripe<Shard>,
        first: usize,
        keys: Group<'_, '_, Self>,
        version: u64,
        &epoch: &u64,
    ) {
        let how = |shard: &mut Shard| self.fit(shard).stamping(epoch, self.spec.slices);
        let note = |_, shard: &mut Shard, effect: Option<StampEffect>| {
            if let Some(StampEffect { is_new, bits }) = effect {
                shard.note_stamped(is_new, bits, version);
            }
        };
        self.sharded
            .format
            .stamp_each(&mut stripe.write(), first, keys, true, how, note);
    }
}

impl Whole for Aging {
    whole_in_shards!();

    fn note_filled(&self, shard: &Shard) {
        self.pass(shard.state.cleared);
    }

    fn content(&self, spec: &FilterSpec) -> Content<'_> {
        self.sharded.content(spec)
    }

    fn explain(&self, hash: KeyHash) -> KeyBits {
        self.look();
        self.sharded
            .explain(hash, |shard| self.there(shard, self.spec.slices))
    }

    /// One for new keys, and one for renewed keys.
    fn records_of_a_call(&self, _: usize, _: usize) -> usize {
        2
    }

    /// Clears stamps that are too old.
    fn for_disk(&self, state: ShardState, words: &mut [u64]) -> ShardState {
        self.cleared(state, words)
    }

    /// Of two stamps the younger stays. Clears stamps that are too old from both.
    fn unite(
        &self,
        _: u64,
        (own, words): (ShardState, &mut [u64]),
        (other, others): (ShardState, &mut [u64]),
    ) -> ShardState {
        // The other shard was cleared when it was copied for the disk: no stamp in it is younger.
        self.pass(other.cleared);
        let now = self.epoch();
        let window = |state: &ShardState| Window {
            now,
            ..self.window(state)
        };
        let state = Self::cleared_in(window(&own), own, words);
        Self::cleared_in(window(&other), other, others);
        ShardState {
            bits_set: state.bits_set + stamps::unite(words, others, now),
            // Keys that are too old by now have no bits, from which their number could be computed.
            keys_added: own.keys_added.max(other.keys_added),
            ..state
        }
    }

    fn max_age(&self) -> Option<Duration> {
        Some(self.spec.max_age)
    }

    /// Returns the time of the clock, unless it is before the beginning of the epoch.
    fn time(&self) -> Option<Duration> {
        Some(self.now())
    }

    fn clock_state(&self) -> ClockState {
        ClockState {
            ahead: self.ahead,
            epoch: self.epoch(),
        }
    }

    fn follow(&mut self, other: ClockState) {
        self.ahead = other.ahead;
        self.pass(other.epoch);
    }

    fn note_stored(&mut self, time: SystemTime) {
        self.stored = since_1970(time);
    }

    /// Continues from the latest time that was found, if the clock is before it.
    fn go_on(&mut self) {
        let found = self.spec.begin(*self.epoch.get_mut()).max(self.stored);
        self.ahead = found.saturating_sub(self.clock.now());
    }

    fn has_gone_on_since(&self, stored: SystemTime) -> bool {
        const SNAPSHOTS_A_SLICE: u32 = 8;
        self.now().saturating_sub(since_1970(stored)) >= self.spec.slice() / SNAPSHOTS_A_SLICE
    }

    fn clear_old(&self) {
        if !self.has_old() {
            return;
        }
        let epoch = self.epoch();
        let shards = &self.sharded.shards;
        for number in self.numbers() {
            if shards.read(number).state.cleared < epoch {
                self.clear(&mut shards.write(number));
            }
        }
        self.cleared.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Returns whether a slice has begun since all shards were cleared.
    fn has_old(&self) -> bool {
        self.look();
        self.cleared.load(Ordering::Acquire) < self.epoch()
    }
}

fn since_1970(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}
