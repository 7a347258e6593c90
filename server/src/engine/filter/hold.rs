//! Holds: a filter refuses writes for a moment while another filter takes its place. The engine
//! makes the writes wait.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::Filter;

/// The hold flag of a filter.
#[derive(Debug, Default)]
pub struct Hold {
    is_held: AtomicBool,
    released: Notify,
}

/// A hold. Writes go on when it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Hold);

impl Filter {
    /// Makes new writes wait. Wait at the barrier for those in progress.
    pub fn hold(&self) -> Held<'_> {
        self.hold.is_held.store(true, Ordering::Release);
        Held(&self.hold)
    }

    /// Whether the filter is on hold. A write checks it after it has passed the barrier.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.hold.is_held.load(Ordering::Acquire)
    }

    /// Waits until the filter is not on hold.
    pub async fn released(&self) {
        let mut released = std::pin::pin!(self.hold.released.notified());
        // Registers the wait before the check, or it could miss the release.
        released.as_mut().enable();
        if self.is_held() {
            released.await;
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Self(hold) = self;
        hold.is_held.store(false, Ordering::Release);
        hold.released.notify_waiters();
    }
}
