//! Which versions of each filter are in the log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{lanes::End, progress::Progress};
use crate::{engine::versions::Versions, store::FilterId};

/// The progress of all filters.
#[derive(Debug, Default)]
pub struct Trackers(HashMap<FilterId, Tracker>);

/// Which versions of a filter have been written.
#[derive(Debug)]
struct Tracker {
    progress: Arc<Progress>,
    versions: Arc<Versions>,
    written: Written,
}

/// A set of versions: all up to one, and some behind that.
#[derive(Debug, Clone)]
struct Written {
    all_to: u64,
    /// The first and the last of each range of them.
    ahead: BTreeMap<u64, u64>,
}

impl Written {
    fn insert(&mut self, first: u64, last: u64) {
        if first != self.all_to + 1 {
            self.ahead.insert(first, last);
            return;
        }
        self.all_to = last;
        while let Some(next) = self.ahead.first_entry()
            && *next.key() == self.all_to + 1
        {
            self.all_to = next.remove();
        }
    }
}

impl Tracker {
    /// Notes versions as written, each from the first to the last of a range.
    fn note(&mut self, versions: impl Iterator<Item = (u64, u64)>) {
        let before = self.written.all_to;
        versions.for_each(|(first, last)| self.written.insert(first, last));
        if self.written.all_to > before {
            self.progress.move_to(self.written.all_to);
        }
    }
}

impl Trackers {
    /// Follows a filter from the version on that it has.
    pub fn begin(&mut self, filter: FilterId, versions: &Arc<Versions>) -> Arc<Progress> {
        let all_to = versions.settle();
        versions.keep_unused();
        let progress = Arc::new(Progress::new(all_to));
        let tracker = Tracker {
            progress: progress.clone(),
            versions: versions.clone(),
            written: Written {
                all_to,
                ahead: BTreeMap::new(),
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
        self.each(ends, |tracker, ends| {
            tracker.note(ends.iter().map(|end| (end.version, end.version)));
        });
    }

    /// Notes as written what no call will use of the versions of filters of which some others have
    /// just been handed over: whoever waits for one behind those would wait for ever. Whoever
    /// leases versions hands the first of them over, and so this is called with that or has been
    /// called since.
    pub fn note_unused(&mut self, ends: &[End]) {
        self.each(ends, |tracker, _| {
            let unused = tracker.versions.take_unused().into_iter();
            tracker.note(unused.map(|range| (range.start, range.end - 1)));
        });
    }

    /// Calls `visit` with the filter of some ends after the other, each with those ends.
    fn each(&mut self, ends: &[End], mut visit: impl FnMut(&mut Tracker, &[End])) {
        for ends in ends.chunk_by(|left, right| left.filter == right.filter) {
            let filter = ends.first().map(|end| end.filter);
            // One that has been deleted has none.
            if let Some(tracker) = filter.and_then(|filter| self.0.get_mut(&filter)) {
                visit(tracker, ends);
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
        let mut after: HashMap<FilterId, Written> = HashMap::new();
        for (filter, tracker) in &self.0 {
            after.insert(*filter, tracker.written.clone());
        }
        for end in ends {
            if let Some(written) = after.get_mut(&end.filter) {
                written.insert(end.version, end.version);
            }
        }
        let after = after.into_iter();
        after
            .map(|(filter, written)| (filter, written.all_to))
            .collect()
    }

    /// Has all who wait look again.
    pub fn wake_all(&self) {
        for tracker in self.0.values() {
            tracker.progress.wake_all();
        }
    }
}
