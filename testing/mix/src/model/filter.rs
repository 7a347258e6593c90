//! A filter of the model.

use std::collections::{BTreeSet, HashSet};

use super::{Event, Id, Key};
use crate::operation::Kind;

/// A filter of the model.
#[derive(Debug, Clone)]
pub struct Filter {
    pub kind: Kind,
    /// Filters of one family can be merged: they have one spec and one secret.
    pub family: usize,
    /// The keys that are certainly there.
    pub must: HashSet<Key>,
    /// The keys that can be there, including those in `must`.
    pub may: HashSet<Key>,
    /// True for a counting filter in which no key is counted twice, so that one `Remove` removes
    /// it.
    pub(super) counts_once: bool,
    pub(super) mirror: Option<Mirror>,
    /// The filters that can receive the keys that are added to this one: a mirror, a copy in
    /// progress, the target of a merge in progress.
    pub(super) followers: BTreeSet<Id>,
    /// The keys that were removed from the source or the target of a merge in progress.
    pub(super) removed: HashSet<Key>,
    /// The last begin of a merge into this filter.
    pub(super) merged: Event,
}

/// The filter that a rebuild fills.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mirror {
    pub(super) id: Id,
    /// The event after which it receives all keys. `NEVER` while that is not certain.
    pub(super) since: Event,
}
