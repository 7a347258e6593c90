//! A filter that is made and deleted again and again: the answers of these calls, and whether the
//! server still agrees with them.

use fastrand::Rng;
use futures_util::future::join_all;

use super::*;

const NAME: &str = "other";

/// One filter, from its creation until its deletion. No other one has its spec.
#[derive(Debug, Clone)]
struct Generation {
    number: u64,
    /// The keys that were asked for, each once and by a request of its own. The flag says whether
    /// the request was answered.
    keys: Vec<bool>,
}

/// All answers that one caller got.
#[derive(Debug, Clone)]
pub(super) struct Generations {
    /// The filters that may exist, where `None` is no filter. There is more than one if a call that
    /// makes or deletes the filter was not answered.
    possible: Vec<Option<Generation>>,
    made: u64,
    /// The number of answered calls that make or delete the filter.
    answered: u64,
}

impl Default for Generations {
    fn default() -> Self {
        Self {
            possible: vec![None],
            made: 0,
            answered: 0,
        }
    }
}

impl Generations {
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// Makes the filter, adds keys, and deletes it with some probability.
    pub(super) async fn take_turn(&mut self, engine: &Engine, chance: &mut Rng) {
        self.create(engine).await;
        for _ in 0..chance.u64(..3) {
            self.add(engine).await;
        }
        if chance.bool() {
            self.delete(engine).await;
        }
    }

    async fn create(&mut self, engine: &Engine) {
        let generation = Generation {
            number: self.made,
            keys: Vec::new(),
        };
        self.made += 1;
        match engine.create_filter(NAME, spec(generation.number)).await {
            Ok(created) => {
                assert!(created.is_new, "{self:?}");
                self.possible = vec![Some(generation)];
                self.answered += 1;
            }
            Err(EngineError::FilterExists { .. }) => {
                assert!(self.possible.iter().any(Option::is_some), "{self:?}");
            }
            Err(_) => self.possible.push(Some(generation)),
        }
    }

    async fn delete(&mut self, engine: &Engine) {
        match engine.delete_filter(NAME).await {
            Ok(()) => {
                self.possible = vec![None];
                self.answered += 1;
            }
            Err(EngineError::UnknownFilter { .. }) => self.may_be_gone(),
            Err(_) => self.possible.push(None),
        }
    }

    async fn add(&mut self, engine: &Engine) {
        // Earlier ones were not made, because otherwise there would be no later one.
        let last = self.possible.iter_mut().flatten().last();
        let Some(Generation { number, keys }) = last else {
            let refused = engine.query_and_add(NAME, "a").await;
            assert!(refused.is_err(), "{self:?}");
            return;
        };
        let (number, key) = (*number, key(*number, keys.len()));
        match engine.query_and_add(request(&key), &key).await {
            Ok(seen) => {
                assert!(!seen, "{key}: {self:?}");
                keys.push(true);
                self.is(Some(number));
            }
            Err(EngineError::UnknownFilter { .. }) => self.may_be_gone(),
            Err(_) => keys.push(false),
        }
    }

    /// Compares a server after a start with the answers.
    pub(super) async fn check(&mut self, engine: &Engine, case: &str) {
        let found = find(engine, NAME);
        let found = found.map(|filter| filter.spec().capacity - spec(0).capacity);
        let before = self.clone();
        self.is(found);
        let [filter] = &*self.possible else {
            panic!("{case}: there is {found:?} after {before:?}");
        };
        let Some(Generation { number, keys }) = filter else {
            return;
        };
        // The filter must not have keys of the filter before it.
        let strangers = (0..3).map(|index| key(number.wrapping_sub(1), index));
        let names = (0..keys.len()).map(|index| key(*number, index));
        let all: Vec<String> = strangers.chain(names).collect();
        let seen = engine.query_batch(NAME, all).await.unwrap();
        let (strangers, own) = seen.split_at(3);
        assert_eq!(strangers, [false; 3], "{case}: {before:?}");
        let mut kept = own.iter().zip(keys);
        let is_kept = kept.all(|(&seen, &is_answered)| seen || !is_answered);
        assert!(is_kept, "{case}: seen {own:?} after {before:?}");
    }

    /// Asks again for all keys of the present filter. Each request gets its first answer, or the
    /// answer that it would have got.
    pub(super) async fn ask_again(&self, engine: &Engine, case: &str) {
        let [Some(Generation { number, keys })] = &*self.possible else {
            return;
        };
        let names = (0..keys.len()).map(|index| key(*number, index));
        let again = names.map(|key| async move {
            let seen = engine.query_and_add(request(&key), &key).await;
            matches!(seen, Ok(false))
        });
        let again = join_all(again).await;
        assert!(!again.contains(&false), "{case}: {again:?}, {self:?}");
    }

    /// Notes which filter exists.
    fn is(&mut self, number: Option<u64>) {
        self.possible
            .retain(|one| one.as_ref().map(|one| one.number) == number);
        self.possible.truncate(1);
    }

    /// Checks that the filter may be missing. A filter whose creation was answered exists, unless
    /// it may have been deleted. A filter whose creation was not answered may be missing now and
    /// exist after a crash.
    fn may_be_gone(&self) {
        assert!(self.possible.iter().any(Option::is_none), "{self:?}");
    }
}

fn spec(number: u64) -> SpecRequest {
    SpecRequest {
        capacity: 1000 + number,
        ..workload::exact()
    }
}

fn key(number: u64, index: usize) -> String {
    format!("{number}/{index}")
}

fn request(key: &str) -> Call<'_> {
    Call {
        filter: NAME,
        request_id: key,
        max_age: None,
        deadline: None,
    }
}
