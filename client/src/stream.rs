//! The stream form: several batches in flight on one call, their answers in order.
//!
//! A task of its own opens the call, pairs each answer with the tag of its batch, and
//! notices that the stream breaks. So the halves may be polled, dropped and cancelled in
//! any way without losing an answer.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use seenset_proto::v1::QueryAndAddStreamResponse;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_stream::Stream;
use tonic::{Request, Streaming, codegen::http::uri::PathAndQuery};

use crate::{
    batch::{KeyBatch, Message, MessageCodec},
    client::{Client, one_for_each},
    error::Error,
    retry::{Call, Repeat},
};

const CALL: &str = "QueryAndAddStream";

impl Client {
    /// Opens a stream on which up to `window` batches are in flight (at least 1): sent,
    /// and their answers not yet taken. Each batch carries a tag of any type, which comes
    /// back with its answer.
    ///
    /// The call itself is made with the first batch. Each answer is waited for as long as
    /// [`Options::deadline`](crate::Options::deadline). The memory taken is that of the
    /// batches and tags in flight.
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
        let (messages, outbound) = mpsc::unbounded_channel();
        let (pending_sender, pending) = mpsc::unbounded_channel();
        let (answers, answer_receiver) = mpsc::unbounded_channel();
        let driver = Driver {
            client: self.clone(),
            call: self.call(CALL, Repeat::UnlessSent),
            window: Arc::clone(&window),
            pending,
            answers,
        };
        tokio::spawn(driver.run(outbound));
        let sender = BatchSender {
            client: self.clone(),
            window,
            messages,
            pending: pending_sender,
        };
        (sender, BatchReceiver(answer_receiver))
    }
}

/// The sending half of a stream. Dropping it ends the stream once all is answered.
pub struct BatchSender<T> {
    client: Client,
    window: Arc<Semaphore>,
    messages: mpsc::UnboundedSender<Message>,
    pending: mpsc::UnboundedSender<Pending<T>>,
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
        let sent = self.send_or_return(keys.into(), tag).await;
        sent.map_err(|(error, _)| error)
    }

    /// The same, but gives the tag back with an error.
    pub(crate) async fn send_or_return(
        &mut self,
        keys: KeyBatch,
        tag: T,
    ) -> Result<(), (Error, T)> {
        let count = keys.len();
        let message = match self.client.message(keys) {
            Ok(message) => message,
            Err(error) => return Err((error, tag)),
        };
        let Ok(permit) = Arc::clone(&self.window).acquire_owned().await else {
            return Err((Error::StreamClosed, tag));
        };
        // First the tag, so that no answer can come before it.
        self.pending
            .send(Pending { tag, count, permit })
            .map_err(|unsent| (Error::StreamClosed, unsent.0.tag))?;
        // Where nobody takes it any more the receiving half is told of the tag.
        let _ = self.messages.send(message);
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
    /// in order. Unless the error [changed nothing](Error::changed_nothing), their keys
    /// may be marked. If the server refused a batch, it is the first of these.
    pub unanswered: Vec<T>,
}

impl<T> fmt::Debug for Broken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken")
            .field("error", &self.error)
            .field("unanswered", &self.unanswered.len())
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

/// A batch that was sent and not yet answered.
struct Pending<T> {
    tag: T,
    count: usize,
    permit: OwnedSemaphorePermit,
}

/// What the receiving half takes, and the room in the window that this frees.
type Outcome<T> = (Result<Answered<T>, Broken<T>>, Option<OwnedSemaphorePermit>);

/// The task between the call and the two halves.
struct Driver<T> {
    client: Client,
    call: Call,
    window: Arc<Semaphore>,
    pending: mpsc::UnboundedReceiver<Pending<T>>,
    answers: mpsc::UnboundedSender<Outcome<T>>,
}

impl<T> Driver<T> {
    async fn run(mut self, outbound: mpsc::UnboundedReceiver<Message>) {
        // Opening waits for a first batch: a server may hold back its headers until it
        // has something to answer.
        let Some(mut next) = self.next_pending().await else {
            return;
        };
        let mut responses = match self.open(outbound).await {
            Ok(responses) => responses,
            Err(error) => return self.fail(next, error),
        };
        loop {
            match self.answer(&mut responses, next.count).await {
                Err(error) => return self.fail(next, error),
                Ok(seen) => {
                    let answered = Answered {
                        tag: next.tag,
                        seen,
                    };
                    if self
                        .answers
                        .send((Ok(answered), Some(next.permit)))
                        .is_err()
                    {
                        self.window.close();
                        return;
                    }
                }
            }
            next = match self.next_pending().await {
                Some(next) => next,
                None => return self.window.close(),
            };
        }
    }

    /// The batch that is to be answered next; `None` when no more can come.
    async fn next_pending(&mut self) -> Option<Pending<T>> {
        tokio::select! {
            biased;
            pending = self.pending.recv() => pending,
            // Nobody is left to tell.
            () = self.answers.closed() => {
                self.window.close();
                None
            }
        }
    }

    async fn open(
        &self,
        outbound: mpsc::UnboundedReceiver<Message>,
    ) -> Result<Streaming<QueryAndAddStreamResponse>, Error> {
        let outbound = Outbound(Arc::new(Mutex::new(outbound)));
        self.call
            .run(&self.client.options, |_| {
                let outbound = outbound.clone();
                async move {
                    let mut grpc = self.client.ready().await?;
                    let path =
                        PathAndQuery::from_static("/seenset.v1.DedupService/QueryAndAddStream");
                    // No timeout for the server: it would end the stream as a whole.
                    grpc.streaming(Request::new(outbound), path, MessageCodec::default())
                        .await
                }
            })
            .await
    }

    async fn answer(
        &self,
        responses: &mut Streaming<QueryAndAddStreamResponse>,
        count: usize,
    ) -> Result<Vec<bool>, Error> {
        let options = &self.client.options;
        let message = tokio::select! {
            message = timeout(options.deadline, responses.message()) => message,
            () = self.answers.closed() => return Err(Error::StreamClosed),
        };
        match message {
            Ok(Ok(Some(response))) => one_for_each(CALL, count, response.seen),
            // Whole streams end when the sending half is gone and all was answered.
            Ok(Ok(None)) => Err(self.call.broken("the server ended the stream")),
            Ok(Err(status)) => Err(self.call.failed(options, status)),
            Err(_) => Err(self.call.expired(options)),
        }
    }

    /// Ends both halves: the sender can send no more, and the receiver is told why.
    fn fail(mut self, first: Pending<T>, error: Error) {
        self.window.close();
        self.pending.close();
        let mut unanswered = vec![first.tag];
        while let Ok(pending) = self.pending.try_recv() {
            unanswered.push(pending.tag);
        }
        // That nobody listens any more is no error: both halves may be gone.
        let _ = self.answers.send((Err(Broken { error, unanswered }), None));
    }
}

/// The request messages of the call. Shared, because a connection that could not be made
/// drops the request without having taken a message, and the next attempt needs them.
#[derive(Clone)]
struct Outbound(Arc<Mutex<mpsc::UnboundedReceiver<Message>>>);

impl Stream for Outbound {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .poll_recv(context)
    }
}
