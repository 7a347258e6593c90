//! Values behind striped locks.
//!
//! A lock guards a stripe: one value, or several neighbours if there are many values. Taking a lock
//! waits for everything that the processor has in progress, also for prefetches. In a filter far
//! larger than the caches, this takes longer than the work on a key. So there are only as many locks
//! as keep the cores from waiting for each other, and a batch takes each lock for many keys.

use crossbeam_utils::CachePadded;

use super::one_or_many::OneOrMany;
use crate::sync::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, cores,
};

/// The greatest number of locks for each core of the machine. A core holds one at a time. With 32
/// locks for each core, two cores still met at a lock so often that they lost a tenth of their
/// time. With twice as many as here, a batch of 1,000 takes a third longer
/// (`docs/adr/0005-locks.md`).
const STRIPES_A_CORE: usize = 128;

/// Returns the greatest number of locks that a filter has.
pub fn most_stripes() -> usize {
    STRIPES_A_CORE * cores()
}

/// Returns the number of neighbours that one of at most `stripes` locks guards, if there are `count`
/// in all: a power of two.
fn width(count: usize, stripes: usize) -> usize {
    count.div_ceil(stripes).next_power_of_two()
}

/// A lock, and the neighbours that it guards.
pub type Stripe<T> = CachePadded<RwLock<OneOrMany<T>>>;

/// Values with an index, each behind one of a few locks.
#[derive(Debug)]
pub struct Stripes<T> {
    /// The stripes, each in a cache line of its own. Otherwise cores would contend for different
    /// locks.
    stripes: Box<[Stripe<T>]>,
    /// The number of values in each stripe, as a power of two. The last stripe can have fewer.
    log2_width: u32,
}

impl<T> Stripes<T> {
    /// Puts values behind as many locks as the machine has use for.
    pub fn new(values: impl ExactSizeIterator<Item = T>) -> Self {
        let width = width(values.len(), most_stripes());
        Self::of_width(values, width)
    }

    /// Puts `width` values behind each lock.
    fn of_width(mut values: impl Iterator<Item = T>, width: usize) -> Self {
        let stripes = std::iter::from_fn(|| {
            let stripe: OneOrMany<T> = values.by_ref().take(width).collect();
            (!stripe.is_empty()).then(|| CachePadded::new(RwLock::new(stripe)))
        });
        Self {
            stripes: stripes.collect(),
            log2_width: width.trailing_zeros(),
        }
    }

    /// Returns the locks, each with its values.
    #[inline]
    pub fn locks(&self) -> &[Stripe<T>] {
        &self.stripes
    }

    /// Returns the index of the stripe that a value is in.
    #[inline]
    pub fn stripe_of(&self, index: usize) -> usize {
        index >> self.log2_width
    }

    /// Returns the index of the first value in a stripe.
    #[inline]
    pub fn first_of(&self, stripe: usize) -> usize {
        stripe << self.log2_width
    }

    #[inline]
    fn locate(&self, index: usize) -> (usize, usize) {
        let stripe = self.stripe_of(index);
        (stripe, index - self.first_of(stripe))
    }

    /// Locks a value against writers.
    ///
    /// # Panics
    ///
    /// This method and those like it panic if there is no such value.
    #[expect(clippy::indexing_slicing, reason = "the caller's part of the bargain")]
    #[inline]
    pub fn read(&self, index: usize) -> MappedRwLockReadGuard<'_, T> {
        let (stripe, place) = self.locate(index);
        RwLockReadGuard::map(self.stripes[stripe].read(), |values| &values[place])
    }

    /// Locks a value against readers and writers.
    #[expect(clippy::indexing_slicing, reason = "as for `read`")]
    #[inline]
    pub fn write(&self, index: usize) -> MappedRwLockWriteGuard<'_, T> {
        let (stripe, place) = self.locate(index);
        RwLockWriteGuard::map(self.stripes[stripe].write(), |values| &mut values[place])
    }

    /// Returns a value of a filter that no other thread uses yet.
    #[expect(clippy::indexing_slicing, reason = "as for `read`")]
    pub fn get_mut(&mut self, index: usize) -> &mut T {
        let (stripe, place) = self.locate(index);
        &mut self.stripes[stripe].get_mut()[place]
    }

    /// Calls `visit` with each value, its stripe locked against writers.
    pub fn for_each(&self, mut visit: impl FnMut(&T)) {
        for stripe in &self.stripes {
            stripe.read().iter().for_each(&mut visit);
        }
    }

    /// Calls `visit` with each value, its stripe locked against readers and writers.
    pub fn for_each_mut(&self, mut visit: impl FnMut(&mut T)) {
        for stripe in &self.stripes {
            stripe.write().iter_mut().for_each(&mut visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_place_behind_few_locks() {
        for (most, expected) in [
            (1, 1),
            (7, 5),
            (150, 150),
            (256, 150),
            (300, 300),
            (1000, 300),
        ] {
            let mut stripes = Stripes::of_width([0; 300].into_iter(), width(300, most));
            assert_eq!(stripes.locks().len(), expected);
            for index in 0..300 {
                *stripes.get_mut(index) = index;
            }
            for index in 0..300 {
                assert_eq!(*stripes.read(index), index);
                assert_eq!(*stripes.write(index), index);
            }
        }
    }
}
