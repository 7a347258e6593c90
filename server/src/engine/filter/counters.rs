//! Counters that every call increments, at almost no cost.
//!
//! With one shared counter, its cache line would move between the cores at each call. Therefore
//! each thread increments counters of its own, and a read returns their sum.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::engine::per_thread::PerThread;

/// The number of lookups in a filter since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Keys looked up, by queries and by query-and-adds.
    pub queries: u64,
    /// The number of these keys that had been seen.
    pub hits: u64,
}

/// The counters of one filter: its [`Usage`], and the new keys since the last look at the whole
/// filter.
#[derive(Debug, Default)]
pub struct Counters {
    counts: PerThread<Counts>,
    /// The number of new keys of one thread after which a look at the filter is due.
    look_after: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    queries: AtomicU64,
    hits: AtomicU64,
    /// The new keys since this thread last found that a look was due.
    new_keys: AtomicU64,
}

impl Counters {
    /// Adds the lookups and hits of one call or batch. Call it once for each.
    #[inline]
    pub fn count(&self, queries: usize, hits: usize) {
        let counts = self.counts.own();
        counts.queries.fetch_add(queries as u64, Relaxed);
        counts.hits.fetch_add(hits as u64, Relaxed);
    }

    /// Counts the new keys of one call, and returns whether a look at the filter is due.
    #[inline]
    pub fn count_new(&self, keys: usize) -> bool {
        let new_keys = &self.counts.own().new_keys;
        let count = new_keys.fetch_add(keys as u64, Relaxed) + keys as u64;
        if count < self.look_after.load(Relaxed) {
            return false;
        }
        new_keys.store(0, Relaxed);
        true
    }

    /// Makes the next look due when a thread has counted `keys` new keys.
    pub fn look_after(&self, keys: u64) {
        self.look_after.store(keys, Relaxed);
    }

    /// Returns the sum over all threads.
    pub fn usage(&self) -> Usage {
        let sum = |field: fn(&Counts) -> &AtomicU64| {
            let numbers = self.counts.iter().map(field);
            numbers.map(|number| number.load(Relaxed)).sum()
        };
        Usage {
            queries: sum(|counts| &counts.queries),
            hits: sum(|counts| &counts.hits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let counters = Counters::default();
        let threads = counters.counts.count() + 3;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..1000).for_each(|_| counters.count(2, 1)));
            }
        });
        let calls = 1000 * threads as u64;
        assert_eq!(
            counters.usage(),
            Usage {
                queries: 2 * calls,
                hits: calls
            }
        );
    }
    #[test]
    fn a_look_is_due_after_so_many_new_keys() {
        let counters = Counters::default();
        assert!(counters.count_new(1), "nobody has looked yet");
        counters.look_after(10);
        let due: Vec<bool> = [4, 5, 1, 9, 30].map(|keys| counters.count_new(keys)).into();
        assert_eq!(due, [false, false, true, false, true]);
    }
}
