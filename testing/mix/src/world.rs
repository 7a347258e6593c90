//! The model: which filter each name may mean, and which keys each filter must or may have.
//!
//! A call or an operation that was not answered leaves two worlds: it was carried out or not. The
//! model keeps both until the next start of the server, which shows one of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fmt,
};

use crate::{
    operation::{Kind, Operation},
    violation::{Violation, violated, violated_for},
};

/// The index of a filter in the model. A reset makes a new one.
pub type Id = usize;
/// The index of a name.
pub type Name = usize;
/// A key.
pub type Key = u32;
/// The number of an event: the begin or the end of a call or an operation.
type Event = u64;

const NEVER: Event = Event::MAX;
/// The operations and calls of the history.
const HISTORY: usize = 20_000;

/// A filter of the model.
#[derive(Debug, Clone)]
pub struct Filter {
    pub kind: Kind,
    /// Filters of one family can be merged: they have one spec and one secret.
    pub family: usize,
    /// The keys that are there for certain.
    pub must: HashSet<Key>,
    /// The keys that may be there, those that must among them.
    pub may: HashSet<Key>,
    /// A key that is there is counted once.
    counts_once: bool,
    heir: Option<Heir>,
    /// The filters that may receive what is added to this one: an heir, a copy in progress, the target
    /// of a merge in progress.
    followers: BTreeSet<Id>,
    /// The keys that were removed from the source or the target of a merge in progress.
    removed: HashSet<Key>,
    /// The last begin of a merge into this filter.
    merged: Event,
}

/// The filter that a rebuild fills.
#[derive(Debug, Clone, Copy)]
struct Heir {
    id: Id,
    /// The event from which on it receives all keys. [`NEVER`] while that is not certain.
    since: Event,
}

/// A meaning that a name may have had.
#[derive(Debug, Clone, Copy)]
struct Meaning {
    filter: Option<Id>,
    from: Event,
    until: Event,
}

/// An operation in progress.
#[derive(Debug, Clone)]
pub struct Begun {
    pub operation: Operation,
    /// The filter of its first name.
    filter: Option<Id>,
    /// The filter that it makes or changes.
    other: Option<Id>,
    /// The keys that a merge brings for certain.
    brings: HashSet<Key>,
}

/// What a call does with its keys.
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
    /// The filters that the name may have meant at the begin.
    meant: BTreeSet<Option<Id>>,
    /// Of each key, whether it must have been there at the begin, and whether it may have been.
    must: Vec<bool>,
    may: Vec<bool>,
    /// The first try of the call, if this is the second.
    first: Option<Box<Call>>,
}

/// The outcome of a call or an operation.
#[derive(Debug, Clone)]
pub enum Outcome<T> {
    Done(T),
    /// Refused: nothing was changed.
    Refused(tonic::Status),
    /// No answer.
    Unknown,
}

/// The model.
#[derive(Debug)]
pub struct World {
    now: Event,
    names: Vec<Vec<Meaning>>,
    filters: Vec<Filter>,
    /// The names that an operation is in progress for, or was without an answer.
    busy: BTreeSet<Name>,
    /// The operations without an answer.
    unanswered: Vec<Begun>,
    calls: BTreeMap<u64, (Name, Action, Vec<Key>)>,
    next_call: u64,
    /// Keys of calls without an answer, which the server may still carry out.
    late_adds: HashSet<Key>,
    late_removals: HashSet<Key>,
    /// The last operations and calls, for whoever looks for the cause of a violation.
    history: VecDeque<(String, Vec<Key>)>,
}

/// A filter as the server lists it.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    pub rebuilt_as: String,
}

impl fmt::Display for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [filter, other] = [self.filter, self.other];
        write!(f, "{:?} of filters {filter:?} {other:?}", self.operation)
    }
}

impl Call {
    /// The first try of the call.
    pub fn first_try(self) -> Self {
        match self.first {
            Some(first) => *first,
            None => self,
        }
    }
}

impl World {
    pub fn new(names: usize) -> Self {
        let nothing = Meaning {
            filter: None,
            from: 0,
            until: NEVER,
        };
        Self {
            now: 1,
            names: vec![vec![nothing]; names],
            filters: Vec::new(),
            busy: BTreeSet::new(),
            unanswered: Vec::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            late_adds: HashSet::new(),
            late_removals: HashSet::new(),
            history: VecDeque::new(),
        }
    }

    /// The last operations, and the last calls for a key, oldest first.
    pub fn history(&self, key: Option<Key>) -> String {
        let is_shown =
            |keys: &Vec<Key>| keys.is_empty() || key.is_some_and(|key| keys.contains(&key));
        let shown = self.history.iter().filter(|(_, keys)| is_shown(keys));
        let lines: Vec<&str> = shown.map(|(line, _)| line.as_str()).collect();
        lines.join("\n")
    }

    /// Notes an operation or a start in the history.
    pub fn note(&mut self, what: String) {
        self.note_keys(what, Vec::new());
    }

    fn note_keys(&mut self, what: String, keys: Vec<Key>) {
        self.history
            .push_back((format!("{}: {what}", self.now), keys));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    /// The filter that a name means, if any.
    pub fn filter(&self, name: Name) -> Option<&Filter> {
        self.id(name).map(|id| &self.filters[id])
    }

    fn id(&self, name: Name) -> Option<Id> {
        self.names[name].last().and_then(|meaning| meaning.filter)
    }

    /// The names that no operation is in progress for.
    pub fn idle(&self) -> Vec<Name> {
        let names = 0..self.names.len();
        names.filter(|name| !self.busy.contains(name)).collect()
    }

    /// The name of the heir of a filter, if it has one.
    pub fn heir(&self, name: Name) -> Option<Name> {
        let heir = self.filter(name)?.heir?.id;
        (0..self.names.len()).find(|&other| self.id(other) == Some(heir))
    }

    /// Whether a filter is rebuilt.
    pub fn is_rebuilt(&self, name: Name) -> bool {
        self.filter(name)
            .is_some_and(|filter| filter.heir.is_some())
    }

    /// Whether a filter is to take the place of another.
    pub fn is_heir(&self, name: Name) -> bool {
        self.rebuilds(name).is_some()
    }

    /// The name whose filter a filter is to take the place of.
    pub fn rebuilds(&self, name: Name) -> Option<Name> {
        let mut names = 0..self.names.len();
        names.find(|&other| self.heir(other) == Some(name))
    }

    /// The filters that a name may have meant since an event.
    fn meant(&self, name: Name, since: Event) -> BTreeSet<Option<Id>> {
        let meanings = self.names[name].iter();
        let meanings = meanings.filter(|meaning| meaning.until > since);
        meanings.map(|meaning| meaning.filter).collect()
    }

    fn add_meaning(&mut self, name: Name, filter: Option<Id>) {
        self.names[name].push(Meaning {
            filter,
            from: self.now,
            until: NEVER,
        });
        let Some(id) = filter else { return };
        let calls: Vec<_> = self.calls.values().cloned().collect();
        for (of, action, keys) in calls {
            if of == name {
                self.expose(id, action, &keys);
            }
        }
    }

    fn end_meaning(&mut self, name: Name, filter: Option<Id>) {
        let now = self.now;
        let open = self.names[name].iter_mut().filter(|meaning| {
            meaning.filter == filter && meaning.until == NEVER && meaning.from < now
        });
        open.for_each(|meaning| meaning.until = now);
    }

    fn make(&mut self, kind: Kind, family: Option<usize>) -> Id {
        let id = self.filters.len();
        self.filters.push(Filter {
            kind,
            family: family.unwrap_or(id),
            must: HashSet::new(),
            may: HashSet::new(),
            counts_once: true,
            heir: None,
            followers: BTreeSet::new(),
            removed: HashSet::new(),
            merged: 0,
        });
        id
    }

    /// A filter, and all that may receive what is added to it.
    fn with_followers(&self, id: Id) -> BTreeSet<Id> {
        let mut found = BTreeSet::from([id]);
        let mut look = vec![id];
        while let Some(id) = look.pop() {
            let followers = self.filters[id].followers.iter();
            look.extend(followers.filter(|&&follower| found.insert(follower)));
        }
        found
    }

    /// Notes that an action in progress may reach a filter.
    fn expose(&mut self, id: Id, action: Action, keys: &[Key]) {
        for id in self.with_followers(id) {
            let filter = &mut self.filters[id];
            match action {
                Action::Query => {}
                Action::Add => {
                    // Each counts a key once more.
                    filter.counts_once = false;
                    filter.may.extend(keys);
                }
                Action::QueryAndAdd => filter.may.extend(keys),
                // Only a filter that counts can lose a key.
                Action::Remove if filter.kind == Kind::Counting => {
                    filter.removed.extend(keys);
                    filter.must.retain(|key| !keys.contains(key));
                }
                Action::Remove => {}
            }
        }
    }

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
        self.note_keys(
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

    /// Ends a call. The answer has a flag for each key, or none (`Add`).
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
        self.note_keys(what, call.keys.clone());
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
        // The one filter that the answer is of, if that is certain.
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
                // A key whose counters have come to their greatest value cannot be removed.
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

    /// The keys of an answered call are in every filter that it cannot have missed.
    fn added(&mut self, call: &Call, ids: &BTreeSet<Id>) {
        let is_certain = call
            .first
            .as_ref()
            .is_none_or(|first| first.meant.len() == 1 && first.meant == call.meant);
        if !is_certain {
            return;
        }
        let begin = call.first.as_ref().map_or(call.begin, |first| first.begin);
        let heir = |id: Id| {
            let heir = self.filters[id].heir?;
            (heir.since <= begin).then_some(heir.id)
        };
        let reached: Vec<BTreeSet<Id>> = ids
            .iter()
            .map(|&id| [Some(id), heir(id)].into_iter().flatten().collect())
            .collect();
        let all = reached.into_iter().reduce(|all, some| &all & &some);
        for id in all.unwrap_or_default() {
            let filter = &mut self.filters[id];
            for &key in &call.keys {
                // A removal that is carried out late would take it out again.
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

    /// Begins an operation.
    pub fn begin(&mut self, operation: Operation) -> Begun {
        self.now += 1;
        self.busy.extend(operation.names());
        self.note(format!("{operation:?} begins"));
        let mut begun = Begun {
            operation,
            filter: None,
            other: None,
            brings: HashSet::new(),
        };
        begun.filter = self.id(operation.name());
        match operation {
            Operation::Create { name, kind } => {
                let made = self.make(kind, None);
                begun.other = Some(made);
                self.add_meaning(name, Some(made));
            }
            Operation::Delete { name } => self.add_meaning(name, None),
            Operation::Reset { name } => {
                let (kind, family) = self.kind_and_family(begun.filter);
                let made = self.make(kind, family);
                begun.other = Some(made);
                self.add_meaning(name, Some(made));
            }
            Operation::Rename { name, to } => {
                self.add_meaning(name, None);
                self.add_meaning(to, begun.filter);
            }
            Operation::Copy { to, .. } | Operation::Exchange { to, .. } => {
                let (kind, family) = self.kind_and_family(begun.filter);
                let family = family.filter(|_| matches!(operation, Operation::Copy { .. }));
                let made = self.make(kind, family);
                begun.other = Some(made);
                if let Some(from) = begun.filter {
                    let source = self.filters[from].clone();
                    self.filters[from].followers.insert(made);
                    let copy = &mut self.filters[made];
                    copy.must = source.must;
                    copy.may = source.may;
                    copy.counts_once = source.counts_once;
                }
                self.add_meaning(to, Some(made));
            }
            Operation::Merge { target, .. } => {
                begun.other = self.id(target);
                if let (Some(from), Some(to)) = (begun.filter, begun.other) {
                    let source = self.filters[from].clone();
                    self.filters[from].followers.insert(to);
                    begun.brings = source.must;
                    for id in self.with_followers(to) {
                        let filter = &mut self.filters[id];
                        filter.may.extend(&source.may);
                        filter.counts_once = false;
                        filter.merged = self.now;
                        filter.removed.clear();
                    }
                }
            }
            Operation::StartRebuild { to, kind, .. } => {
                let (of, family) = self.kind_and_family(begun.filter);
                let made = self.make(kind.unwrap_or(of), family.filter(|_| kind.is_none()));
                begun.other = Some(made);
                if let Some(from) = begun.filter {
                    self.filters[from].heir = Some(Heir {
                        id: made,
                        since: NEVER,
                    });
                    self.filters[from].followers.insert(made);
                    self.filters[made].counts_once = self.filters[from].counts_once;
                }
                self.add_meaning(to, Some(made));
            }
            Operation::FinishRebuild { name, to } => {
                begun.other = self.id(to);
                self.add_meaning(name, begun.other);
                self.add_meaning(to, None);
            }
            Operation::Store { .. } => {}
        }
        begun
    }

    /// The kind of filter that an operation is about.
    pub fn kind_of(&self, operation: Operation) -> Kind {
        match operation {
            Operation::Create { kind, .. } => kind,
            _ => self.kind_and_family(self.id(operation.name())).0,
        }
    }

    fn kind_and_family(&self, id: Option<Id>) -> (Kind, Option<usize>) {
        let filter = id.map(|id| &self.filters[id]);
        filter.map_or((Kind::Plain, None), |filter| {
            (filter.kind, Some(filter.family))
        })
    }

    /// Ends an operation that was carried out or not.
    pub fn end(&mut self, begun: &Begun, is_done: bool) {
        self.now += 1;
        let carried_out = if is_done { "done" } else { "not done" };
        self.note(format!("{begun} {carried_out}"));
        for name in begun.operation.names() {
            self.busy.remove(&name);
        }
        let (filter, other) = (begun.filter, begun.other);
        let is_follower_kept = is_done && matches!(begun.operation, Operation::StartRebuild { .. });
        if let (Some(from), Some(to), false) = (filter, other, is_follower_kept) {
            self.filters[from].followers.remove(&to);
        }
        match begun.operation {
            Operation::Create { name, .. } => {
                self.end_meaning(name, if is_done { None } else { other });
            }
            Operation::Delete { name } => {
                self.end_meaning(name, if is_done { filter } else { None });
                if is_done && let Some(id) = filter {
                    self.no_longer_heir(id);
                }
            }
            Operation::Reset { name } => {
                self.end_meaning(name, if is_done { filter } else { other });
            }
            Operation::Rename { name, to } => {
                self.end_meaning(name, if is_done { filter } else { None });
                self.end_meaning(to, if is_done { None } else { filter });
            }
            Operation::Copy { to, .. } | Operation::Exchange { to, .. } => {
                self.end_meaning(to, if is_done { None } else { other });
            }
            Operation::Merge { .. } => {
                if let (true, Some(to)) = (is_done, other) {
                    let target = &mut self.filters[to];
                    let brings = begun.brings.difference(&target.removed);
                    target.must.extend(brings);
                }
            }
            Operation::StartRebuild { to, .. } => {
                self.end_meaning(to, if is_done { None } else { other });
                let now = self.now;
                if let Some(from) = filter {
                    let filter = &mut self.filters[from];
                    match is_done {
                        true => filter.heir.iter_mut().for_each(|heir| heir.since = now),
                        false => filter.heir = None,
                    }
                }
            }
            Operation::FinishRebuild { name, to } => {
                self.end_meaning(name, if is_done { filter } else { other });
                self.end_meaning(to, if is_done { other } else { None });
                if let (false, Some(from), Some(to)) = (is_done, filter, other) {
                    self.filters[from].followers.insert(to);
                }
            }
            Operation::Store { .. } => {}
        }
    }

    fn no_longer_heir(&mut self, id: Id) {
        for filter in &mut self.filters {
            if filter.heir.is_some_and(|heir| heir.id == id) {
                filter.heir = None;
                filter.followers.remove(&id);
            }
        }
    }

    /// Keeps an operation without an answer for the next start.
    pub fn unanswered(&mut self, begun: Begun) {
        self.now += 1;
        self.note(format!("{begun} without an answer"));
        self.unanswered.push(begun);
    }

    /// The keys that a reset takes away, and that nobody has added since it began.
    fn not_added_since<'a>(&'a self, begun: &Begun) -> impl Iterator<Item = &'a Key> {
        let filters = begun.filter.zip(begun.other);
        let keys = filters.map(|(before, after)| {
            let [before, after] = [before, after].map(|id| &self.filters[id]);
            before.must.difference(&after.may)
        });
        keys.into_iter().flatten()
    }

    /// The operations without an answer that a list of filters does not decide: of a reset, the name
    /// and the keys that are there if it was not carried out.
    pub fn undecided(&self) -> Vec<(Name, Vec<Key>)> {
        let resets = self.unanswered.iter().filter_map(|begun| {
            let Operation::Reset { name } = begun.operation else {
                return None;
            };
            Some((name, self.not_added_since(begun).copied().collect()))
        });
        resets.collect()
    }

    /// Decides all operations without an answer by what a server shows after its start.
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
                // Nothing tells the two apart.
                if let (Some(before), Some(after)) = (begun.filter, begun.other) {
                    let may = self.filters[before].may.clone();
                    self.filters[after].may.extend(may);
                }
            }
            self.end(&begun, is_done);
        }
        self.check_names(listed)
    }

    fn check_names(&mut self, listed: &BTreeMap<Name, Listed>) -> Result<(), Violation> {
        // No call is in progress, so one meaning of each name is left.
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
                filter.heir = None;
            }
            filter.followers.retain(|follower| used.contains(follower));
        }
        for (&name, shown) in listed {
            let heir = self.heir(name).map(crate::filter_name).unwrap_or_default();
            if heir != shown.rebuilt_as {
                let what = format!("filter-{name} is rebuilt as {:?}", shown.rebuilt_as);
                return violated(format!("{what}, expected {heir:?}"));
            }
        }
        Ok(())
    }
}
