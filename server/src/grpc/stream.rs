//! `QueryAndAddStream`: one answer for each batch, in order.
//!
//! The answers are a stream that takes the next batch when it is asked for the next answer.
//! So a client that does not read holds up nobody but itself, and no batch is taken whose
//! answer there is no room for. While an answer waits for the log, the batches behind it are
//! taken and added already, up to a few: or each would wait for a turn of the log by itself.

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

use super::{
    DRAIN_SILENCE, Drain, convert,
    deadline::Deadline,
    keys,
    memory::{Charge, ConnectionMemory},
    messages::Messages,
    response,
    status::{status, unapplied},
};
use crate::engine::{Engine, Unsettled};

/// What a client may send on one stream before the server has taken it: sixteen batches of a
/// thousand keys. With the 64 KiB of the protocol's default a network of some latency lets one
/// batch through for each round trip.
pub const WINDOW_BYTES: u32 = 1 << 20;

/// What is taken of a stream before others of its thread have their turn, its connection among
/// them: three eighths of the window. So the answers to it are on their way, and the client sends
/// what comes next, while the rest is answered; neither side waits for the other.
const TURN_BYTES: usize = WINDOW_BYTES as usize / 8 * 3;

/// What a batch counts for in a turn besides its message: even empty ones take time.
const BATCH_BYTES: usize = 256;

/// The most batches whose answers wait for the log. A stream of small ones shares a turn of the
/// log among them, and no more of large ones wait than their client may send ahead.
const MAX_WAITING: usize = 64;

/// The keys of these batches, at most, but for the last batch.
const MAX_WAITING_KEYS: usize = 1 << 17;

/// The answers that are sent together have no more than this, but for the last of them.
const FRAME_BYTES: usize = 32 << 10;

/// The answers to one stream of batches, as they are sent.
pub struct Answers {
    answers: Pin<Box<dyn Stream<Item = Result<BatchResponse, Status>> + Send>>,
    /// Those that have been made and not been sent.
    encoded: BytesMut,
    /// What comes after them.
    end: Option<Frame<Bytes>>,
    /// That of the whole stream.
    deadline: Deadline,
}

impl Answers {
    /// Answers batches until they end, one is refused, the deadline is over, or the server drains
    /// and no more come.
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
        // Looked at with the first batch, whatever its state.
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
            charge: connection.no_charge(),
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

    /// What is to be sent next: answers, as many as there are at once, or in the end how it
    /// ended, and then nothing is to be asked for.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Frame<Bytes>> {
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
    /// `None` when no more are taken.
    batches: Option<Batches<B>>,
    /// In the order of their batches. An error is the last one.
    waiting: VecDeque<Result<Begun, Status>>,
    /// The number of their keys, each of which takes a byte.
    waiting_keys: usize,
    charge: Charge,
}

/// A batch whose keys are added, and the answer to it.
struct Begun {
    keys: usize,
    seen: Unsettled<Vec<bool>>,
    capacity_warning: Option<CapacityWarning>,
}

impl<B> Session<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    /// The answer to the next batch; `None` if there are no more.
    async fn answer(&mut self) -> Option<Result<BatchResponse, Status>> {
        if let Some(Batches { batches, .. }) = &mut self.batches {
            batches.ask_again();
        }
        loop {
            let (first, batches) = (self.waiting.front(), &mut self.batches);
            let batch = match (first, batches) {
                (Some(Err(_)), _) | (None, None) => break,
                (Some(Ok(first)), _) if first.seen.is_settled() => break,
                (Some(Ok(first)), Some(batches))
                    if self.waiting.len() < MAX_WAITING && self.waiting_keys < MAX_WAITING_KEYS =>
                {
                    tokio::select! {
                        biased;
                        batch = batches.next() => batch,
                        // Well or badly: which of the two is told below.
                        _ = first.seen.settled() => break,
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
                        // Now, for a client that reads no answers is asked for no more.
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
                let seen = begun.seen.settle().await.map_err(status);
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
    /// How long the client may be silent.
    patience: Duration,
    /// What has been taken in this turn.
    taken_bytes: usize,
}

impl<B> Batches<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    /// Lets others of this thread have their turn, if this one is over.
    ///
    /// Twice: told that there is no answer yet, [`Answers`] sends those that there are, and is
    /// asked once more before the thread is free.
    async fn give_way(&mut self) {
        if self.taken_bytes >= TURN_BYTES {
            self.taken_bytes = 0;
            task::yield_now().await;
            task::yield_now().await;
        }
    }

    /// The next batch; `None` if there are no more. Nothing is lost if the future is dropped.
    async fn next(&mut self) -> Result<Option<BatchRequest>, Status> {
        loop {
            // An error means that the server is gone. Not looked at unless it has changed: that
            // takes a lock, for which the streams of all cores would contend with each batch.
            if self.drain.has_changed().map_err(|_| stopping())? {
                self.patience = match *self.drain.borrow_and_update() {
                    Drain::No => Duration::MAX,
                    Drain::Begun => DRAIN_SILENCE,
                    Drain::Over => return Err(stopping()),
                };
            }
            let patience = self.patience;
            tokio::select! {
                // In this order, for to wait for a change takes a lock as well.
                biased;
                next = timeout(patience, self.batches.next()) => {
                    let Some(message) = next.map_err(|_| stopping())?? else {
                        return Ok(None);
                    };
                    self.taken_bytes += message.len() + BATCH_BYTES;
                    return codec::decode(message).map(Some);
                }
                // To be looked at above.
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
    let seen = engine.begin_query_and_add_batch(call, keys).await;
    Ok(Begun {
        keys: count,
        seen: seen.map_err(status)?,
        capacity_warning: convert::capacity_warning(engine, &batch.filter),
    })
}

#[cfg(test)]
mod tests;
