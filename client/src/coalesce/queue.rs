//! The queue in which callers leave their keys for the gatherer.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use tokio::sync::Notify;

use super::callers::{Callers, PendingAnswer};
use crate::error::Error;

/// The maximum number of keys in a batch.
pub(super) const MAX_KEYS: usize = 1024;
/// The size at which a batch takes no more keys, in bytes. A longer key does not go in a batch.
pub(super) const ENOUGH_BYTES: usize = 256 << 10;

/// The callers whose keys wait to be sent, in batches.
#[derive(Default)]
pub(super) struct Queue {
    batches: Mutex<Batches>,
    /// Wakes the gatherer at the first caller of a batch, and at the end.
    news: Notify,
}

#[derive(Default)]
struct Batches {
    /// The waiting batches, none of them empty. A new caller joins the last one.
    waiting: VecDeque<Callers>,
    closed: bool,
}

impl Queue {
    /// Adds a key to be sent. `waker` is woken when the answer has come.
    pub fn join(&self, key: &[u8], waker: &Waker) -> Result<PendingAnswer, Error> {
        let mut batches = self.lock();
        if batches.closed {
            return Err(Error::StreamClosed);
        }
        if let Some(last) = batches.waiting.back_mut().filter(|last| !is_full(last)) {
            return Ok(last.join(key, waker));
        }
        let mut first = Callers::default();
        let answer = first.join(key, waker);
        batches.waiting.push_back(first);
        drop(batches);
        self.news.notify_one();
        Ok(answer)
    }

    /// Waits until there may be more to send than at the last wait, or until no more can come.
    /// Cancelling this loses nothing.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Returns whether no caller waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Returns the number of keys in the next batch; `None` if it takes no more keys.
    pub fn next_keys(&self) -> Option<usize> {
        let batches = self.lock();
        let next = batches.waiting.front().filter(|next| !is_full(next));
        next.map(|next| next.keys().len())
    }

    /// Takes the next batch to send.
    pub fn take(&self) -> Option<Callers> {
        self.lock().waiting.pop_front()
    }

    /// Puts batches back before the waiting ones.
    pub fn put_back(&self, batches: impl DoubleEndedIterator<Item = Callers>) {
        let mut all = self.lock();
        for batch in batches.rev() {
            all.waiting.push_front(batch);
        }
    }

    /// Closes the queue: no caller can join any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    /// Returns whether the queue is closed and empty.
    pub fn has_ended(&self) -> bool {
        let batches = self.lock();
        batches.closed && batches.waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_full(callers: &Callers) -> bool {
    callers.keys().len() >= MAX_KEYS || callers.keys().encoded_bytes() >= ENOUGH_BYTES
}
