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
    retry::{Call, Pauses, Repeat, may_be_applied},
};

const CALL: &str = "QueryAndAddStream";

/// A batch that has no answer.
pub(super) struct Pending<T> {
    pub(super) tag: T,
    pub(super) count: usize,
    /// Kept until it is answered: it may have to be sent again.
    pub(super) message: Message,
    /// Whether it may be applied by a call that broke.
    pub(super) doubtful: bool,
    pub(super) permit: OwnedSemaphorePermit,
}

/// What the receiving half takes, and the room in the window that this frees.
pub(super) type Outcome<T> = (Result<Answered<T>, Broken<T>>, Option<OwnedSemaphorePermit>);

/// Where messages go while the call is open. With the lock a batch is left for the driver and sent,
/// so that the call is never opened between the two.
pub(super) type Outbound = Arc<Mutex<Option<mpsc::UnboundedSender<Message>>>>;

pub(super) fn lock(outbound: &Outbound) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Message>>> {
    outbound.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task. It opens the call, and opens it again if it breaks.
pub(super) struct Driver<T> {
    client: Client,
    call: Call,
    window: Arc<Semaphore>,
    outbound: Outbound,
    coming: mpsc::UnboundedReceiver<Pending<T>>,
    answers: mpsc::UnboundedSender<Outcome<T>>,
    /// The first of those that have no answer, in their order; the others are yet to be taken.
    unanswered: VecDeque<Pending<T>>,
    /// When the first of these has to be answered.
    deadline: Instant,
    /// Those before the stream is opened again. They begin anew with each answer.
    pauses: Pauses,
}

/// How a call ended.
enum End {
    /// All is answered, or nobody is left to be told.
    Done,
    /// It is not to be made again.
    Failed(Error),
    /// It broke.
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
            // A call is opened for a first batch: a server may hold back its headers until it
            // has something to answer.
            if self.unanswered.is_empty() && !self.wait_for_first().await {
                break;
            }
            let status = match self.attempt().await {
                End::Done => break,
                End::Failed(error) => return self.fail(error),
                End::Broke(status) => status,
            };
            self.take_all();
            // One that had nothing to do is opened again when there is something.
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

    /// Waits for a batch; `false` if none can come, or nobody is left to be told of its answer.
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

    /// Takes all that has no answer. What comes is not sent until the call is open again.
    fn take_all(&mut self) {
        let mut outbound = lock(&self.outbound);
        *outbound = None;
        while let Ok(pending) = self.coming.try_recv() {
            self.unanswered.push_back(pending);
        }
    }

    /// Makes the call, sends what is unanswered, and has what comes be sent behind it.
    async fn attempt(&mut self) -> End {
        let (sender, messages) = mpsc::unbounded_channel();
        let mut responses = Responses::open(&self.client, messages);
        {
            let mut outbound = lock(&self.outbound);
            while let Ok(pending) = self.coming.try_recv() {
                self.unanswered.push_back(pending);
            }
            for pending in &self.unanswered {
                // Nobody has dropped the other end.
                let _ = sender.send(pending.message.clone());
            }
            // Where no more come the server is told so.
            *outbound = Some(sender).filter(|_| !self.coming.is_closed());
        }
        loop {
            if self.unanswered.is_empty() {
                tokio::select! {
                    // First: it is left there before it is sent.
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

    /// Pairs an answer with the batch that it is to.
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
        // One to nothing has no answers for any key.
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
        let told = self.answers.send((Ok(answered), Some(first.permit)));
        told.map_err(|_| End::Done)
    }

    /// The error of the first batch, which was not answered in time.
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
        // They are sent in order, so these are the first.
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
        // That nobody listens any more is no error: both halves may be gone.
        let _ = self.answers.send((Err(broken), None));
    }
}

type Opening = Pin<
    Box<dyn Future<Output = Result<Response<Streaming<QueryAndAddStreamResponse>>, Status>> + Send>,
>;

/// The answers of one call, which is being made or has been.
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

    /// The next one; `None` when the server has ended the stream. Cancelling this loses nothing.
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
