//! The calls in flight: whether new ones are welcome, and when the last has ended.
//!
//! Health checks and reflection are not among them: whoever watches a server that is about
//! to stop neither holds it up nor is sent away.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::watch;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tonic::{
    Status,
    body::Body,
    codegen::{
        Bytes,
        http::{Request, Response},
    },
};
use tower::{Layer, Service};

use super::intake::{Intake, Room, Share};

/// What the paths of our own services begin with.
const OUR_PATHS: &str = "/seenset.";

/// The calls in flight. Cheap to clone; clones are the same calls.
#[derive(Debug, Clone)]
pub struct Calls {
    tracker: TaskTracker,
    drain: watch::Sender<Drain>,
    room: Room,
}

/// How far a stop has come, for calls that go on for as long as their clients like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drain {
    /// There is no stop.
    No,
    /// Calls may finish, and those that are silent end.
    Begun,
    /// Time is up: streams end with the batch that they are at.
    Over,
}

impl Default for Calls {
    /// No calls, and all are welcome.
    fn default() -> Self {
        Self {
            tracker: TaskTracker::new(),
            drain: watch::Sender::new(Drain::No),
            room: Room::default(),
        }
    }
}

impl Calls {
    /// Tells how far a stop has come.
    pub fn drain_state(&self) -> watch::Receiver<Drain> {
        self.drain.subscribe()
    }

    /// Refuses calls from now on, and returns when those in flight have ended.
    pub async fn drain(&self) {
        self.tracker.close();
        self.drain.send_replace(Drain::Begun);
        self.tracker.wait().await;
    }

    /// Ends streams with the batch that they are at, and returns when all calls have ended.
    pub async fn cut(&self) {
        self.tracker.close();
        self.drain.send_replace(Drain::Over);
        self.tracker.wait().await;
    }
}

impl<S> Layer<S> for Calls {
    type Service = Tracked<S>;

    fn layer(&self, inner: S) -> Tracked<S> {
        Tracked {
            calls: self.clone(),
            inner,
        }
    }
}

/// A service whose calls are tracked.
#[derive(Debug, Clone)]
pub struct Tracked<S> {
    calls: Calls,
    inner: S,
}

impl<S> Service<Request<Body>> for Tracked<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_ours = request.uri().path().starts_with(OUR_PATHS);
        // Before the question whether it is welcome: so a call that is let in is waited for.
        let token = is_ours.then(|| self.calls.tracker.token());
        if is_ours && self.calls.tracker.is_closed() {
            return Answering::Refused;
        }
        let share = Share::default();
        let request =
            request.map(|body| Body::new(Intake::new(body, &self.calls.room, share.clone())));
        Answering::Called {
            response: self.inner.call(request),
            share,
            token,
        }
    }
}

pin_project! {
    /// The response to a call.
    #[project = AnsweringProjection]
    pub enum Answering<F> {
        Called {
            #[pin]
            response: F,
            // Holds the memory of the message until the call is done with it.
            share: Share,
            token: Option<TaskTrackerToken>,
        },
        Refused,
    }
}

impl<F, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            AnsweringProjection::Called {
                response,
                share: _,
                token,
            } => {
                let response = ready!(response.poll(cx))?;
                let token = token.take();
                Ok(response.map(|inner| Body::new(TrackedBody { inner, token })))
            }
            AnsweringProjection::Refused => Ok(Status::unavailable(
                "the server is stopping, and the call was not carried out; try again",
            )
            .into_http()),
        })
    }
}

/// The body of a response: its call is in flight until all of it has been sent.
struct TrackedBody {
    inner: Body,
    token: Option<TaskTrackerToken>,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if frame.is_none() {
            self.token = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
