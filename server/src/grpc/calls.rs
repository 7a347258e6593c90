//! The calls in flight: whether new ones are welcome, and when the last has ended.
//!
//! Health checks and reflection are not among them: whoever watches a server that is about
//! to stop neither holds it up nor is sent away.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tonic::Status;

use super::status::unapplied;

/// What the paths of our own services begin with.
const OUR_PATHS: &str = "/seenset.";

/// The calls in flight. Cheap to clone; clones are the same calls.
#[derive(Debug, Clone)]
pub struct Calls {
    /// One for each lane, or all cores would contend for the count of calls.
    trackers: Arc<Mutex<Vec<TaskTracker>>>,
    drain: watch::Sender<Drain>,
}

/// One call in flight, until it is dropped.
pub type Token = TaskTrackerToken;

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
        }
    }
}

impl Calls {
    /// Tells how far a stop has come.
    pub fn drain_state(&self) -> watch::Receiver<Drain> {
        self.drain.subscribe()
    }

    /// Those of one core.
    pub fn lane(&self) -> Lane {
        let tracker = TaskTracker::new();
        self.trackers.lock().push(tracker.clone());
        if *self.drain.borrow() >= Drain::Begun {
            tracker.close();
        }
        Lane(tracker)
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

/// The calls in flight of one core.
#[derive(Debug, Clone)]
pub struct Lane(TaskTracker);

impl Lane {
    /// Lets a call in, and tracks it if it is for a service of ours.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE, if no more are welcome.
    pub fn admit(&self, path: &str) -> Result<Option<Token>, Status> {
        let Self(tracker) = self;
        if !path.starts_with(OUR_PATHS) {
            return Ok(None);
        }
        // Before the question whether it is welcome: so a call that is let in is waited for.
        let token = tracker.token();
        if tracker.is_closed() {
            return Err(unapplied(
                "the server is stopping, and the call was not carried out; try again",
            ));
        }
        Ok(Some(token))
    }
}
