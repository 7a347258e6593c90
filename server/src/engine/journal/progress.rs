//! How far the log of a filter has come, and who waits for it.
//!
//! A filter gives its changes versions, and each comes to the log once, or is known to be of no
//! change. The [`Progress`] of a filter is the version up to which *all* have been written (and
//! synced, as is demanded). An answer that rests on a version waits until progress is there:
//! whatever it has seen or changed is then as durable as it is to be.
//!
//! # Who wakes whom
//!
//! Each is woken when its own version is reached, and not with every move: of hundreds of calls
//! in flight a turn of the log brings a few further. And the log wakes one of those alone on each
//! thread, which wakes the others when it no longer waits. A task that another thread wakes is
//! run by itself, and its answer sent by itself; those that are woken on their own thread run one
//! after the other, and their answers leave together.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    task::{Poll, Waker},
};

use crate::{
    engine::striped::Striped,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// How far the log of a filter has come.
#[derive(Debug, Default)]
pub struct Progress {
    version: AtomicU64,
    /// Those who wait: each in the queue of its thread.
    pub(super) queues: Striped<Mutex<Queue>>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By version and, among those of one, by a number of their own.
    pub(super) wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

/// One who may wait for a version. No longer when dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    progress: &'a Progress,
    version: u64,
    queue: &'a Mutex<Queue>,
    /// `None` until it waits.
    number: Option<u64>,
}

impl Progress {
    /// Of a filter whose log has come to a version.
    pub fn new(version: u64) -> Self {
        Self {
            version: AtomicU64::new(version),
            ..Self::default()
        }
    }

    /// Whether a version and all before it are as durable as they are to be.
    #[inline]
    pub fn has_reached(&self, version: u64) -> bool {
        self.version() >= version
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits until a version is reached, or `check` fails, which is done whenever
    /// [all are woken](Self::wake_all).
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

    /// Tells those who wait for a version, or an earlier one, that it is reached.
    pub fn move_to(&self, version: u64) {
        self.version.store(version, Ordering::Release);
        for queue in self.queues.iter() {
            let first = queue.lock().pop_to(version);
            first.into_iter().for_each(Waker::wake);
        }
    }

    /// Has all who wait look again.
    pub fn wake_all(&self) {
        for queue in self.queues.iter() {
            let all = std::mem::take(&mut queue.lock().wakers);
            all.into_values().for_each(Waker::wake);
        }
    }

    /// One who does not wait yet.
    pub(super) fn waiter(&self, version: u64) -> Waiter<'_> {
        Waiter {
            progress: self,
            version,
            queue: self.queues.own(),
            number: None,
        }
    }
}

impl Queue {
    /// Removes the first who waits for no more than a version.
    fn pop_to(&mut self, version: u64) -> Option<Waker> {
        let first = self.wakers.first_entry()?;
        (first.key().0 <= version).then(|| first.remove())
    }
}

impl Waiter<'_> {
    /// From now on is woken. What happened before is to be looked at after this.
    pub(super) fn wait(&mut self, waker: &Waker) {
        let mut queue = self.queue.lock();
        let number = *self.number.get_or_insert_with(|| {
            queue.next += 1;
            queue.next
        });
        queue.wakers.insert((self.version, number), waker.clone());
    }
}

impl Drop for Waiter<'_> {
    /// Wakes those beside it: whether it was told or has given up, it may be the one of its
    /// queue that was to tell the others.
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let own = self.queue.lock().wakers.remove(&(self.version, number));
        // Neither with the lock held: each may be the last that knows of a task.
        drop(own);
        let version = self.progress.version();
        loop {
            let next = self.queue.lock().pop_to(version);
            match next {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}
