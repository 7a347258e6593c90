//! Those who wait for the log of a filter to reach a version.
//!
//! Each is woken when its own version is reached, and not with every move: of hundreds of calls
//! in flight a turn of the log brings a few further, and to look again costs a call about as much
//! as what it was for.

use std::{collections::BTreeMap, task::Waker};

use parking_lot::Mutex;

/// All who wait.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// By version and, among those of one, by a number of their own.
    wakers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

/// One who waits. No longer when dropped.
#[derive(Debug)]
pub struct Waiter<'a> {
    waiters: &'a Waiters,
    version: u64,
    /// `None` until it waits.
    number: Option<u64>,
}

impl Waiters {
    /// One who does not wait yet.
    pub fn waiter(&self, version: u64) -> Waiter<'_> {
        Waiter {
            waiters: self,
            version,
            number: None,
        }
    }

    /// Wakes those whose version has been reached.
    pub fn wake_to(&self, version: u64) {
        let reached = {
            let wakers = &mut self.0.lock().wakers;
            let later = match version.checked_add(1) {
                Some(next) => wakers.split_off(&(next, 0)),
                None => BTreeMap::new(),
            };
            std::mem::replace(wakers, later)
        };
        reached.into_values().for_each(Waker::wake);
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        self.wake_to(u64::MAX);
    }
}

impl Waiter<'_> {
    /// From now on is woken. What happened before is to be looked at after this.
    pub fn wait(&mut self, waker: &Waker) {
        let mut queue = self.waiters.0.lock();
        let number = *self.number.get_or_insert_with(|| {
            queue.next += 1;
            queue.next
        });
        queue.wakers.insert((self.version, number), waker.clone());
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let key = (self.version, number);
            let removed = self.waiters.0.lock().wakers.remove(&key);
            // Not with the lock held: it may be the last that knows of a task.
            drop(removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_is_woken_for_its_own_version() {
        let waiters = Waiters::default();
        let woken: [Arc<Woken>; 5] = Default::default();
        let mut all: Vec<Waiter<'_>> = [3, 5, 5, 9, u64::MAX]
            .into_iter()
            .map(|version| waiters.waiter(version))
            .collect();
        for (waiter, woken) in all.iter_mut().zip(&woken) {
            waiter.wait(&woken.clone().into());
        }
        let counts = || {
            woken
                .each_ref()
                .map(|woken| woken.0.load(Ordering::Relaxed))
        };
        waiters.wake_to(2);
        assert_eq!(counts(), [0, 0, 0, 0, 0]);
        waiters.wake_to(5);
        assert_eq!(counts(), [1, 1, 1, 0, 0]);
        // One that looked again in vain, and one that no longer waits.
        all[1].wait(&woken[1].clone().into());
        all[1].wait(&woken[1].clone().into());
        all.remove(3);
        waiters.wake_all();
        assert_eq!(counts(), [1, 2, 1, 0, 1]);
        drop(all);
        assert!(waiters.0.lock().wakers.is_empty());
    }
}
