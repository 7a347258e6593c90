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

/// Counts the [`Usage`] of one filter.
#[derive(Debug, Default)]
pub struct Counters(Striped<Counts>);

#[derive(Debug, Default)]
struct Counts {
    queries: AtomicU64,
    hits: AtomicU64,
}

impl Counters {
    /// Adds what one call or batch asked. To be called once for each.
    #[inline]
    pub fn count(&self, queries: usize, hits: usize) {
        let counts = self.0.own();
        counts.queries.fetch_add(queries as u64, Relaxed);
        counts.hits.fetch_add(hits as u64, Relaxed);
    }

    /// The sum over all threads.
    pub fn usage(&self) -> Usage {
        let sum = |field: fn(&Counts) -> &AtomicU64| {
            let numbers = self.0.iter().map(field);
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
        let threads = counters.0.count() + 3;
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
}
