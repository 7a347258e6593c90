//! Single calls of one process, gathered into batches on a stream.
//!
//! A worker that asks for one URL at a time is the simplest, and the slowest: each call costs
//! both sides many times what its key costs in a batch. So the callers of one process leave
//! their keys in a [queue], as the bytes that go over the wire, and a [task](gatherer) sends what
//! has come together as soon as there is [room](flight) for one more batch in flight. Nobody waits
//! for a batch to fill: a caller alone is sent at once, and the more there are, the more go together.

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

/// A client whose concurrent single calls go to the server together, see
/// [`Client::coalescing`]. Cheap to clone; clones gather into the same batches.
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
    /// The same connection and filter, for callers that ask for one key each: those that ask
    /// at the same time are answered together, for a fraction of the cost, and none waits for
    /// others to come. To be made once, and cloned for each worker.
    ///
    /// Must be called in a tokio runtime, for it starts a task there, which ends when the last
    /// clone is gone.
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
    /// [`Client::query_and_add`], together with those that ask at the same time.
    ///
    /// Cancelling this while the key waits for room in flight leaves it unmarked; afterwards,
    /// also while the server is away, the key is marked though nobody is told. What was under
    /// way when the connection breaks is sent again, and is answered as it would have been the
    /// first time.
    ///
    /// # Errors
    ///
    /// As [`Client::query_and_add`]: its own, if its key is refused and others are not, and
    /// that of all that were under way, if the server does not come back. The deadline of the
    /// options counts from when the key is under way, and anew with each answer to keys before
    /// it.
    pub async fn query_and_add(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        if key.len() > ENOUGH_BYTES {
            return self.client.query_and_add(key).await;
        }
        let mut answer = None;
        poll_fn(|context| match &mut answer {
            None => match self.entrance.0.join(key, context.waker()) {
                // There is none yet, or it wakes this task.
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
