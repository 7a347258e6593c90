//! The stream form: several batches in flight on one call, with answers in order.
//!
//! Its own [task](driver) opens the call and pairs each answer with the tag of its batch. If the
//! call breaks, the task makes it again with the batches that have no answer. So the halves can be
//! polled, dropped and cancelled in any way without losing an answer.

mod driver;

use std::{fmt, sync::Arc};

use tokio::sync::{Semaphore, mpsc};

use self::driver::{Driver, Outbound, Outcome, Pending, lock};
use crate::{
    batch::KeyBatch,
    client::{Client, request_id},
    error::Error,
};

impl Client {
    /// Opens a stream with up to `window` batches in flight (at least 1). A batch is in flight from
    /// when it is sent until its answer is received. Each batch carries a tag of any type, which
    /// comes back with its answer.
    ///
    /// The first batch opens the call. Each answer can take as long as
    /// [`Options::deadline`](crate::Options::deadline).
    ///
    /// If the connection breaks or the server is UNAVAILABLE, the call is made again with the
    /// batches that have no answer. Each batch has an idempotency key (`request_id`), so a batch
    /// that the server had already applied gets its first answer.
    ///
    /// The stream takes the memory of the batches and tags in flight.
    ///
    /// ```no_run
    /// # async fn run(client: seenset_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let (mut sender, mut receiver) = client.stream(8);
    /// tokio::spawn(async move {
    ///     for page in 0..100_u32 {
    ///         let links = [format!("https://example.org/{page}")];
    ///         sender.send(links, page).await?;
    ///     }
    ///     Ok::<_, seenset_client::Error>(())
    /// });
    /// while let Some(answered) = receiver.recv().await {
    ///     let answered = answered?;
    ///     println!("page {}: {:?}", answered.tag, answered.seen);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream<T: Send + 'static>(&self, window: usize) -> (BatchSender<T>, BatchReceiver<T>) {
        let window = Arc::new(Semaphore::new(window.clamp(1, Semaphore::MAX_PERMITS)));
        // The window bounds these channels: every entry holds one of its permits.
        let (batches, coming) = mpsc::unbounded_channel();
        let (answers, answer_receiver) = mpsc::unbounded_channel();
        let outbound = Outbound::default();
        let driver = Driver::new(
            self.clone(),
            Arc::clone(&window),
            Arc::clone(&outbound),
            coming,
            answers,
        );
        tokio::spawn(driver.run());
        let sender = BatchSender {
            client: self.clone(),
            window,
            outbound,
            batches,
        };
        (sender, BatchReceiver(answer_receiver))
    }
}

/// The sending half of a stream. Dropping it ends the stream once all batches are answered.
pub struct BatchSender<T> {
    client: Client,
    window: Arc<Semaphore>,
    outbound: Outbound,
    batches: mpsc::UnboundedSender<Pending<T>>,
}

impl<T> Drop for BatchSender<T> {
    /// Tells the server that no more batches come.
    fn drop(&mut self) {
        lock(&self.outbound).take();
    }
}

impl<T> BatchSender<T> {
    /// Sends a batch. Waits until there is room in the window. If this future is dropped before it
    /// returns, nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the batch does not fit in a message, and [`Error::StreamClosed`] if
    /// the stream has ended; the receiving half gets the reason. In both cases the batch was not
    /// sent.
    pub async fn send(&mut self, keys: impl Into<KeyBatch>, tag: T) -> Result<(), Error> {
        self.send_as(&request_id(), keys, tag).await
    }

    /// [`send`](Self::send) with an idempotency key of the caller, for a caller that may have to
    /// repeat the batch from another process. See
    /// [`query_and_add_batch_as`](Client::query_and_add_batch_as).
    ///
    /// # Errors
    ///
    /// The same as for [`send`](Self::send).
    pub async fn send_as(
        &mut self,
        request_id: &str,
        keys: impl Into<KeyBatch>,
        tag: T,
    ) -> Result<(), Error> {
        let sent = self.send_or_return(request_id, keys.into(), tag).await;
        sent.map_err(|(error, _)| error)
    }

    /// Sends a batch like `send_as`, but returns the tag with an error.
    pub(crate) async fn send_or_return(
        &mut self,
        request_id: &str,
        keys: KeyBatch,
        tag: T,
    ) -> Result<(), (Error, T)> {
        let count = keys.len();
        let message = match self.client.message_as(request_id, keys) {
            Ok(message) => message,
            Err(error) => return Err((error, tag)),
        };
        let Ok(permit) = Arc::clone(&self.window).acquire_owned().await else {
            return Err((Error::StreamClosed, tag));
        };
        let pending = Pending {
            tag,
            count,
            message: message.clone(),
            doubtful: false,
            permit,
        };
        // The driver sends all batches that are in the channel when it opens the call.
        let outbound = lock(&self.outbound);
        // The tag goes first, so that no answer can come before it.
        self.batches
            .send(pending)
            .map_err(|unsent| (Error::StreamClosed, unsent.0.tag))?;
        if let Some(outbound) = &*outbound {
            // If nobody receives this any more, the call has broken and the driver makes it again.
            let _ = outbound.send(message);
        }
        Ok(())
    }
}

/// The receiving half of a stream. Dropping it ends the stream at once: batches in flight may have
/// been applied.
pub struct BatchReceiver<T>(mpsc::UnboundedReceiver<Outcome<T>>);

impl<T> BatchReceiver<T> {
    /// Returns the next answer, in the order of sending, and frees its room in the window. Returns
    /// `None` when the sending half is dropped and all batches are answered, or after an error. If
    /// this future is dropped before it returns, no answer is lost.
    ///
    /// # Errors
    ///
    /// [`Broken`], once, if the stream ended before all batches were answered.
    pub async fn recv(&mut self) -> Option<Result<Answered<T>, Broken<T>>> {
        let (answer, permit) = self.0.recv().await?;
        drop(permit);
        Some(answer)
    }
}

/// The answer to one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// The tag that was sent with the batch.
    pub tag: T,
    /// Whether each key had been seen before, in the order of the keys.
    pub seen: Vec<bool>,
}

/// The reason why a stream ended early, and the batches that have no answer.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Broken<T> {
    /// The error that ended the stream.
    #[source]
    pub error: Error,
    /// The tags of the batches that were given to the stream and have no answer, in order. If the
    /// server refused a batch, it is the first one.
    pub unanswered: Vec<T>,
    /// The number of batches at the start of `unanswered` that may be applied: they were sent and
    /// not refused. The other batches changed nothing.
    pub doubtful: usize,
}

impl<T> fmt::Debug for Broken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken")
            .field("error", &self.error)
            .field("unanswered", &self.unanswered.len())
            .field("doubtful", &self.doubtful)
            .finish()
    }
}

impl<T> fmt::Debug for BatchSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BatchReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchReceiver").finish_non_exhaustive()
    }
}
