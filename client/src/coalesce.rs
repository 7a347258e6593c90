//! Single calls of one process, gathered into batches on a stream.
//!
//! A worker that asks for one URL at a time is the simplest and the slowest: each call costs both
//! sides many times the cost of its key in a batch. So the callers of one process leave their keys
//! in a [queue], encoded as they go over the wire. A [task](gatherer) sends the keys that have
//! gathered as soon as there is [room](flight) for one more batch in flight.
//!
//! No caller waits for a batch to fill. A single caller is sent at once, and more callers make
//! larger batches.

mod callers;
mod flight;
mod gatherer;
mod queue;

use std::{fmt, future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use self::{
    gatherer::Gatherer,
    queue::{ENOUGH_BYTES, Queue},
};
use crate::{client::Client, error::Error};

/// A client that sends concurrent single calls together, see [`Client::coalescing`]. It is cheap to
/// clone, and clones gather into the same batches.
#[derive(Clone)]
pub struct Coalescing {
    client: Client,
    entrance: Arc<Entrance>,
}

/// Closes the queue when the last clone is gone.
struct Entrance(Arc<Queue>);

impl Drop for Entrance {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Client {
    /// Returns a client of the same connection and filter for callers that ask for one key each.
    /// Calls that are made at the same time are answered together, for a fraction of the cost. No
    /// call waits for other calls to come. Call this once, and clone the result for each worker.
    ///
    /// It must be called in a tokio runtime, because it starts a task there. The task ends when the
    /// last clone is dropped.
    ///
    /// ```no_run
    /// # async fn run(client: seenset_client::Client) {
    /// let client = client.coalescing();
    /// for worker in 0..512 {
    ///     let client = client.clone();
    ///     tokio::spawn(async move {
    ///         let url = format!("https://example.org/{worker}");
    ///         let seen = client.query_and_add(&url).await?;
    ///         println!("{url}: {seen}");
    ///         Ok::<_, seenset_client::Error>(())
    ///     });
    /// }
    /// # }
    /// ```
    pub fn coalescing(&self) -> Coalescing {
        let queue = Arc::new(Queue::default());
        tokio::spawn(Gatherer::new(self.clone(), Arc::clone(&queue)).run());
        Coalescing {
            client: self.clone(),
            entrance: Arc::new(Entrance(queue)),
        }
    }
}

impl Coalescing {
    /// [`Client::query_and_add`], sent together with the calls that are made at the same time.
    ///
    /// If this future is dropped while the key still waits for room in flight, the key stays
    /// unmarked. If it is dropped later, also while the server is away, the key is marked although
    /// no caller gets the answer.
    ///
    /// If the connection breaks, the keys in flight are sent again, and get the answers that the
    /// first attempt would have got.
    ///
    /// # Errors
    ///
    /// The same as for [`Client::query_and_add`]. If the server refuses only this key, the call
    /// fails with its own error. If the server does not come back, all calls in flight fail with
    /// the same error.
    ///
    /// The deadline of the options starts when the key is in flight, and starts again with each
    /// answer to earlier keys.
    pub async fn query_and_add(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        if key.len() > ENOUGH_BYTES {
            return self.client.query_and_add(key).await;
        }
        let mut answer = None;
        poll_fn(|context| match &mut answer {
            None => match self.entrance.0.join(key, context.waker()) {
                // The answer has not come yet, or it wakes this task.
                Ok(joined) => {
                    answer = Some(joined);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            },
            Some(answer) => Pin::new(answer).poll(context),
        })
        .await
    }
}

impl fmt::Debug for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescing").finish_non_exhaustive()
    }
}
