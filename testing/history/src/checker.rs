//! Takes the calls of a history, and says at the end whether they go together.

use std::{collections::HashMap, fmt::Display, hash::Hash};

use crate::{
    call::{Call, Operation, Outcome},
    summary::Summary,
    violation::{Violation, Violations},
};

/// A history as far as it has been recorded.
#[derive(Debug)]
pub struct Checker<K: Display> {
    keys: HashMap<K, Summary>,
    /// Calls with a request id, each of which may have had several tries.
    named: HashMap<(K, Operation, String), Tries<K>>,
    differing: Vec<Violation<K>>,
    calls: u64,
    unknown: u64,
}

/// The tries of one call.
#[derive(Debug)]
struct Tries<K> {
    /// All of them, as one.
    call: Call<K>,
    /// When the last of those began that were answered; 0 if none was.
    last_begin: u64,
}

/// What a history that breaks no rule consists of. A test asserts with it that it has tested
/// something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// The calls, each try for itself.
    pub calls: u64,
    /// Those that were told nothing.
    pub unknown: u64,
    /// The keys.
    pub keys: u64,
    /// The keys that a call was told to be new.
    pub won: u64,
    /// Those of them that it was told of by a try that began when somebody else had seen the
    /// key already: what nobody is told by a service that does not remember requests.
    pub won_again: u64,
}

impl<K: Display> Default for Checker<K> {
    fn default() -> Self {
        Self {
            keys: HashMap::new(),
            named: HashMap::new(),
            differing: Vec::new(),
            calls: 0,
            unknown: 0,
        }
    }
}

impl<K: Display + Clone + Eq + Hash> Checker<K> {
    /// Takes one call in. The order of the calls is of no importance.
    pub fn record(&mut self, call: Call<K>) {
        self.calls += 1;
        self.unknown += u64::from(call.course.outcome == Outcome::Unknown);
        let Some(id) = call.request_id.clone() else {
            self.keys.entry(call.key).or_default().record(call.course);
            return;
        };
        let name = (call.key.clone(), call.course.operation, id);
        let last_begin = match call.is_answered() {
            true => call.course.begin,
            false => 0,
        };
        let Some(tries) = self.named.get_mut(&name) else {
            self.named.insert(name, Tries { call, last_begin });
            return;
        };
        tries.last_begin = tries.last_begin.max(last_begin);
        let known = &mut tries.call;
        let (before, now) = (known.course.outcome, call.course.outcome);
        if before == Outcome::Unknown {
            known.course.outcome = now;
        } else if now != Outcome::Unknown && now != before {
            let (first, second) = (known.clone(), call.clone());
            let violation = Violation::AnswersDiffer { first, second };
            self.differing.push(violation);
        }
        // A try that was not answered ends at infinity, so the first answer is the end.
        known.course.begin = known.course.begin.min(call.course.begin);
        known.course.end = known.course.end.min(call.course.end);
    }

    /// Whether all calls go together.
    ///
    /// # Errors
    ///
    /// What does not.
    pub fn finish(mut self) -> Result<Checked, Violations<K>> {
        for Tries { call, last_begin } in self.named.into_values() {
            let summary = self.keys.entry(call.key).or_default();
            summary.record_tries(call.course, last_begin);
        }
        let mut found = self.differing;
        for (key, summary) in &self.keys {
            found.extend(summary.violations(key));
        }
        if found.is_empty() {
            let won = self.keys.values().filter(|key| key.has_winner());
            let won_again = self.keys.values().filter(|key| key.is_won_again());
            return Ok(Checked {
                calls: self.calls,
                unknown: self.unknown,
                keys: self.keys.len() as u64,
                won: won.count() as u64,
                won_again: won_again.count() as u64,
            });
        }
        found.sort_by_key(Violation::time);
        Err(Violations(found))
    }
}

impl<K: Display + Clone + Eq + Hash> Extend<Call<K>> for Checker<K> {
    fn extend<I: IntoIterator<Item = Call<K>>>(&mut self, calls: I) {
        for call in calls {
            self.record(call);
        }
    }
}
