//! Decides after a start of the server whether the operations without an answer were carried out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Begun, Id, Key, Model, NEVER, Name};
use crate::{
    operation::Operation,
    violation::{Violation, violated},
};

/// A filter as the server lists it.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    pub rebuilt_as: String,
}

impl Model {
    /// Keeps an operation without an answer for the next start.
    pub fn unanswered(&mut self, begun: Begun) {
        self.now += 1;
        self.note(format!("{begun} without an answer"));
        self.unanswered.push(begun);
    }

    /// Returns the keys that a reset removes, except keys that a call has added since the reset
    /// began.
    fn not_added_since<'a>(&'a self, begun: &Begun) -> impl Iterator<Item = &'a Key> {
        let filters = begun.filter.zip(begun.other);
        let keys = filters.map(|(before, after)| {
            let [before, after] = [before, after].map(|id| &self.filters[id]);
            before.must.difference(&after.may)
        });
        keys.into_iter().flatten()
    }

    /// Returns the resets without an answer: the name of each, and the keys that are there if the
    /// server did not carry it out. A list of filters does not decide these resets.
    pub fn undecided(&self) -> Vec<(Name, Vec<Key>)> {
        let resets = self.unanswered.iter().filter_map(|begun| {
            let Operation::Reset { name } = begun.operation else {
                return None;
            };
            Some((name, self.not_added_since(begun).copied().collect()))
        });
        resets.collect()
    }

    /// Decides all operations without an answer. `listed` contains the filters after the start, and
    /// `seen` the number of keys of [`Self::undecided`] that are there.
    pub fn decide(
        &mut self,
        listed: &BTreeMap<Name, Listed>,
        seen: &HashMap<Name, usize>,
    ) -> Result<(), Violation> {
        for begun in std::mem::take(&mut self.unanswered) {
            let has = |name| listed.contains_key(&name);
            let is_done = match begun.operation {
                Operation::Create { name, .. } => has(name),
                Operation::Delete { name } => !has(name),
                Operation::Reset { name } => seen.get(&name).is_none_or(|&seen| seen == 0),
                Operation::Rename { name, to } if has(name) == has(to) => {
                    return violated(format!("{begun:?} left both names or none"));
                }
                Operation::Rename { to, .. }
                | Operation::Copy { to, .. }
                | Operation::Exchange { to, .. }
                | Operation::StartRebuild { to, .. } => has(to),
                Operation::FinishRebuild { to, .. } => !has(to),
                Operation::Merge { .. } | Operation::Store { .. } => false,
            };
            let is_reset = matches!(begun.operation, Operation::Reset { .. });
            if is_reset && is_done && self.not_added_since(&begun).next().is_none() {
                // The keys do not show which of the two filters the server has.
                if let (Some(before), Some(after)) = (begun.filter, begun.other) {
                    let before = self.filters[before].clone();
                    let after = &mut self.filters[after];
                    after.may.extend(before.may);
                    after.counts_once &= before.counts_once;
                }
            }
            self.end(&begun, is_done);
        }
        self.check_names(listed)
    }

    fn check_names(&mut self, listed: &BTreeMap<Name, Listed>) -> Result<(), Violation> {
        // No call is in progress, so each name has one meaning left.
        self.calls.clear();
        self.late_adds.clear();
        self.late_removals.clear();
        for (name, meanings) in self.names.iter_mut().enumerate() {
            meanings.retain(|meaning| meaning.until == NEVER);
            let is_listed = listed.contains_key(&name);
            match meanings.as_slice() {
                [meaning] if meaning.filter.is_some() == is_listed => {}
                _ => {
                    let what =
                        format!("filter-{name} is listed: {is_listed}, expected {meanings:?}");
                    return violated(what);
                }
            }
        }
        let used: BTreeSet<Id> = self
            .names
            .iter()
            .flatten()
            .filter_map(|m| m.filter)
            .collect();
        for (id, filter) in self.filters.iter_mut().enumerate() {
            if !used.contains(&id) {
                filter.must = HashSet::new();
                filter.may = HashSet::new();
                filter.mirror = None;
            }
            filter.followers.retain(|follower| used.contains(follower));
        }
        for (&name, shown) in listed {
            let mirror = self
                .mirror(name)
                .map(crate::filter_name)
                .unwrap_or_default();
            if mirror != shown.rebuilt_as {
                let what = format!("filter-{name} is rebuilt as {:?}", shown.rebuilt_as);
                return violated(format!("{what}, expected {mirror:?}"));
            }
        }
        Ok(())
    }
}
