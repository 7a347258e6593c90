//! Where callers leave their keys, and the gatherer finds them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use tokio::sync::Notify;

use super::callers::{Answer, Callers};
use crate::error::Error;

/// The most keys of a batch.
pub(super) const MAX_KEYS: usize = 1024;
/// A batch takes no more keys once it has so many bytes of them, and none that is longer.
pub(super) const ENOUGH_BYTES: usize = 256 << 10;

/// The callers that are to be sent, in batches.
#[derive(Default)]
pub(super) struct Queue {
    batches: Mutex<Batches>,
    /// Whether there is something to look at: the first caller of a batch, or the end.
    news: Notify,
}

#[derive(Default)]
struct Batches {
    /// None of them empty. Callers join the last.
    waiting: VecDeque<Callers>,
    closed: bool,
}

impl Queue {
    /// Leaves a key to be sent, for one who is woken when there is an answer.
    pub fn join(&self, key: &[u8], waker: &Waker) -> Result<Answer, Error> {
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

    /// Waits until there may be more to send than when this was last waited for, or no more can
    /// come. Cancelling this loses nothing.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Whether nobody waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// The keys of the batch that is to be sent next; `None` if it takes no more.
    pub fn next_keys(&self) -> Option<usize> {
        let batches = self.lock();
        let next = batches.waiting.front().filter(|next| !is_full(next));
        next.map(|next| next.keys().len())
    }

    /// Takes a batch to be sent.
    pub fn take(&self) -> Option<Callers> {
        self.lock().waiting.pop_front()
    }

    /// Puts batches before those that wait.
    pub fn put_back(&self, batches: impl DoubleEndedIterator<Item = Callers>) {
        let mut all = self.lock();
        for batch in batches.rev() {
            all.waiting.push_front(batch);
        }
    }

    /// Has nobody join any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    /// Whether there is nobody, and nobody can come.
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
