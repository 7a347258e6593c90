//! PerThread values: each thread has a stripe of its own, so that a call does not have to fetch a
//! cache line from another core.
//!
//! The number of stripes is the number of threads that serve calls at one time, and a few more for
//! other threads. If threads share a stripe, everything stays correct, and is somewhat slower.

use crossbeam_utils::CachePadded;

use crate::sync::{number_of_this_thread, stripes};

/// One value for each thread, each in a cache line of its own.
#[derive(Debug)]
pub struct PerThread<T>(Box<[CachePadded<T>]>);

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        // A power of two, so that a mask selects the stripe of a thread.
        let count = stripes().next_power_of_two();
        Self((0..count).map(|_| CachePadded::default()).collect())
    }
}

impl<T> PerThread<T> {
    /// Returns the stripe of this thread.
    #[expect(
        clippy::indexing_slicing,
        reason = "a mask of one less than the number, a power of two"
    )]
    #[inline]
    pub fn own(&self) -> &T {
        &self.0[number_of_this_thread() & (self.0.len() - 1)]
    }

    /// Returns all stripes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &**stripe)
    }

    /// Returns the number of stripes.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, ptr, thread};

    use super::*;

    #[test]
    fn a_thread_keeps_its_own_and_others_have_others() {
        let per_thread = PerThread::<u64>::default();
        let own = || {
            let own = per_thread.own();
            assert!(ptr::eq(own, per_thread.own()));
            ptr::from_ref(own).addr()
        };
        let own: HashSet<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..per_thread.count()).map(|_| scope.spawn(own)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        // Threads of other tests have numbers in between.
        assert!(own.len() > per_thread.count() / 2, "{}", own.len());
        assert_eq!(per_thread.iter().count(), per_thread.count());
    }
}
