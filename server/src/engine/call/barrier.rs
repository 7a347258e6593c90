//! The write barrier. A snapshot waits until all writes that are in progress have ended; writes
//! never wait for a snapshot. The algorithm is that of sleepable RCU (SRCU).
//!
//! # Algorithm
//!
//! A write increments a counter of its thread when it begins, and decrements it after its last bit
//! is set. Each thread has two counters; the epoch selects the one that a new write uses.
//! [`WriteBarrier::wait_for_writes`] waits for the counters that are not selected, advances the
//! epoch, and waits for the others. The first wait is necessary: a write may read the epoch, and
//! increment its counter only after the epoch has changed.
//!
//! # Guarantee
//!
//! Writer and waiter use read-modify-write operations on the same counter, so they are ordered. The
//! waiter either waits for the write, or the write sees everything that the waiter did before.

use crate::{
    engine::{error::EngineError, per_thread::PerThread},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Flag of a counter: the barrier is closed.
const CLOSED: u64 = 1;
/// Flag of a counter: a waiter waits for zero.
const AWAITED: u64 = 2;
/// The increment of one write.
const WRITE: u64 = 4;

/// Counts the writes in progress.
#[derive(Debug, Default)]
pub struct WriteBarrier {
    epoch: AtomicUsize,
    counters: PerThread<Counters>,
    /// Serialises waiters.
    waiter: Mutex<()>,
    /// The mutex of `zero`.
    look: Mutex<()>,
    zero: Condvar,
}

/// The two counters of one thread, or of a few.
#[derive(Debug, Default)]
struct Counters([AtomicU64; 2]);

/// The permit of one write. Hold it until the last bit is set, and never while waiting.
#[derive(Debug)]
pub struct Permit<'a> {
    barrier: &'a WriteBarrier,
    counter: &'a AtomicU64,
}

impl Counters {
    fn of(&self, epoch: usize) -> &AtomicU64 {
        let Self([even, odd]) = self;
        if epoch.is_multiple_of(2) { even } else { odd }
    }
}

impl WriteBarrier {
    /// Begins a write.
    ///
    /// # Errors
    ///
    /// [`EngineError::Stopping`] if the barrier has been closed.
    #[inline]
    pub fn pass(&self) -> Result<Permit<'_>, EngineError> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let counter = self.counters.own().of(epoch);
        let before = counter.fetch_add(WRITE, Ordering::AcqRel);
        let permit = Permit {
            barrier: self,
            counter,
        };
        match before & CLOSED {
            0 => Ok(permit),
            _ => Err(EngineError::Stopping),
        }
    }

    /// Blocks until all writes that have begun have ended. Does not delay writes that begin later,
    /// and does not wait for them.
    pub fn wait_for_writes(&self) {
        let _waiter = self.waiter.lock();
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.wait_for(epoch + 1);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        self.wait_for(epoch);
    }

    /// Refuses new writes from now on, and blocks until the writes in progress have ended.
    pub fn close(&self) {
        let _waiter = self.waiter.lock();
        for counters in self.counters.iter() {
            for epoch in [0, 1] {
                counters.of(epoch).fetch_or(CLOSED, Ordering::AcqRel);
            }
        }
        [0, 1].into_iter().for_each(|epoch| self.wait_for(epoch));
    }

    /// Blocks until the counters of an epoch are zero.
    fn wait_for(&self, epoch: usize) {
        let counters = || self.counters.iter().map(|counters| counters.of(epoch));
        for counter in counters() {
            counter.fetch_or(AWAITED, Ordering::AcqRel);
        }
        for counter in counters() {
            let mut look = self.look.lock();
            while counter.load(Ordering::Acquire) >= WRITE {
                self.zero.wait(&mut look);
            }
        }
        for counter in counters() {
            counter.fetch_and(!AWAITED, Ordering::Relaxed);
        }
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        let before = self.counter.fetch_sub(WRITE, Ordering::AcqRel);
        if before & AWAITED != 0 && before < 2 * WRITE {
            self.barrier.notify_zero();
        }
    }
}

impl WriteBarrier {
    #[cold]
    fn notify_zero(&self) {
        // Under the mutex, or the waiter could miss it between its check and its wait.
        let _look = self.look.lock();
        self.zero.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64},
        thread,
        time::Duration,
    };

    use super::*;

    #[test]
    fn a_write_that_has_begun_is_waited_for_and_one_that_begins_meanwhile_is_not() {
        let (barrier, is_over) = (WriteBarrier::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let begun = barrier.pass().unwrap();
            let waiter = scope.spawn(|| {
                barrier.wait_for_writes();
                is_over.load(Ordering::Acquire)
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            // A write of this thread, which has one in progress, and a write of another thread.
            let later = barrier.pass().unwrap();
            scope
                .spawn(|| drop(barrier.pass().unwrap()))
                .join()
                .unwrap();
            is_over.store(true, Ordering::Release);
            drop(begun);
            assert!(waiter.join().unwrap());
            drop(later);
        });
        barrier.wait_for_writes();
    }

    #[test]
    fn a_closed_barrier_lets_no_write_pass() {
        let barrier = WriteBarrier::default();
        thread::scope(|scope| {
            let begun = barrier.pass().unwrap();
            let closing = scope.spawn(|| barrier.close());
            while barrier.pass().is_ok() {
                thread::yield_now();
            }
            assert!(!closing.is_finished());
            drop(begun);
        });
        assert!(matches!(barrier.pass(), Err(EngineError::Stopping)));
        // Nobody waits for writes that were refused.
        barrier.wait_for_writes();
    }

    /// As in a snapshot: each write takes a number and, a little later, makes its change.
    #[test]
    fn what_has_a_number_at_the_begin_of_a_wait_is_done_at_its_end() {
        const WRITES: u64 = 20_000;
        let (barrier, given) = (WriteBarrier::default(), AtomicU64::new(0));
        let done: Vec<AtomicBool> = (0..=WRITES).map(|_| AtomicBool::new(false)).collect();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let _permit = barrier.pass().unwrap();
                        let number = given.fetch_add(1, Ordering::AcqRel) + 1;
                        let Some(done) = done.get(number as usize) else {
                            return;
                        };
                        if number.is_multiple_of(64) {
                            thread::yield_now();
                        }
                        done.store(true, Ordering::Relaxed);
                    }
                });
            }
            let mut from = 0;
            while from < WRITES {
                let to = given.load(Ordering::Acquire).min(WRITES);
                barrier.wait_for_writes();
                for number in from + 1..=to {
                    assert!(done[number as usize].load(Ordering::Relaxed), "{number}");
                }
                from = to;
            }
        });
    }
}
