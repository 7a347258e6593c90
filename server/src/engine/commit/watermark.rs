//! The watermark of the log of a filter, and the answers that wait for it.
//!
//! A filter gives its changes versions. Each version is written to the log once, or is known to
//! belong to no change. The [`Watermark`] of a filter is the version up to which *all* versions are
//! written (and synced, if the durability mode demands it). An answer that depends on a version
//! waits until the watermark has reached it. Then all that the call has seen or changed is as
//! durable as the mode demands.
//!
//! # Wake-ups
//!
//! A waiter is woken when its own version is reached, and not each time the watermark moves: of
//! hundreds of calls in flight, a turn of the log completes only a few. The log wakes only one of
//! these waiters on each thread. That waiter wakes the others of its thread when it is dropped.
//!
//! The reason: a task that another thread wakes runs alone, and its answer is sent alone. Tasks
//! that are woken on their own thread run one after the other, and their answers are sent together.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    task::{Poll, Waker},
};

use crate::{
    engine::per_thread::PerThread,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// The watermark of the log of a filter.
#[derive(Debug, Default)]
pub struct Watermark {
    version: AtomicU64,
    /// The waiters, each in the queue of its thread.
    pub(in crate::engine) queues: PerThread<Mutex<Queue>>,
}

#[derive(Debug, Default)]
pub(in crate::engine) struct Queue {
    /// The wakers, by version and then by the number of the waiter.
    pub(in crate::engine) wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

/// A call that may wait for a version. It stops waiting when dropped.
#[derive(Debug)]
pub(in crate::engine) struct Waiter<'a> {
    watermark: &'a Watermark,
    version: u64,
    queue: &'a Mutex<Queue>,
    /// The number in the queue; `None` until it waits.
    number: Option<u64>,
}

impl Watermark {
    /// Creates the watermark of a filter whose log has reached the given version.
    pub fn new(version: u64) -> Self {
        Self {
            version: AtomicU64::new(version),
            ..Self::default()
        }
    }

    /// Returns whether this version and all before it are as durable as the mode demands.
    #[inline]
    pub fn has_reached(&self, version: u64) -> bool {
        self.version() >= version
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits until the version is reached. Fails if `check` fails; `check` runs again each time
    /// [all waiters are woken](Self::wake_all).
    pub async fn reached<E>(
        &self,
        version: u64,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut waiter = self.waiter(version);
        poll_fn(|context| {
            if self.has_reached(version) {
                return Poll::Ready(Ok(()));
            }
            waiter.wait(context.waker());
            // From here on no move is missed.
            if self.has_reached(version) {
                return Poll::Ready(Ok(()));
            }
            match check() {
                Ok(()) => Poll::Pending,
                failed => Poll::Ready(failed),
            }
        })
        .await
    }

    /// Sets the version, and wakes the waiters for this version and earlier ones.
    pub fn move_to(&self, version: u64) {
        self.version.store(version, Ordering::Release);
        for queue in self.queues.iter() {
            let first = queue.lock().pop_to(version);
            first.into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes all waiters, so that each checks again.
    pub fn wake_all(&self) {
        for queue in self.queues.iter() {
            let all = std::mem::take(&mut queue.lock().wakers);
            all.into_values().for_each(Waker::wake);
        }
    }

    /// Returns a waiter that does not wait yet.
    pub(in crate::engine) fn waiter(&self, version: u64) -> Waiter<'_> {
        Waiter {
            watermark: self,
            version,
            queue: self.queues.own(),
            number: None,
        }
    }
}

impl Queue {
    /// Removes and returns the first waker whose version is not greater than the given one.
    fn pop_to(&mut self, version: u64) -> Option<Waker> {
        let first = self.wakers.first_entry()?;
        (first.key().0 <= version).then(|| first.remove())
    }
}

impl Waiter<'_> {
    /// Adds the waiter to its queue. The caller must check the watermark again after this: a move
    /// before this call does not wake the waiter.
    pub(in crate::engine) fn wait(&mut self, waker: &Waker) {
        let mut queue = self.queue.lock();
        let number = *self.number.get_or_insert_with(|| {
            queue.next += 1;
            queue.next
        });
        queue.wakers.insert((self.version, number), waker.clone());
    }
}

impl Drop for Waiter<'_> {
    /// Wakes the next waiters of the queue. This waiter may be the one that the log has woken to
    /// wake the others, whether it has its answer or was cancelled.
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let own = self.queue.lock().wakers.remove(&(self.version, number));
        // Neither is done with the lock held: each waker may be the last reference to a task.
        drop(own);
        let version = self.watermark.version();
        loop {
            let next = self.queue.lock().pop_to(version);
            match next {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}
