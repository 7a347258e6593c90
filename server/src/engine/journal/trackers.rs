//! Which versions of each filter are in the log.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{lanes::End, progress::Progress};
use crate::store::FilterId;

/// The progress of all filters.
#[derive(Debug, Default)]
pub struct Trackers(HashMap<FilterId, Tracker>);

/// Which versions of a filter have been written.
#[derive(Debug)]
struct Tracker {
    progress: Arc<Progress>,
    versions: Versions,
}

/// A set of versions: all up to one, and some behind that.
#[derive(Debug, Clone)]
struct Versions {
    all_to: u64,
    ahead: BTreeSet<u64>,
}

impl Versions {
    fn insert(&mut self, version: u64) {
        if version != self.all_to + 1 {
            self.ahead.insert(version);
            return;
        }
        self.all_to = version;
        while self.ahead.first() == Some(&(self.all_to + 1)) {
            self.ahead.pop_first();
            self.all_to += 1;
        }
    }
}

impl Trackers {
    /// Follows a filter that has a version.
    pub fn begin(&mut self, filter: FilterId, version: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress::new(version));
        let tracker = Tracker {
            progress: progress.clone(),
            versions: Versions {
                all_to: version,
                ahead: BTreeSet::new(),
            },
        };
        self.0.insert(filter, tracker);
        progress
    }

    /// Ends the progress of a filter that is no more: nobody need wait for it.
    pub fn end(&mut self, filter: FilterId) {
        if let Some(tracker) = self.0.remove(&filter) {
            tracker.progress.move_to(u64::MAX);
        }
    }

    /// Notes what has been written, and tells those who wait for it.
    pub fn note(&mut self, ends: &[End]) {
        for ends in ends.chunk_by(|left, right| left.filter == right.filter) {
            let filter = ends.first().map(|end| end.filter);
            // One that has been deleted has none.
            let Some(tracker) = filter.and_then(|filter| self.0.get_mut(&filter)) else {
                continue;
            };
            let before = tracker.versions.all_to;
            ends.iter()
                .for_each(|end| tracker.versions.insert(end.version));
            if tracker.versions.all_to > before {
                tracker.progress.move_to(tracker.versions.all_to);
            }
        }
    }

    /// Whether all up to a version of a filter have been written, or it is no more.
    pub fn has_reached(&self, filter: FilterId, version: u64) -> bool {
        let tracker = self.0.get(&filter);
        tracker.is_none_or(|tracker| tracker.progress.has_reached(version))
    }

    /// Up to which version of each filter all would have been written if these had been.
    pub fn after(&self, ends: &[End]) -> HashMap<FilterId, u64> {
        let mut after: HashMap<FilterId, Versions> = HashMap::new();
        for (filter, tracker) in &self.0 {
            after.insert(*filter, tracker.versions.clone());
        }
        for end in ends {
            if let Some(versions) = after.get_mut(&end.filter) {
                versions.insert(end.version);
            }
        }
        let after = after.into_iter();
        after
            .map(|(filter, versions)| (filter, versions.all_to))
            .collect()
    }

    /// Has all who wait look again.
    pub fn wake_all(&self) {
        for tracker in self.0.values() {
            tracker.progress.wake_all();
        }
    }
}
