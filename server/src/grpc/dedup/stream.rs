//! `QueryAndAddStream`: one answer for each batch, in order.
//!
//! The answers are a stream that takes the next batch when the next answer is asked for. So a
//! client that does not read blocks only itself, and no batch is taken before there is room for its
//! answer.
//!
//! While an answer waits for the log, up to a few of the following batches are already taken and
//! added. Otherwise each would wait for a write of the log by itself.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use http_body::{Body, Frame};
use seenset_proto::{
    batch::{BatchRequest, BatchResponse},
    codec,
    v1::CapacityWarning,
};
use tokio::{
    sync::watch,
    task,
    time::{Instant, timeout},
};
use tonic::{Status, codegen::StdError};

use crate::engine::{Action, Engine, Pending};
use crate::grpc::{
    DRAIN_SILENCE, convert,
    dedup::keys,
    status::{status, unapplied},
    wire::{
        calls::Drain,
        deadline::Deadline,
        memory::{Charge, ConnectionMemory},
        messages::Messages,
        response::{self, FrameSource},
    },
};

/// The flow-control window of a stream, that is, the data that a client may send before the server
/// has taken it: sixteen batches of a thousand keys. With the 64 KiB of the protocol's default, a
/// network with some latency lets only one batch through for each round trip.
pub const WINDOW_BYTES: u32 = 1 << 20;

/// The data that a stream takes in one turn, before the other tasks of its thread have theirs, its
/// connection among them: three eighths of the window. So the answers are sent, and the client
/// sends more data, while the rest is answered. Neither side waits for the other.
const TURN_BYTES: usize = WINDOW_BYTES as usize / 8 * 3;

/// The bytes that a batch counts for in a turn in addition to its message: even empty batches take
/// time.
const BATCH_BYTES: usize = 256;

/// The maximum number of batches whose answers wait for the log. Small batches of a stream share
/// one write of the log. Large batches that wait are no more than their client may send ahead.
const MAX_WAITING: usize = 64;

/// The maximum number of keys in these batches, not counting the last batch.
const MAX_WAITING_KEYS: usize = 1 << 17;

/// The maximum size of answers that are sent together, not counting the last answer.
const FRAME_BYTES: usize = 32 << 10;

/// The answers to one stream of batches, in the form in which they are sent.
pub struct Answers {
    answers: Pin<Box<dyn Stream<Item = Result<BatchResponse, Status>> + Send>>,
    /// The answers that are made and not sent yet.
    encoded: BytesMut,
    /// The trailers that follow them.
    end: Option<Frame<Bytes>>,
    /// The deadline of the whole stream.
    deadline: Deadline,
}

impl Answers {
    /// Answers batches until they end, one is refused, the deadline is over, or the server drains
    /// and no more arrive.
    pub fn new<B>(
        engine: Engine,
        batches: Messages<B>,
        connection: &Arc<ConnectionMemory>,
        deadline: Deadline,
        mut drain: watch::Receiver<Drain>,
    ) -> Self
    where
        B: Body<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    {
        // So the state is checked with the first batch, whatever it is.
        drain.mark_changed();
        let session = Session {
            engine,
            deadline: deadline.at(),
            batches: Some(Batches {
                batches,
                drain,
                patience: Duration::MAX,
                taken_bytes: 0,
            }),
            waiting: VecDeque::new(),
            waiting_keys: 0,
            charge: connection.empty_charge(),
        };
        let answers = stream::unfold(session, |mut session| async {
            let answer = session.answer().await?;
            Some((answer, session))
        });
        Self {
            answers: Box::pin(answers),
            encoded: BytesMut::new(),
            end: None,
            deadline,
        }
    }
}

impl FrameSource for Answers {
    /// Returns all answers that are ready, or the trailers at the end. The caller must not ask for
    /// more after the trailers.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Frame<Bytes>> {
        while self.end.is_none() && self.encoded.len() < FRAME_BYTES {
            match self.answers.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(answer))) => response::append(&answer, &mut self.encoded),
                Poll::Ready(Some(Err(status))) => self.end = Some(response::failed(&status)),
                Poll::Ready(None) => self.end = Some(response::succeeded()),
                Poll::Pending if self.encoded.is_empty() => {
                    let over = ready!(self.deadline.poll(cx));
                    self.end = Some(response::failed(&over));
                }
                Poll::Pending => break,
            }
        }
        if !self.encoded.is_empty() {
            return Poll::Ready(Frame::data(self.encoded.split().freeze()));
        }
        match self.end.take() {
            Some(end) => Poll::Ready(end),
            None => Poll::Pending,
        }
    }
}

struct Session<B> {
    engine: Engine,
    deadline: Option<Instant>,
    /// The batches; `None` when no more are taken.
    batches: Option<Batches<B>>,
    /// The answers in the order of their batches. Nothing follows an error.
    waiting: VecDeque<Result<Begun, Status>>,
    /// The number of keys in the waiting batches. The answer for each key takes a byte.
    waiting_keys: usize,
    charge: Charge,
}

/// A batch whose keys are added, and the answer to it.
struct Begun {
    keys: usize,
    seen: Pending<Vec<bool>>,
    capacity_warning: Option<CapacityWarning>,
}

impl<B> Session<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    /// Returns the answer to the next batch; `None` if there are no more.
    async fn answer(&mut self) -> Option<Result<BatchResponse, Status>> {
        if let Some(Batches { batches, .. }) = &mut self.batches {
            batches.ask_again();
        }
        loop {
            let (first, batches) = (self.waiting.front(), &mut self.batches);
            let batch = match (first, batches) {
                (Some(Err(_)), _) | (None, None) => break,
                (Some(Ok(first)), _) if first.seen.is_durable() => break,
                (Some(Ok(first)), Some(batches))
                    if self.waiting.len() < MAX_WAITING && self.waiting_keys < MAX_WAITING_KEYS =>
                {
                    tokio::select! {
                        biased;
                        batch = batches.next() => batch,
                        // The result is read below, whether it is a success or an error.
                        _ = first.seen.wait() => break,
                    }
                }
                (Some(Ok(_)), _) => break,
                (None, Some(batches)) => {
                    batches.give_way().await;
                    batches.next().await
                }
            };
            match batch {
                Ok(Some(batch)) => {
                    let begun = begin(&self.engine, batch, self.deadline).await;
                    if let Some(Batches { batches, .. }) = &mut self.batches {
                        // The memory is given back now, because a client that reads no answers
                        // never asks for the next batch.
                        batches.dealt_with();
                    }
                    self.push(begun);
                }
                Ok(None) => self.batches = None,
                Err(status) => self.push(Err(status)),
            }
        }
        let answer = match self.waiting.pop_front()? {
            Ok(begun) => {
                self.waiting_keys -= begun.keys;
                self.charge.set(self.waiting_keys);
                let seen = begun.seen.durable().await.map_err(status);
                seen.map(|seen| BatchResponse {
                    seen,
                    capacity_warning: begun.capacity_warning,
                })
            }
            Err(status) => Err(status),
        };
        if answer.is_err() {
            self.batches = None;
            self.waiting.clear();
        }
        Some(answer)
    }

    fn push(&mut self, answer: Result<Begun, Status>) {
        match &answer {
            Ok(begun) => {
                self.waiting_keys += begun.keys;
                self.charge.set(self.waiting_keys);
            }
            Err(_) => self.batches = None,
        }
        self.waiting.push_back(answer);
    }
}

/// The batches of a stream.
struct Batches<B> {
    batches: Messages<B>,
    drain: watch::Receiver<Drain>,
    /// The time that the client may be silent.
    patience: Duration,
    /// The number of bytes taken in this turn.
    taken_bytes: usize,
}

impl<B> Batches<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    /// Lets other tasks of this thread run if this turn is over.
    ///
    /// It yields twice: after the first yield [`Answers`] sends the answers that are ready, and is
    /// polled once more before the thread is free.
    async fn give_way(&mut self) {
        if self.taken_bytes >= TURN_BYTES {
            self.taken_bytes = 0;
            task::yield_now().await;
            task::yield_now().await;
        }
    }

    /// Returns the next batch; `None` if there are no more. Nothing is lost if the future is
    /// dropped.
    async fn next(&mut self) -> Result<Option<BatchRequest>, Status> {
        loop {
            // An error means that the server is gone. The state is read only if it has changed:
            // reading takes a lock, and the streams of all cores would contend for it with each
            // batch.
            if self.drain.has_changed().map_err(|_| stopping())? {
                self.patience = match *self.drain.borrow_and_update() {
                    Drain::No => Duration::MAX,
                    Drain::Begun => DRAIN_SILENCE,
                    Drain::Over => return Err(stopping()),
                };
            }
            let patience = self.patience;
            tokio::select! {
                // The order matters: waiting for a change takes a lock too.
                biased;
                next = timeout(patience, self.batches.next()) => {
                    let Some(message) = next.map_err(|_| stopping())?? else {
                        return Ok(None);
                    };
                    self.taken_bytes += message.len() + BATCH_BYTES;
                    return codec::decode(message).map(Some);
                }
                // The new state is read above.
                _ = self.drain.changed() => self.drain.mark_changed(),
            }
        }
    }
}

fn stopping() -> Status {
    unapplied("the server is stopping: every batch that it took has been answered")
}

/// Begins to answer a batch.
async fn begin(
    engine: &Engine,
    batch: BatchRequest,
    deadline: Option<Instant>,
) -> Result<Begun, Status> {
    let call = convert::call(&batch.filter, &batch.request_id, batch.max_age, deadline)?;
    let keys = keys::of_batch(batch.keys)?;
    let count = keys.len();
    let seen = engine
        .begin_write_batch(call, Action::QueryAndAdd, keys)
        .await;
    let seen = seen.map_err(status)?;
    Ok(Begun {
        keys: count,
        capacity_warning: convert::capacity_warning(&seen),
        seen,
    })
}

#[cfg(test)]
mod tests;
