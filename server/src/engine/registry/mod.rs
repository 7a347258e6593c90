//! The filters by name.

mod mirror;

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use arc_swap::{ArcSwap, Guard};

pub use self::mirror::Mirror;
use super::filter::Filter;
use crate::store::FilterName;

type Filters = BTreeMap<FilterName, Entry>;

/// The filters that calls can reach. A lookup writes nothing that other threads read, because all
/// cores would contend for it. Adding and removing a filter copies the map.
#[derive(Debug, Default)]
pub struct Registry {
    filters: ArcSwap<Filters>,
}

/// The registry entry of a name.
#[derive(Debug, Clone)]
pub enum Entry {
    Filter(Arc<Filter>),
    /// A filter that is rebuilt.
    Mirrored(Arc<Mirror>),
}

/// A view of the registry at one moment.
pub struct View(Guard<Arc<Filters>>);

impl View {
    /// Returns the entry of a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }

    /// Returns the filter that is being rebuilt as `mirror`.
    pub fn rebuilt_as(&self, mirror: &Filter) -> Option<&Arc<Filter>> {
        let mut entries = self.0.values();
        let entry = entries.find(|entry| entry.is_rebuilt_as(mirror))?;
        Some(entry.filter())
    }
}

impl Entry {
    /// Returns the filter that answers the calls.
    pub fn filter(&self) -> &Arc<Filter> {
        match self {
            Self::Filter(filter) => filter,
            Self::Mirrored(mirror) => mirror.of(),
        }
    }

    /// Returns the mirror, if the filter is rebuilt.
    pub fn mirror(&self) -> Option<&Arc<Mirror>> {
        match self {
            Self::Filter(_) => None,
            Self::Mirrored(mirror) => Some(mirror),
        }
    }

    /// Returns the filter or the mirror that is on hold, if either is.
    pub fn held(&self) -> Option<&Arc<Filter>> {
        let mirror = self.mirror().map(|mirror| mirror.filter());
        let mut filters = [Some(self.filter()), mirror].into_iter().flatten();
        filters.find(|filter| filter.is_held())
    }

    fn is_rebuilt_as(&self, filter: &Filter) -> bool {
        self.mirror()
            .is_some_and(|mirror| mirror.filter().id() == filter.id())
    }
}

impl Registry {
    /// Returns a view of the registry now. Hold it for one call only.
    pub fn now(&self) -> View {
        View(self.filters.load())
    }

    /// Returns the filter of a name.
    pub fn get(&self, name: &FilterName) -> Option<Arc<Filter>> {
        let entry = |entry: &Entry| entry.filter().clone();
        self.now().get(name.as_str()).map(entry)
    }

    /// Returns the number of filters.
    pub fn count(&self) -> usize {
        self.filters.load().len()
    }

    /// Returns up to `count` filters in the order of their names, only those after `after`.
    pub fn list(&self, after: Option<&FilterName>, count: usize) -> Vec<Arc<Filter>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let filters = self.filters.load();
        filters
            .range::<FilterName, _>((from, Bound::Unbounded))
            .map(|(_, entry)| entry.filter().clone())
            .take(count)
            .collect()
    }

    /// Makes a filter reachable, in the place of a filter of the same name.
    pub fn insert(&self, filter: Arc<Filter>) {
        self.change(|filters| {
            filters.insert(filter.name(), Entry::Filter(filter.clone()));
        });
    }

    /// Makes a filter unreachable, and ends its part in a rebuild. Its memory is freed when the
    /// last call that uses it ends.
    pub fn remove(&self, name: &FilterName) {
        self.change(|filters| {
            let Some(removed) = filters.remove(name) else {
                return;
            };
            for entry in filters.values_mut() {
                if entry.is_rebuilt_as(removed.filter()) {
                    *entry = Entry::Filter(entry.filter().clone());
                }
            }
        });
    }

    /// Makes a filter reachable under its new name, and no longer under `from`. A filter that had
    /// the new name becomes unreachable.
    pub fn rename(&self, from: &FilterName, filter: &Arc<Filter>) {
        self.change(|filters| {
            let renamed = match filters.remove(from) {
                Some(Entry::Mirrored(mirror)) => Entry::Mirrored(mirror),
                _ => Entry::Filter(filter.clone()),
            };
            filters.insert(filter.name(), renamed);
        });
    }

    /// Sets the mirror of a filter: from now on, calls that change the filter change the mirror
    /// too. Makes the mirror reachable under its own name.
    pub fn set_mirror(&self, mirror: &Arc<Mirror>) {
        self.change(|filters| {
            let filter = mirror.filter().clone();
            filters.insert(filter.name(), Entry::Filter(filter));
            if let Some(entry) = filters.get_mut(&mirror.of().name()) {
                *entry = Entry::Mirrored(mirror.clone());
            }
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
