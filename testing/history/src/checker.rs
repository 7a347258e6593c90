//! Records the calls of a history, and checks at the end whether they are consistent.

use std::{collections::HashMap, fmt::Display, hash::Hash};

use crate::{
    call::{Call, Operation, Outcome},
    summary::Summary,
    violation::{Violation, Violations},
};

/// The recorded part of a history.
#[derive(Debug)]
pub struct Checker<K: Display> {
    keys: HashMap<K, Summary>,
    /// Calls with a request id. Each can have several tries.
    named: HashMap<(K, Operation, String), Tries<K>>,
    differing: Vec<Violation<K>>,
    calls: u64,
    unknown: u64,
}

/// The tries of one call.
#[derive(Debug)]
struct Tries<K> {
    /// All tries, combined into one call.
    call: Call<K>,
    /// The begin of the last try that was answered; 0 if no try was answered.
    last_begin: u64,
}

/// The counts of a history without violations. A test asserts with them that it has tested
/// something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// The number of calls. Each try counts.
    pub calls: u64,
    /// The number of calls without an answer.
    pub unknown: u64,
    /// The number of keys.
    pub keys: u64,
    /// The number of keys for which a call was answered "new".
    pub won: u64,
    /// The number of these keys for which the answer "new" came to a try that began after another
    /// call had seen the key. A service that does not remember requests never answers like that.
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
    /// Records a call. The order of the calls does not matter.
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
        // A try without an answer ends at infinity, so the first answer is the end.
        known.course.begin = known.course.begin.min(call.course.begin);
        known.course.end = known.course.end.min(call.course.end);
    }

    /// Checks whether all calls are consistent.
    ///
    /// # Errors
    ///
    /// The calls that contradict each other.
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
