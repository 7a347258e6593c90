//! The body of a request. It has some seconds to arrive once a stop has begun.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tonic::{Status, codegen::StdError};

use crate::grpc::{
    ARRIVAL_PATIENCE, ARRIVAL_TIMEOUT,
    status::unapplied,
    wire::{
        calls::{CoreCalls, Drain},
        received::Received,
    },
};

/// The body of a request.
pub struct RequestBody<B = Received> {
    body: B,
    /// The calls of its core; `None` for requests that last as long as their clients like.
    core_calls: Option<CoreCalls>,
    /// Whether the time is limited even if the server is not stopping.
    is_limited: bool,
    /// Completes when the server waits no longer. It is made when the body has to wait.
    late: Option<BoxFuture<'static, Status>>,
}

impl<B> RequestBody<B> {
    /// Returns the body of a call that begins when all of it has arrived.
    pub fn new(body: B, core_calls: &CoreCalls) -> Self {
        Self {
            body,
            core_calls: Some(core_calls.clone()),
            is_limited: false,
            late: None,
        }
    }

    /// Limits the time of arrival even if the server is not stopping.
    pub fn in_time(self) -> Self {
        Self {
            is_limited: true,
            ..self
        }
    }

    /// Returns the body of a call that handles its messages as they arrive. The call itself decides
    /// what to do when a stop begins.
    pub fn of_stream(body: B) -> Self {
        Self {
            body,
            core_calls: None,
            is_limited: false,
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
        let Self {
            body,
            core_calls,
            is_limited,
            late,
        } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let frame = frame.map(|frame| frame.map_err(|error| Status::from_error(error.into())));
            return Poll::Ready(frame);
        }
        let Some(core_calls) = core_calls else {
            return Poll::Pending;
        };
        let limit = if *is_limited {
            ARRIVAL_TIMEOUT
        } else {
            Duration::MAX
        };
        let late = late.get_or_insert_with(|| Box::pin(too_late(core_calls.drain_state(), limit)));
        late.as_mut().poll(cx).map(|late| Some(Err(late)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits until some seconds after a stop has begun, or until the limit is over. Returns the status
/// of the call.
async fn too_late(mut draining: watch::Receiver<Drain>, limit: Duration) -> Status {
    let stop = async {
        // An error means that the server is gone.
        let _ = draining.wait_for(|drain| *drain >= Drain::Begun).await;
        sleep(ARRIVAL_PATIENCE).await;
    };
    match timeout(limit, stop).await {
        Ok(()) => stopping(),
        Err(_) => unapplied(format!(
            "the request did not arrive within {} seconds",
            limit.as_secs()
        )),
    }
}

fn stopping() -> Status {
    unapplied(
        "the server is stopping, and the call was not carried out, for its request did not arrive \
         in time; try again",
    )
}
