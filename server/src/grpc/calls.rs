//! The calls in flight: whether new ones are welcome, and when the last has ended.
//!
//! Health checks and reflection are not among them: whoever watches a server that is about
//! to stop neither holds it up nor is sent away.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
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
    /// One for each lane, or all cores would contend for the count of calls.
    trackers: Arc<Mutex<Vec<TaskTracker>>>,
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
            trackers: Arc::default(),
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

    /// A layer for the services of one core, which tracks their calls.
    pub fn lane(&self) -> Lane {
        let tracker = TaskTracker::new();
        self.trackers.lock().push(tracker.clone());
        if *self.drain.borrow() >= Drain::Begun {
            tracker.close();
        }
        Lane {
            tracker,
            room: Arc::new(self.room.clone()),
        }
    }

    /// Refuses calls from now on, and returns when those in flight have ended.
    pub async fn drain(&self) {
        self.turn_to(Drain::Begun).await;
    }

    /// Ends streams with the batch that they are at, and returns when all calls have ended.
    pub async fn cut(&self) {
        self.turn_to(Drain::Over).await;
    }

    async fn turn_to(&self, drain: Drain) {
        self.drain.send_replace(drain);
        // Those that come from now on are closed from the start.
        let trackers = self.trackers.lock().clone();
        for tracker in &trackers {
            tracker.close();
        }
        for tracker in trackers {
            tracker.wait().await;
        }
    }
}

/// Tracks the calls of one core.
#[derive(Debug, Clone)]
pub struct Lane {
    tracker: TaskTracker,
    room: Arc<Room>,
}

impl<S> Layer<S> for Lane {
    type Service = Tracked<S>;

    fn layer(&self, inner: S) -> Tracked<S> {
        Tracked {
            lane: self.clone(),
            inner,
        }
    }
}

/// A service whose calls are tracked.
#[derive(Debug, Clone)]
pub struct Tracked<S> {
    lane: Lane,
    inner: S,
}

impl<S> Service<Request<Body>> for Tracked<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<TrackedBody>;
    type Error = S::Error;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Lane { tracker, room } = &self.lane;
        let is_ours = request.uri().path().starts_with(OUR_PATHS);
        // Before the question whether it is welcome: so a call that is let in is waited for.
        let token = is_ours.then(|| tracker.token());
        if is_ours && tracker.is_closed() {
            return Answering::Refused;
        }
        let share = Share::default();
        let request = request.map(|body| Body::new(Intake::new(body, room, share.clone())));
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
    type Output = Result<Response<TrackedBody>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match self.project() {
            AnsweringProjection::Called {
                response,
                share: _,
                token,
            } => {
                let response = ready!(response.poll(cx))?;
                let token = token.take();
                response.map(|inner| TrackedBody { inner, token })
            }
            AnsweringProjection::Refused => Status::unavailable(
                "the server is stopping, and the call was not carried out; try again",
            )
            .into_http()
            .map(|inner| TrackedBody { inner, token: None }),
        }))
    }
}

/// The body of a response: its call is in flight until all of it has been sent.
pub struct TrackedBody {
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
