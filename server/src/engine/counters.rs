//! Counters that every call adds to, at next to no cost.
//!
//! One shared word would travel between the cores with each call. Each thread therefore
//! adds to one of several stripes, each in a cache line of its own, and reading sums them.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crossbeam_utils::CachePadded;

/// More than this many threads share stripes, correctly and somewhat slower.
const STRIPES: usize = 16;

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
pub struct Counters {
    stripes: [CachePadded<Stripe>; STRIPES],
}

#[derive(Debug, Default)]
struct Stripe {
    queries: AtomicU64,
    hits: AtomicU64,
}

impl Counters {
    /// Adds what one call or batch asked. To be called once for each.
    #[expect(
        clippy::indexing_slicing,
        reason = "there are `STRIPES`, and each thread has one of them"
    )]
    #[inline]
    pub fn count(&self, queries: usize, hits: usize) {
        let stripe = &self.stripes[stripe_of_this_thread()];
        stripe.queries.fetch_add(queries as u64, Relaxed);
        stripe.hits.fetch_add(hits as u64, Relaxed);
    }

    /// The sum over all threads.
    pub fn usage(&self) -> Usage {
        let sum = |field: fn(&Stripe) -> &AtomicU64| {
            self.stripes
                .iter()
                .map(|stripe| field(stripe).load(Relaxed))
                .sum()
        };
        Usage {
            queries: sum(|stripe| &stripe.queries),
            hits: sum(|stripe| &stripe.hits),
        }
    }
}

/// A number for this thread: others have it too only where there are many.
pub fn stripe_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Relaxed) % STRIPES);
    }
    STRIPE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES + 3 {
                scope.spawn(|| (0..1000).for_each(|_| counters.count(2, 1)));
            }
        });
        let calls = 1000 * (STRIPES as u64 + 3);
        assert_eq!(
            counters.usage(),
            Usage {
                queries: 2 * calls,
                hits: calls
            }
        );
    }
}
