//! Calls for keys, the checks of their answers, and the conclusions about the filters.

use std::collections::BTreeSet;

use super::{Event, Id, Key, Model, Name, Outcome};
use crate::{
    operation::Kind,
    violation::{Violation, violated, violated_for},
};

/// The rpc of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Query,
    Add,
    QueryAndAdd,
    Remove,
}

/// A call in progress.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: Name,
    pub action: Action,
    pub keys: Vec<Key>,
    pub request_id: String,
    /// Its number among the calls in progress.
    number: u64,
    begin: Event,
    /// The filters that the name can have meant at the begin.
    meant: BTreeSet<Option<Id>>,
    /// A flag for each key: at the begin it was certainly there.
    must: Vec<bool>,
    /// A flag for each key: at the begin it can have been there.
    may: Vec<bool>,
    /// The first try of the call, if this is the second.
    first: Option<Box<Call>>,
}

impl Call {
    /// Returns the first try of the call.
    pub fn first_try(self) -> Self {
        match self.first {
            Some(first) => *first,
            None => self,
        }
    }
}

impl Model {
    /// Begins a call.
    pub fn begin_call(&mut self, name: Name, action: Action, keys: Vec<Key>, id: String) -> Call {
        self.now += 1;
        let meant = self.meant(name, self.now);
        let filters = |id: &Option<Id>| id.map(|id| &self.filters[id]);
        let of_each = |holds: &dyn Fn(&Key) -> bool| keys.iter().map(holds).collect();
        let must = of_each(&|key| {
            let mut meant = meant.iter().map(filters);
            meant.all(|filter| filter.is_some_and(|filter| filter.must.contains(key)))
        });
        let may = of_each(&|key| {
            let mut meant = meant.iter().filter_map(filters);
            meant.any(|filter| filter.may.contains(key))
        });
        for id in meant.iter().flatten() {
            self.expose(*id, action, &keys);
        }
        let number = self.next_call;
        self.next_call += 1;
        self.calls.insert(number, (name, action, keys.clone()));
        self.note_call(
            format!("{action:?} {number} of filter-{name}, {meant:?}, {id:?} begins"),
            keys.clone(),
        );
        Call {
            name,
            action,
            keys,
            request_id: id,
            number,
            begin: self.now,
            meant,
            must,
            may,
            first: None,
        }
    }

    /// Begins the second try of a call.
    pub fn begin_again(&mut self, call: Call) -> Call {
        let (keys, id) = (call.keys.clone(), call.request_id.clone());
        let again = self.begin_call(call.name, call.action, keys, id);
        Call {
            first: Some(Box::new(call)),
            ..again
        }
    }

    /// Ends a call. The answer has a flag for each key, or none for `Add`.
    pub fn end_call(&mut self, call: &Call, outcome: Outcome<Vec<bool>>) -> Result<(), Violation> {
        self.now += 1;
        // The server may still carry out a call that it did not answer.
        if !matches!(outcome, Outcome::Unknown) {
            self.calls.remove(&call.number);
        }
        let meant = self.meant(call.name, call.begin);
        let what = match &outcome {
            Outcome::Done(_) => "is answered",
            Outcome::Refused(_) => "is refused",
            Outcome::Unknown => "has no answer",
        };
        let what = format!("{:?} {} of {meant:?} {what}", call.action, call.number);
        self.note_call(what, call.keys.clone());
        match outcome {
            Outcome::Unknown => {
                match call.action {
                    Action::Query => {}
                    Action::Add | Action::QueryAndAdd => self.late_adds.extend(&call.keys),
                    Action::Remove => self.late_removals.extend(&call.keys),
                }
                Ok(())
            }
            Outcome::Refused(status) => match status.code() {
                tonic::Code::NotFound if meant.contains(&None) => Ok(()),
                tonic::Code::FailedPrecondition if self.may_not_count(&meant) => Ok(()),
                _ => violated(format!("{call:?} of {meant:?} was refused: {status}")),
            },
            Outcome::Done(answers) => self.answered(call, &meant, &answers),
        }
    }

    fn may_not_count(&self, meant: &BTreeSet<Option<Id>>) -> bool {
        let mut ids = meant.iter().flatten();
        ids.any(|&id| self.filters[id].kind != Kind::Counting)
    }

    fn answered(
        &mut self,
        call: &Call,
        meant: &BTreeSet<Option<Id>>,
        answers: &[bool],
    ) -> Result<(), Violation> {
        let ids: BTreeSet<Id> = meant.iter().flatten().copied().collect();
        if ids.is_empty() {
            return violated(format!("{call:?} was answered, and there is no filter"));
        }
        // The filter that answered, if the name meant one filter all the time.
        let one = match (ids.first(), meant == &call.meant) {
            (Some(&id), true) if meant.len() == 1 => Some(id),
            _ => None,
        };
        if let Some(id) = one {
            self.check_answers(call, id, answers)?;
        }
        match call.action {
            Action::Query => {}
            Action::Add | Action::QueryAndAdd => self.added(call, &ids),
            Action::Remove => self.removed(call, &ids, one),
        }
        Ok(())
    }

    fn check_answers(&self, call: &Call, id: Id, answers: &[bool]) -> Result<(), Violation> {
        let filter = &self.filters[id];
        let is_merged = filter.merged >= call.begin;
        let may_be_stuck = call.action == Action::Remove && !filter.counts_once;
        for (index, (&key, &is_there)) in call.keys.iter().zip(answers).enumerate() {
            let is_repeated = call.keys[..index].contains(&key);
            if is_repeated {
                continue;
            }
            let (must, may) = (call.must[index], call.may[index]);
            let late = self.late_adds.contains(&key) || self.late_removals.contains(&key);
            match &call.first {
                // A key with a counter at its maximum cannot be removed.
                None if must && !is_there && !may_be_stuck => {
                    let what = format!("key {key} of filter {id} is forgotten");
                    return violated_for(key, format!("{what}: {call:?}"));
                }
                None if !may && is_there && !is_merged && !late => {
                    let what = format!("key {key} of filter {id} is seen and nobody added it");
                    return violated_for(key, format!("{what}: {call:?}"));
                }
                Some(first) => {
                    let same = first.meant.len() == 1 && first.meant == call.meant;
                    let was_new = same && !first.may[index] && filter.merged < first.begin;
                    if was_new && is_there && call.action == Action::QueryAndAdd {
                        let what = format!("key {key} of filter {id} is no longer new to a retry");
                        return violated_for(key, format!("{what}: {call:?}"));
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Notes the keys of an answered call in every filter that has certainly received them.
    fn added(&mut self, call: &Call, ids: &BTreeSet<Id>) {
        let is_certain = call
            .first
            .as_ref()
            .is_none_or(|first| first.meant.len() == 1 && first.meant == call.meant);
        if !is_certain {
            return;
        }
        let begin = call.first.as_ref().map_or(call.begin, |first| first.begin);
        let mirror = |id: Id| {
            let mirror = self.filters[id].mirror?;
            (mirror.since <= begin).then_some(mirror.id)
        };
        let reached: Vec<BTreeSet<Id>> = ids
            .iter()
            .map(|&id| [Some(id), mirror(id)].into_iter().flatten().collect())
            .collect();
        let all = reached.into_iter().reduce(|all, some| &all & &some);
        for id in all.unwrap_or_default() {
            let filter = &mut self.filters[id];
            for &key in &call.keys {
                // A late removal would remove it again.
                if filter.kind != Kind::Counting || !self.late_removals.contains(&key) {
                    filter.must.insert(key);
                }
            }
        }
    }

    fn removed(&mut self, call: &Call, ids: &BTreeSet<Id>, one: Option<Id>) {
        for &id in ids {
            self.expose(id, Action::Remove, &call.keys);
        }
        let Some(id) = one else { return };
        let (late_adds, late_removals) = (&self.late_adds, &self.late_removals);
        let filter = &mut self.filters[id];
        if filter.kind == Kind::Counting && filter.counts_once && filter.merged < call.begin {
            for key in &call.keys {
                if !late_adds.contains(key) && !late_removals.contains(key) {
                    filter.may.remove(key);
                }
            }
        }
    }
}
