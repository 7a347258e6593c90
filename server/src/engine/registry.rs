//! The filters by name.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use parking_lot::RwLock;

use super::guarded::GuardedFilter;
use crate::store::FilterName;

/// The filters that calls can reach. Looking one up takes a shared lock for a moment.
#[derive(Debug, Default)]
pub struct Registry {
    filters: RwLock<BTreeMap<FilterName, Arc<GuardedFilter>>>,
}

impl Registry {
    /// The filter of a name.
    pub fn get(&self, name: &FilterName) -> Option<Arc<GuardedFilter>> {
        self.filters.read().get(name).cloned()
    }

    /// Up to `count` filters in the order of their names, those after `after` alone.
    pub fn list(&self, after: Option<&FilterName>, count: usize) -> Vec<Arc<GuardedFilter>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let filters = self.filters.read();
        filters
            .range::<FilterName, _>((from, Bound::Unbounded))
            .map(|(_, filter)| filter.clone())
            .take(count)
            .collect()
    }

    /// Makes a filter reachable, in the place of one of the same name.
    pub fn insert(&self, filter: Arc<GuardedFilter>) {
        self.filters.write().insert(filter.name().clone(), filter);
    }

    /// Makes a filter unreachable. Its memory goes when the last call with it ends.
    pub fn remove(&self, name: &FilterName) {
        self.filters.write().remove(name);
    }
}
