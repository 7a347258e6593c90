//! The model: the filters that each name can mean, and the keys that each filter must or can have.
//!
//! A call or an operation without an answer was carried out or not. The model keeps both
//! possibilities until the next start of the server, which shows one of them.

mod call;
mod filter;
mod history;
mod operating;
mod start;

use std::collections::{BTreeMap, BTreeSet, HashSet};

pub use self::{
    call::{Action, Call},
    operating::Begun,
    start::Listed,
};
use self::{filter::Filter, history::History};
use crate::operation::Kind;

/// The index of a filter in the model. A reset makes a new one.
pub type Id = usize;
/// The index of a name.
pub type Name = usize;
/// A key.
pub type Key = u32;
/// The number of an event: the begin or the end of a call or an operation.
type Event = u64;

const NEVER: Event = Event::MAX;

/// A meaning that a name can have had.
#[derive(Debug, Clone, Copy)]
struct Meaning {
    filter: Option<Id>,
    from: Event,
    until: Event,
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
pub struct Model {
    now: Event,
    names: Vec<Vec<Meaning>>,
    filters: Vec<Filter>,
    /// The names of operations that are in progress or have no answer.
    busy: BTreeSet<Name>,
    /// The operations without an answer.
    unanswered: Vec<Begun>,
    calls: BTreeMap<u64, (Name, Action, Vec<Key>)>,
    next_call: u64,
    /// Keys of calls without an answer, which the server may still carry out.
    late_adds: HashSet<Key>,
    /// Keys of removals without an answer, which the server may still carry out.
    late_removals: HashSet<Key>,
    history: History,
}

impl Model {
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
            history: History::default(),
        }
    }

    /// Returns the filter that a name means, if any.
    pub fn filter(&self, name: Name) -> Option<&Filter> {
        self.id(name).map(|id| &self.filters[id])
    }

    fn id(&self, name: Name) -> Option<Id> {
        self.names[name].last().and_then(|meaning| meaning.filter)
    }

    /// Returns the names without an operation in progress.
    pub fn idle(&self) -> Vec<Name> {
        let names = 0..self.names.len();
        names.filter(|name| !self.busy.contains(name)).collect()
    }

    /// Returns the name of the mirror of a filter, if it has one.
    pub fn mirror(&self, name: Name) -> Option<Name> {
        let mirror = self.filter(name)?.mirror?.id;
        (0..self.names.len()).find(|&other| self.id(other) == Some(mirror))
    }

    /// Returns whether a filter is being rebuilt.
    pub fn is_rebuilt(&self, name: Name) -> bool {
        self.filter(name)
            .is_some_and(|filter| filter.mirror.is_some())
    }

    /// Returns whether a filter will replace another.
    pub fn is_mirror(&self, name: Name) -> bool {
        self.rebuilds(name).is_some()
    }

    /// Returns the name of the filter that a filter will replace.
    pub fn rebuilds(&self, name: Name) -> Option<Name> {
        let mut names = 0..self.names.len();
        names.find(|&other| self.mirror(other) == Some(name))
    }

    /// Returns the filters that a name can have meant since an event.
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
        if let Some(id) = filter {
            self.expose_calls(name, id);
        }
    }

    /// Notes that a filter can receive the calls in progress for a name.
    fn expose_calls(&mut self, name: Name, id: Id) {
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
            mirror: None,
            followers: BTreeSet::new(),
            removed: HashSet::new(),
            merged: 0,
        });
        id
    }

    /// Returns a filter and all its followers, direct and indirect.
    fn with_followers(&self, id: Id) -> BTreeSet<Id> {
        let mut found = BTreeSet::from([id]);
        let mut look = vec![id];
        while let Some(id) = look.pop() {
            let followers = self.filters[id].followers.iter();
            look.extend(followers.filter(|&&follower| found.insert(follower)));
        }
        found
    }

    /// Notes that a filter can receive a call in progress.
    fn expose(&mut self, id: Id, action: Action, keys: &[Key]) {
        for id in self.with_followers(id) {
            let filter = &mut self.filters[id];
            match action {
                Action::Query => {}
                Action::Add => {
                    // Each call counts a key once more.
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
}
