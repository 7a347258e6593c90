//! The body of a request, which has to arrive within some seconds once a stop has begun.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::{sync::watch, time::sleep};
use tonic::{Status, codegen::StdError};

use super::{
    ARRIVAL_PATIENCE,
    calls::{Drain, Lane},
    status::unapplied,
};

/// The body of a request.
pub struct RequestBody<B = Incoming> {
    body: B,
    /// `None` for requests that go on for as long as their clients like.
    lane: Option<Lane>,
    /// Over when the server waits no longer; made when there is something to wait for.
    late: Option<BoxFuture<'static, ()>>,
}

impl<B> RequestBody<B> {
    /// The body of a call that begins when all of it is there.
    pub fn new(body: B, lane: &Lane) -> Self {
        Self {
            body,
            lane: Some(lane.clone()),
            late: None,
        }
    }

    /// The body of a call that deals with its messages as they come, and knows itself what to do
    /// when a stop begins.
    pub fn of_stream(body: B) -> Self {
        Self {
            body,
            lane: None,
            late: None,
        }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { body, lane, late } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let frame = frame.map(|frame| frame.map_err(|error| Status::from_error(error.into())));
            return Poll::Ready(frame);
        }
        let Some(lane) = lane else {
            return Poll::Pending;
        };
        let late = late.get_or_insert_with(|| Box::pin(too_late(lane.drain_state())));
        late.as_mut().poll(cx).map(|()| Some(Err(stopping())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns some seconds after a stop has begun.
async fn too_late(mut draining: watch::Receiver<Drain>) {
    // An error means that the server is gone.
    let _ = draining.wait_for(|drain| *drain >= Drain::Begun).await;
    sleep(ARRIVAL_PATIENCE).await;
}

fn stopping() -> Status {
    unapplied(
        "the server is stopping, and the call was not carried out, for its request did not arrive \
         in time; try again",
    )
}
