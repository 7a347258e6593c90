//! Operations on whole filters, from their begin to their end.

use std::{collections::HashSet, fmt};

use super::{Id, Key, Model, NEVER, filter::Mirror};
use crate::operation::{Kind, Operation};

/// An operation in progress.
#[derive(Debug, Clone)]
pub struct Begun {
    pub operation: Operation,
    /// The filter of the operation's first name.
    pub(super) filter: Option<Id>,
    /// The filter that it makes or changes.
    pub(super) other: Option<Id>,
    /// The keys that a merge certainly brings.
    pub(super) brings: HashSet<Key>,
}

impl fmt::Display for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [filter, other] = [self.filter, self.other];
        write!(f, "{:?} of filters {filter:?} {other:?}", self.operation)
    }
}

impl Model {
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
            Operation::StartRebuild { name, to, kind } => {
                let (of, family) = self.kind_and_family(begun.filter);
                let made = self.make(kind.unwrap_or(of), family.filter(|_| kind.is_none()));
                begun.other = Some(made);
                if let Some(from) = begun.filter {
                    self.filters[from].mirror = Some(Mirror {
                        id: made,
                        since: NEVER,
                    });
                    self.filters[from].followers.insert(made);
                    self.filters[made].counts_once = self.filters[from].counts_once;
                }
                self.expose_calls(name, made);
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

    /// Returns the kind of filter that an operation works on.
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

    /// Ends an operation. `is_done` says whether it was carried out.
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
                    self.no_longer_mirror(id);
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
                        true => filter
                            .mirror
                            .iter_mut()
                            .for_each(|mirror| mirror.since = now),
                        false => filter.mirror = None,
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

    fn no_longer_mirror(&mut self, id: Id) {
        for filter in &mut self.filters {
            if filter.mirror.is_some_and(|mirror| mirror.id == id) {
                filter.mirror = None;
                filter.followers.remove(&id);
            }
        }
    }
}
