//! `QueryAndAddStream`: one answer for each batch, in order.
//!
//! The answers are a stream that takes the next batch when it is asked for the next answer.
//! So a client that does not read holds up nobody but itself, and no batch is taken whose
//! answer there is no room for.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::{self, Stream};
use seenset_proto::batch::{BatchRequest, BatchResponse};
use tokio::{sync::watch, time::timeout};
use tonic::{Status, Streaming};

use super::{DRAIN_SILENCE, Drain, malformed, status::status};
use crate::engine::Engine;

type Item = Result<BatchResponse, Status>;

/// The answers to one stream of batches.
pub struct Answers(Pin<Box<dyn Stream<Item = Item> + Send>>);

impl Answers {
    /// Answers `batches` until they end, one is refused, or the server drains and no more
    /// come.
    pub fn new(
        engine: Engine,
        batches: Streaming<BatchRequest>,
        mut drain: watch::Receiver<Drain>,
    ) -> Self {
        // Looked at with the first batch, whatever its state.
        drain.mark_changed();
        let session = Some(Session {
            engine,
            batches,
            drain,
            patience: Duration::MAX,
        });
        Self(Box::pin(stream::unfold(session, |session| async {
            let mut session = session?;
            match session.answer().await {
                Ok(Some(answer)) => Some((Ok(answer), Some(session))),
                Ok(None) => None,
                // An error is the last item.
                Err(status) => Some((Err(status), None)),
            }
        })))
    }
}

impl Stream for Answers {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

struct Session {
    engine: Engine,
    batches: Streaming<BatchRequest>,
    drain: watch::Receiver<Drain>,
    /// How long the client may be silent.
    patience: Duration,
}

impl Session {
    /// Takes one batch and answers it; `None` if there are no more.
    async fn answer(&mut self) -> Result<Option<BatchResponse>, Status> {
        let Some(batch) = self.next_batch().await? else {
            return Ok(None);
        };
        let BatchRequest {
            filter,
            keys,
            request_id: _,
        } = batch;
        let seen = self
            .engine
            .query_and_add_batch(&filter, keys)
            .await
            .map_err(status)?;
        Ok(Some(BatchResponse { seen }))
    }

    async fn next_batch(&mut self) -> Result<Option<BatchRequest>, Status> {
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
                next = timeout(patience, self.batches.message()) => {
                    return next.map_err(|_| stopping())?.map_err(malformed::correct);
                }
                // To be looked at above.
                _ = self.drain.changed() => self.drain.mark_changed(),
            }
        }
    }
}

fn stopping() -> Status {
    Status::unavailable("the server is stopping: every batch that it took has been answered")
}
