//! The sleep of a thread that gets its work from other threads.

use std::{sync::OnceLock, time::Duration};

use crate::sync::{
    atomic::{AtomicBool, Ordering, fence},
    thread::{self, Thread},
};

/// A thread that sleeps when it has nothing to do, and that others can wake. To wake it costs no
/// system call if it is awake.
#[derive(Debug, Default)]
pub struct Parker {
    is_asleep: AtomicBool,
    /// The thread, from its first sleep on.
    thread: OnceLock<Thread>,
}

impl Parker {
    /// Wakes the thread, so that it finds the work that was left for it before this call.
    pub fn wake(&self) {
        // Either this call sees that the thread is asleep, or the thread sees the new work.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Acquire)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until another thread wakes it or the time is up, if it has nothing to do. Only one
    /// thread calls this.
    pub fn sleep(&self, has_nothing_to_do: impl FnOnce() -> bool, time: Option<Duration>) {
        self.thread.get_or_init(thread::current);
        // Releases `thread`.
        self.is_asleep.store(true, Ordering::Release);
        // See `wake`.
        fence(Ordering::SeqCst);
        if has_nothing_to_do() {
            match time {
                Some(time) => thread::park_timeout(time),
                None => thread::park(),
            }
        }
        self.is_asleep.store(false, Ordering::Relaxed);
    }
}
