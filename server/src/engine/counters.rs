//! Counters that every call adds to, at next to no cost.
//!
//! One shared word would travel between the cores with each call. Each thread therefore
//! adds to numbers of its own, and reading sums them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::striped::Striped;

/// What has been asked of a filter since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Keys looked up, by queries and by query-and-adds.
    pub queries: u64,
    /// Those of them that had been seen.
    pub hits: u64,
}

/// Counts the [`Usage`] of one filter, and the new keys since somebody looked at all of it.
#[derive(Debug, Default)]
pub struct Counters {
    counts: Striped<Counts>,
    /// The new keys of one thread after which the filter is looked at.
    look_after: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    queries: AtomicU64,
    hits: AtomicU64,
    /// New keys since this thread found that a look was due.
    new_keys: AtomicU64,
}

impl Counters {
    /// Adds what one call or batch asked. To be called once for each.
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

    /// Makes the next look due when a thread has counted so many new keys.
    pub fn look_after(&self, keys: u64) {
        self.look_after.store(keys, Relaxed);
    }

    /// The sum over all threads.
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
