//! A filter that takes no writes for a moment, because another one takes its place.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::GuardedFilter;

/// Whether a filter takes writes.
#[derive(Debug, Default)]
pub(super) struct Hold {
    is_held: AtomicBool,
    released: Notify,
}

/// Keeps a filter from taking writes, until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Hold);

impl GuardedFilter {
    /// Has writes wait that begin from now on. Those that have begun have ended when they have been
    /// waited for at the barrier.
    pub fn hold(&self) -> Held<'_> {
        self.hold.is_held.store(true, Ordering::Release);
        Held(&self.hold)
    }

    /// Whether writes have to wait. To be asked by those that have passed the barrier.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.hold.is_held.load(Ordering::Acquire)
    }

    /// Returns when the filter takes writes.
    pub async fn released(&self) {
        let mut released = std::pin::pin!(self.hold.released.notified());
        // From here on no change is missed.
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
