//! The filters by name.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use arc_swap::{ArcSwap, Guard};

use super::guarded::GuardedFilter;
use crate::store::FilterName;

type Filters = BTreeMap<FilterName, Arc<GuardedFilter>>;

/// The filters that calls can reach. Looking one up writes nothing that other threads read, or
/// every call on every core would contend for it; making and removing filters copies the list.
#[derive(Debug, Default)]
pub struct Registry {
    filters: ArcSwap<Filters>,
}

/// The filters as they are at one moment.
pub struct View(Guard<Arc<Filters>>);

impl View {
    /// The filter of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<GuardedFilter>> {
        self.0.get(name)
    }
}

impl Registry {
    /// The filters as they are now. To be held for one call.
    pub fn now(&self) -> View {
        View(self.filters.load())
    }

    /// The filter of a name.
    pub fn get(&self, name: &FilterName) -> Option<Arc<GuardedFilter>> {
        self.now().get(name.as_str()).cloned()
    }

    /// Up to `count` filters in the order of their names, those after `after` alone.
    pub fn list(&self, after: Option<&FilterName>, count: usize) -> Vec<Arc<GuardedFilter>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let filters = self.filters.load();
        filters
            .range::<FilterName, _>((from, Bound::Unbounded))
            .map(|(_, filter)| filter.clone())
            .take(count)
            .collect()
    }

    /// Makes a filter reachable, in the place of one of the same name.
    pub fn insert(&self, filter: Arc<GuardedFilter>) {
        self.change(|filters| {
            filters.insert(filter.name(), filter.clone());
        });
    }

    /// Makes a filter unreachable. Its memory goes when the last call with it ends.
    pub fn remove(&self, name: &FilterName) {
        self.change(|filters| {
            filters.remove(name);
        });
    }

    /// Makes a filter reachable under its name, and no longer under the one that it had.
    pub fn rename(&self, from: &FilterName, filter: &Arc<GuardedFilter>) {
        self.change(|filters| {
            filters.remove(from);
            filters.insert(filter.name(), filter.clone());
        });
    }

    fn change(&self, change: impl Fn(&mut Filters)) {
        self.filters.rcu(|filters| {
            let mut filters = Filters::clone(filters);
            change(&mut filters);
            filters
        });
    }
}
