//! One of several callers, and the state that they share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

use fastrand::Rng;

use super::{
    super::*,
    model::{Epochs, Model, SLICE},
};
use crate::store::simulated::SimulatedDisk;

const MOST_KEYS: u64 = 900;
/// The most times that a key is added. Saturated counters could not be counted down.
const MOST_TIMES: u64 = 5;
/// The number of keys in each query that were never added.
const STRANGERS: u64 = 100;

/// The end of a round of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All calls have been answered.
    Quiet,
    /// The process is killed while calls are in progress.
    Kill,
    /// The power is cut while calls are in progress.
    Cut,
}

/// A round of calls.
pub struct Round {
    pub engine: Engine,
    pub disk: SimulatedDisk,
    pub manual_clock: ManualClock,
    pub end: End,
    /// The number of calls after which the round ends.
    pub last_call: u64,
    calls: AtomicU64,
    is_over: AtomicBool,
    advancing: Mutex<()>,
    /// The disk that a crash has left.
    pub left: Mutex<Option<SimulatedDisk>>,
}

impl Round {
    pub fn new(
        engine: &Engine,
        disk: &SimulatedDisk,
        manual_clock: &ManualClock,
        end: End,
        calls: u64,
    ) -> Self {
        Self {
            engine: engine.clone(),
            disk: disk.clone(),
            manual_clock: manual_clock.clone(),
            end,
            last_call: calls,
            calls: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            advancing: Mutex::new(()),
            left: Mutex::new(None),
        }
    }

    fn epoch(&self) -> u64 {
        self.manual_clock.time().as_secs() / SLICE.as_secs()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    /// Returns whether an answer came before the crash. Must be called after the answer.
    fn is_certain(&self) -> bool {
        self.end == End::Quiet || !self.is_over()
    }

    /// Counts an answered call. The last one ends the round.
    fn count(&self, chance: &mut Rng) {
        if self.calls.fetch_add(1, SeqCst) + 1 != self.last_call {
            return;
        }
        self.is_over.store(true, SeqCst);
        let left = match self.end {
            End::Quiet => return,
            End::Kill => self.disk.kill(),
            End::Cut => self.disk.cut(chance),
        };
        *self.left.lock() = Some(left);
    }

    /// Advances time by up to two slices.
    fn advance(&self, chance: &mut Rng) {
        let _one = self.advancing.lock();
        self.manual_clock
            .advance(SLICE * (1 + chance.u64(..16) as u32) / 8);
    }
}

/// A caller. Its keys are its own, so it knows which must be there. All callers share the bits.
pub struct Caller {
    number: u64,
    kind: Kind,
    keys: u64,
    pub model: Model,
    chance: Rng,
    strangers: u64,
    /// The number of keys in its calls. In `refused`: the number of calls that a full filter
    /// refused.
    pub done: u64,
    pub refused: u64,
}

impl Caller {
    pub fn new(number: u64, kind: Kind, keys: u64, chance: Rng) -> Self {
        Self {
            number,
            kind,
            keys,
            model: Model::new(kind, keys),
            chance,
            strangers: 0,
            done: 0,
            refused: 0,
        }
    }

    /// Makes calls until the round is over.
    pub async fn go_on(mut self, round: Arc<Round>) -> Self {
        while !round.is_over() {
            match self.chance.u64(..1000) {
                0..10 => {
                    round.engine.store("urls").await.unwrap();
                }
                10..20 => round.advance(&mut self.chance),
                20..360 => self.query(&round).await,
                360..610 if self.kind == Kind::Counting => self.remove(&round).await,
                number => self.add(&round, number % 2 == 0).await,
            }
            round.count(&mut self.chance);
        }
        self
    }

    /// Returns keys that `may` allows, each once.
    fn pick(&mut self, may: impl Fn(&Self, u64) -> bool) -> Vec<u64> {
        let most = 1 + self.chance.u64(..MOST_KEYS) as usize;
        let first = self.chance.u64(..self.keys);
        // Neighbouring keys, with gaps.
        let step = 1 + self.chance.u64(..9);
        let keys = (0..most as u64 * 2).map(|place| (first + place * step) % self.keys);
        keys.filter(|&key| may(self, key)).take(most).collect()
    }

    fn names(&mut self, keys: &[u64]) -> Vec<String> {
        self.done += keys.len() as u64;
        let name = |key| format!("https://example.com/{}/{key}", self.number);
        keys.iter().map(name).collect()
    }

    async fn query(&mut self, round: &Round) {
        let keys = self.pick(|_, _| true);
        let mut names = self.names(&keys);
        names.extend((0..STRANGERS).map(|stranger| {
            let number = self.strangers + stranger;
            format!("https://strange.example.com/{}/{number}", self.number)
        }));
        self.strangers += STRANGERS;
        let begin = round.epoch();
        let seen = round.engine.query_batch("urls", names).await.unwrap();
        let end = round.epoch();
        let is_certain = round.is_certain();
        let (seen, strange) = seen.split_at(keys.len());
        for (&key, &seen) in keys.iter().zip(seen) {
            self.model.check(key, seen, Epochs { begin, end });
            if is_certain {
                self.model.told(key, seen);
            }
        }
        strange
            .iter()
            .for_each(|&seen| self.model.note_absent(seen));
    }

    async fn remove(&mut self, round: &Round) {
        let keys = self.pick(|caller, key| caller.model.known(key).least > 0);
        let names = self.names(&keys);
        let removed = round.engine.remove_batch("urls", names).await.unwrap();
        assert!(removed.iter().all(|&removed| removed));
        let is_certain = round.is_certain();
        keys.iter()
            .for_each(|&key| self.model.remove(key, is_certain));
    }

    async fn add(&mut self, round: &Round, asks: bool) {
        let keys = self.pick(|caller, key| match caller.kind {
            // Some keys are only queried.
            Kind::Plain | Kind::Scaling(_) => key % 4 < 2,
            Kind::Counting => caller.model.known(key).most < MOST_TIMES,
            Kind::Aging(_) => true,
        });
        let names = self.names(&keys);
        let begin = round.epoch();
        let told = match asks {
            true => {
                let seen = round.engine.query_and_add_batch("urls", names).await;
                seen.map(Some)
            }
            false => round.engine.add_batch("urls", names).await.map(|()| None),
        };
        let when = Epochs {
            begin,
            end: round.epoch(),
        };
        let is_certain = round.is_certain();
        let told = match told {
            Ok(told) => told,
            Err(EngineError::FilterFull { .. }) => {
                self.refused += 1;
                return;
            }
            Err(error) => panic!("{error}"),
        };
        for (place, &key) in keys.iter().enumerate() {
            let seen = told.as_ref().map(|seen| seen[place]);
            if let Some(seen) = seen {
                self.model.check(key, seen, when);
                if is_certain {
                    self.model.told(key, seen);
                }
            }
            self.model.add(key, seen, when, is_certain);
        }
    }
}
