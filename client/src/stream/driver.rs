//! The task between the call and the two halves of a stream.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use seenset_proto::v1::QueryAndAddStreamResponse;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep, sleep_until},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming, codegen::http::uri::PathAndQuery};

use super::{Answered, Broken};
use crate::{
    batch::{Message, MessageCodec},
    client::{Client, one_for_each, ready},
    error::Error,
    retry::{Pauses, Repeat, Rpc, may_be_applied},
};

const CALL: &str = "QueryAndAddStream";

/// A batch without an answer.
pub(super) struct Pending<T> {
    pub(super) tag: T,
    pub(super) count: usize,
    /// The message, kept until it is answered because it may have to be sent again.
    pub(super) message: Message,
    /// Whether a call that broke may have applied it.
    pub(super) doubtful: bool,
    pub(super) permit: OwnedSemaphorePermit,
}

/// An item for the receiving half, and the permit of the window that taking it releases.
pub(super) type Outcome<T> = (Result<Answered<T>, Broken<T>>, Option<OwnedSemaphorePermit>);

/// The sender of messages while the call is open. A batch is given to the driver and sent under one
/// lock, so that the driver never opens the call between the two.
pub(super) type Outbound = Arc<Mutex<Option<mpsc::UnboundedSender<Message>>>>;

pub(super) fn lock(outbound: &Outbound) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Message>>> {
    outbound.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task. It opens the call, and opens it again if it breaks.
pub(super) struct Driver<T> {
    client: Client,
    call: Rpc,
    window: Arc<Semaphore>,
    outbound: Outbound,
    coming: mpsc::UnboundedReceiver<Pending<T>>,
    answers: mpsc::UnboundedSender<Outcome<T>>,
    /// The batches without an answer that the driver has taken, in order. Later batches are still
    /// in `coming`.
    unanswered: VecDeque<Pending<T>>,
    /// The time by which the first of these has to be answered.
    deadline: Instant,
    /// The pauses before the stream is opened again. They start again with each answer.
    pauses: Pauses,
}

/// The way in which a call ended.
enum End {
    /// All batches are answered, or nobody is left to receive the answers.
    Done,
    /// The call must not be made again.
    Failed(Error),
    /// The call broke.
    Broke(Status),
}

impl<T> Driver<T> {
    pub(super) fn new(
        client: Client,
        window: Arc<Semaphore>,
        outbound: Outbound,
        coming: mpsc::UnboundedReceiver<Pending<T>>,
        answers: mpsc::UnboundedSender<Outcome<T>>,
    ) -> Self {
        let call = client.call(CALL, Repeat::Safe);
        Self {
            pauses: call.pauses(&client.options),
            deadline: Instant::now(),
            client,
            call,
            window,
            outbound,
            coming,
            answers,
            unanswered: VecDeque::new(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            // A call is opened for a first batch: a server can hold back its headers until it has
            // something to answer.
            if self.unanswered.is_empty() && !self.wait_for_first().await {
                break;
            }
            let status = match self.attempt().await {
                End::Done => break,
                End::Failed(error) => return self.fail(error),
                End::Broke(status) => status,
            };
            self.take_all();
            // Without unanswered batches, the call is opened again when the next batch comes.
            let Some(first) = self.unanswered.front() else {
                continue;
            };
            let sent = first.message.sent.close();
            let options = &self.client.options;
            for pending in &mut self.unanswered {
                pending.doubtful |= may_be_applied(&status, pending.message.sent.close());
                pending.message = pending.message.again();
            }
            let next = self
                .pauses
                .next(&self.call, options, status, sent, self.deadline);
            let pause = match next {
                Ok(pause) => pause,
                Err(error) => return self.fail(error),
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.answers.closed() => break,
            }
        }
        self.window.close();
    }

    /// Waits for a batch. Returns `false` if none can come, or if nobody is left to receive its
    /// answer.
    async fn wait_for_first(&mut self) -> bool {
        let first = tokio::select! {
            biased;
            first = self.coming.recv() => first,
            () = self.answers.closed() => None,
        };
        let is_there = first.is_some();
        self.unanswered.extend(first);
        self.deadline = self.client.options.deadline_from_now();
        is_there
    }

    /// Takes all batches without an answer. New batches are not sent until the call is open again.
    fn take_all(&mut self) {
        let mut outbound = lock(&self.outbound);
        *outbound = None;
        while let Ok(pending) = self.coming.try_recv() {
            self.unanswered.push_back(pending);
        }
    }

    /// Makes the call, sends the unanswered batches, and then lets new batches be sent after them.
    async fn attempt(&mut self) -> End {
        let (sender, messages) = mpsc::unbounded_channel();
        let mut responses = Responses::open(&self.client, messages);
        {
            let mut outbound = lock(&self.outbound);
            while let Ok(pending) = self.coming.try_recv() {
                self.unanswered.push_back(pending);
            }
            for pending in &self.unanswered {
                // The receiver exists, so this does not fail.
                let _ = sender.send(pending.message.clone());
            }
            // If no more batches can come, dropping the sender ends the requests of the call.
            *outbound = Some(sender).filter(|_| !self.coming.is_closed());
        }
        loop {
            if self.unanswered.is_empty() {
                tokio::select! {
                    // First, because a batch is put there before it is sent.
                    biased;
                    is_there = self.wait_for_first() => {
                        if !is_there {
                            return End::Done;
                        }
                    }
                    response = responses.next() => {
                        if let Err(end) = self.take(response) {
                            return end;
                        }
                    }
                }
                continue;
            }
            tokio::select! {
                biased;
                response = responses.next() => {
                    if let Err(end) = self.take(response) {
                        return end;
                    }
                }
                () = sleep_until(self.deadline) => return End::Failed(self.expired()),
                () = self.answers.closed() => return End::Done,
            }
        }
    }

    /// Pairs an answer with its batch.
    fn take(
        &mut self,
        response: Result<Option<QueryAndAddStreamResponse>, Status>,
    ) -> Result<(), End> {
        let ended = || {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the server ended the stream");
            End::Broke(Status::from_error(Box::new(error)))
        };
        let response = response.map_err(End::Broke)?.ok_or_else(ended)?;
        let Client {
            capacity_warnings,
            filter,
            ..
        } = &self.client;
        capacity_warnings.note(filter, response.capacity_warning);
        let expected = self.unanswered.front().map_or(0, |first| first.count);
        let seen = one_for_each(CALL, expected, response.seen).map_err(End::Failed)?;
        // An answer without a batch can only be empty: no key was expected.
        let Some(first) = self.unanswered.pop_front() else {
            return Ok(());
        };
        self.call.budget.note_answer();
        let doubtful = self.unanswered.front().is_some_and(|next| next.doubtful);
        self.pauses.begin_again(&self.client.options, doubtful);
        self.deadline = self.client.options.deadline_from_now();
        let answered = Answered {
            tag: first.tag,
            seen,
        };
        let sent = self.answers.send((Ok(answered), Some(first.permit)));
        sent.map_err(|_| End::Done)
    }

    /// Returns the error for the first batch, which was not answered in time.
    fn expired(&mut self) -> Error {
        let first = self.unanswered.front();
        let sent = first.is_some_and(|first| first.message.sent.close());
        self.pauses.expired(&self.call, &self.client.options, sent)
    }

    /// Ends both halves: the sender can send no more, and the receiver gets the error.
    fn fail(mut self, error: Error) {
        self.window.close();
        self.coming.close();
        self.take_all();
        // Batches are sent in order, so these are the first ones.
        let doubtful = self
            .unanswered
            .iter()
            .filter(|pending| pending.doubtful || pending.message.sent.close());
        let doubtful = doubtful.count();
        let unanswered = self.unanswered.into_iter().map(|pending| pending.tag);
        let broken = Broken {
            error,
            unanswered: unanswered.collect(),
            doubtful,
        };
        // It is no error if nobody receives this: both halves may be gone.
        let _ = self.answers.send((Err(broken), None));
    }
}

type Opening = Pin<
    Box<dyn Future<Output = Result<Response<Streaming<QueryAndAddStreamResponse>>, Status>> + Send>,
>;

/// The answers of one call, which is being opened or is open.
enum Responses {
    Opening(Opening),
    Open(Box<Streaming<QueryAndAddStreamResponse>>),
}

impl Responses {
    fn open(client: &Client, messages: mpsc::UnboundedReceiver<Message>) -> Self {
        let client = client.clone();
        Self::Opening(Box::pin(async move {
            let mut grpc = ready(client.channel).await?;
            let path = PathAndQuery::from_static("/seenset.v1.DedupService/QueryAndAddStream");
            // No timeout for the server: it would end the stream as a whole.
            let request = Request::new(UnboundedReceiverStream::new(messages));
            grpc.streaming(request, path, MessageCodec::default()).await
        }))
    }

    /// Returns the next answer; `None` when the server has ended the stream. Cancelling this loses
    /// nothing.
    async fn next(&mut self) -> Result<Option<QueryAndAddStreamResponse>, Status> {
        loop {
            match self {
                Self::Opening(opening) => {
                    *self = Self::Open(Box::new(opening.await?.into_inner()));
                }
                Self::Open(responses) => return responses.message().await,
            }
        }
    }
}
