//! The trackers: for each filter, the versions that are in the log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{queues::End, versions::Versions, watermark::Watermark};
use crate::store::FilterId;

/// The watermark of all filters.
#[derive(Debug, Default)]
pub struct Trackers(HashMap<FilterId, Tracker>);

/// The versions of a filter that have been written.
#[derive(Debug)]
struct Tracker {
    watermark: Arc<Watermark>,
    versions: Arc<Versions>,
    written: Written,
}

/// A set of versions: all up to `all_to`, and some ranges after it.
#[derive(Debug, Clone)]
struct Written {
    all_to: u64,
    /// The first version of each range, and its last one.
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
    /// Notes versions as written. Each item is the first and the last version of a range.
    fn note(&mut self, versions: impl Iterator<Item = (u64, u64)>) {
        let before = self.written.all_to;
        versions.for_each(|(first, last)| self.written.insert(first, last));
        if self.written.all_to > before {
            self.watermark.move_to(self.written.all_to);
        }
    }
}

impl Trackers {
    /// Begins to track a filter, from its present version.
    pub fn begin(&mut self, filter: FilterId, versions: &Arc<Versions>) -> Arc<Watermark> {
        let all_to = versions.seal();
        versions.keep_unused();
        let watermark = Arc::new(Watermark::new(all_to));
        let tracker = Tracker {
            watermark: watermark.clone(),
            versions: versions.clone(),
            written: Written {
                all_to,
                ahead: BTreeMap::new(),
            },
        };
        self.0.insert(filter, tracker);
        watermark
    }

    /// Ends the watermark of a deleted filter: its waiters need not wait any more.
    pub fn end(&mut self, filter: FilterId) {
        if let Some(tracker) = self.0.remove(&filter) {
            tracker.watermark.move_to(u64::MAX);
        }
    }

    /// Notes written versions, and wakes the calls that wait for them.
    pub fn note(&mut self, ends: &[End]) {
        self.each(ends, |tracker, ends| {
            tracker.note(ends.iter().map(|end| (end.version, end.version)));
        });
    }

    /// Notes the unused versions of these filters as written: a waiter for a later version would
    /// wait for ever otherwise. A thread that leases versions appends the first of them, and this
    /// is called with that one, unless it was called since the lease.
    pub fn note_unused(&mut self, ends: &[End]) {
        self.each(ends, |tracker, _| {
            let unused = tracker.versions.take_unused().into_iter();
            tracker.note(unused.map(|range| (range.start, range.end - 1)));
        });
    }

    /// Calls `visit` once for each run of ends of the same filter, with these ends.
    fn each(&mut self, ends: &[End], mut visit: impl FnMut(&mut Tracker, &[End])) {
        for ends in ends.chunk_by(|left, right| left.filter == right.filter) {
            let filter = ends.first().map(|end| end.filter);
            // A deleted filter has no tracker.
            if let Some(tracker) = filter.and_then(|filter| self.0.get_mut(&filter)) {
                visit(tracker, ends);
            }
        }
    }

    /// Returns whether all versions up to this one have been written. It is true for a deleted
    /// filter.
    pub fn has_reached(&self, filter: FilterId, version: u64) -> bool {
        let tracker = self.0.get(&filter);
        tracker.is_none_or(|tracker| tracker.watermark.has_reached(version))
    }

    /// Returns, for each filter, the version up to which all would be written if these ends were.
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

    /// Wakes all waiters, so that each checks again.
    pub fn wake_all(&self) {
        for tracker in self.0.values() {
            tracker.watermark.wake_all();
        }
    }
}
