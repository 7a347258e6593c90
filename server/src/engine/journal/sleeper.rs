//! The sleep of a thread that others give work to.

use std::{sync::OnceLock, time::Duration};

use crate::sync::{
    atomic::{AtomicBool, Ordering, fence},
    thread::{self, Thread},
};

/// One thread that sleeps when it has nothing to do, and those who wake it. To wake one that is
/// awake costs no call to the system.
#[derive(Debug, Default)]
pub struct Sleeper {
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Sleeper {
    /// Tells which thread it is. Until then nobody wakes it.
    pub fn set_thread(&self, thread: Thread) {
        // It is told once.
        let _ = self.thread.set(thread);
    }

    /// Has the thread look for work, which has been left for it before this.
    pub fn wake(&self) {
        // Either this sees that the thread is asleep, or the thread sees what there is.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until it is woken or time is up, if there is nothing to do. Of the thread itself.
    pub fn sleep(&self, has_nothing_to_do: impl FnOnce() -> bool, time: Option<Duration>) {
        self.is_asleep.store(true, Ordering::Relaxed);
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
