//! The stream form: several batches in flight on one call, their answers in order.
//!
//! A [task](driver) of its own opens the call, pairs each answer with the tag of its batch, and
//! makes the call again with what is unanswered when it breaks. So the halves may be polled,
//! dropped and cancelled in any way without losing an answer.

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
    /// Opens a stream on which up to `window` batches are in flight (at least 1): sent,
    /// and their answers not yet taken. Each batch carries a tag of any type, which comes
    /// back with its answer.
    ///
    /// The call itself is made with the first batch. Each answer is waited for as long as
    /// [`Options::deadline`](crate::Options::deadline). If the connection breaks or the server
    /// is UNAVAILABLE the call is made again, with the batches that have no answer; each has an
    /// id (`request_id`) by which the server knows it, and is told what it earned the first
    /// time. The memory taken is that of the batches and tags in flight.
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

/// The sending half of a stream. Dropping it ends the stream once all is answered.
pub struct BatchSender<T> {
    client: Client,
    window: Arc<Semaphore>,
    outbound: Outbound,
    batches: mpsc::UnboundedSender<Pending<T>>,
}

impl<T> Drop for BatchSender<T> {
    /// Tells the server that these were all.
    fn drop(&mut self) {
        lock(&self.outbound).take();
    }
}

impl<T> BatchSender<T> {
    /// Sends a batch as soon as there is room in the window. Cancelling this sends
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the batch does not fit a message, and
    /// [`Error::StreamClosed`] if the stream has ended: the receiving half knows why.
    /// The batch was not sent then.
    pub async fn send(&mut self, keys: impl Into<KeyBatch>, tag: T) -> Result<(), Error> {
        self.send_as(&request_id(), keys, tag).await
    }

    /// [`send`](Self::send) as the request of this id, for a caller that may have to repeat the
    /// batch in another process: see
    /// [`query_and_add_batch_as`](Client::query_and_add_batch_as).
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub async fn send_as(
        &mut self,
        request_id: &str,
        keys: impl Into<KeyBatch>,
        tag: T,
    ) -> Result<(), Error> {
        let sent = self.send_or_return(request_id, keys.into(), tag).await;
        sent.map_err(|(error, _)| error)
    }

    /// The same, but gives the tag back with an error.
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
        // The driver sends what it finds here when it opens the call.
        let outbound = lock(&self.outbound);
        // First the tag, so that no answer can come before it.
        self.batches
            .send(pending)
            .map_err(|unsent| (Error::StreamClosed, unsent.0.tag))?;
        if let Some(outbound) = &*outbound {
            // Where nobody takes it any more the call has broken, and is made again.
            let _ = outbound.send(message);
        }
        Ok(())
    }
}

/// The receiving half of a stream. Dropping it ends the stream at once: batches in flight
/// may have been applied.
pub struct BatchReceiver<T>(mpsc::UnboundedReceiver<Outcome<T>>);

impl<T> BatchReceiver<T> {
    /// The next answer, in the order of sending; `None` when the sending half is gone and
    /// all was answered, or after an error. Taking it makes room in the window.
    /// Cancelling this loses nothing.
    ///
    /// # Errors
    ///
    /// [`Broken`], once, if the stream ended before all was answered.
    pub async fn recv(&mut self) -> Option<Result<Answered<T>, Broken<T>>> {
        let (answer, permit) = self.0.recv().await?;
        drop(permit);
        Some(answer)
    }
}

/// The answer to one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// What was sent along with the batch.
    pub tag: T,
    /// Whether each key had been seen before, in the order of the keys.
    pub seen: Vec<bool>,
}

/// Why a stream ended early, and the batches that have no answer.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Broken<T> {
    /// What happened.
    #[source]
    pub error: Error,
    /// The tags of the batches that had been given to the stream and were not answered,
    /// in order. If the server refused a batch, it is the first of these.
    pub unanswered: Vec<T>,
    /// How many of the first of these may be applied: they were sent, and not refused. The others
    /// changed nothing.
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
