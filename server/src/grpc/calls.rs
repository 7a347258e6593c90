//! The calls in flight: whether new ones are welcome, and when the last has ended.
//!
//! Health checks and reflection are not among them: whoever watches a server that is about
//! to stop neither holds it up nor is sent away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tonic::Status;

use super::status::unapplied;

/// What the paths of our own services begin with.
const OUR_PATHS: &str = "/seenset.";

/// How long a stop waits for clients that read none of the answers that wait for them.
const READING_PATIENCE: Duration = Duration::from_secs(3);

/// The calls in flight. Cheap to clone; clones are the same calls.
#[derive(Debug, Clone)]
pub struct Calls {
    /// One for each core, or all cores would contend for the count of calls.
    lanes: Arc<Mutex<Vec<Lane>>>,
    drain: watch::Sender<Drain>,
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
            lanes: Arc::default(),
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
        let lane = Lane(Arc::new(LaneState {
            working: TaskTracker::new(),
            sending: TaskTracker::new(),
            frames: AtomicU64::new(0),
            draining: self.drain.subscribe(),
        }));
        self.lanes.lock().push(lane.clone());
        if *self.drain.borrow() >= Drain::Begun {
            lane.close();
        }
        lane
    }

    /// Refuses calls from now on, and waits for those in flight. Returns whether all have ended;
    /// if not, the clients of those that are left read nothing.
    pub async fn drain(&self) -> bool {
        let lanes = self.turn_to(Drain::Begun);
        let frames = || -> u64 { lanes.iter().map(Lane::frames).sum() };
        let nothing_works = || lanes.iter().all(|Lane(lane)| lane.working.is_empty());
        loop {
            for Lane(lane) in &lanes {
                lane.working.wait().await;
            }
            let frames_before = frames();
            let sent = timeout(READING_PATIENCE, async {
                for Lane(lane) in &lanes {
                    lane.sending.wait().await;
                }
            });
            let all_sent = sent.await.is_ok();
            // A stream that has sent an answer works at the next one.
            if nothing_works() && (all_sent || frames() == frames_before) {
                return all_sent;
            }
        }
    }

    /// Ends streams with the batch that they are at, and returns when all calls have ended.
    pub async fn cut(&self) {
        for Lane(lane) in self.turn_to(Drain::Over) {
            lane.working.wait().await;
            lane.sending.wait().await;
        }
    }

    fn turn_to(&self, drain: Drain) -> Vec<Lane> {
        self.drain.send_replace(drain);
        // Those that come from now on are closed from the start.
        let lanes = self.lanes.lock().clone();
        lanes.iter().for_each(Lane::close);
        lanes
    }
}

/// The calls in flight of one core. Cheap to clone; clones are the same.
#[derive(Debug, Clone)]
pub struct Lane(Arc<LaneState>);

#[derive(Debug)]
struct LaneState {
    /// The calls that wait for the server or for their request.
    working: TaskTracker,
    /// Those whose answer, or the next part of it, waits until the client reads.
    sending: TaskTracker,
    /// The parts of answers that have been sent. Only the thread of the core adds to it.
    frames: AtomicU64,
    draining: watch::Receiver<Drain>,
}

impl Lane {
    /// Lets a call in, and tracks it if it is for a service of ours.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE, if no more are welcome.
    pub fn admit(&self, path: &str) -> Result<Option<Token>, Status> {
        if !path.starts_with(OUR_PATHS) {
            return Ok(None);
        }
        let Self(lane) = self;
        // Before the question whether it is welcome: so a call that is let in is waited for.
        let token = Token {
            at: lane.working.token(),
            is_sending: false,
            lane: self.clone(),
        };
        if lane.working.is_closed() {
            return Err(unapplied(
                "the server is stopping, and the call was not carried out; try again",
            ));
        }
        Ok(Some(token))
    }

    /// Tells how far a stop has come.
    pub fn drain_state(&self) -> watch::Receiver<Drain> {
        self.0.draining.clone()
    }

    fn frames(&self) -> u64 {
        self.0.frames.load(Ordering::Relaxed)
    }

    fn close(&self) {
        let Self(lane) = self;
        lane.working.close();
        lane.sending.close();
    }
}

/// One call in flight, until it is dropped.
#[derive(Debug)]
pub struct Token {
    at: TaskTrackerToken,
    is_sending: bool,
    lane: Lane,
}

impl Token {
    /// Says that a part of the answer is there, and the next one is made when the client reads.
    pub fn sending(&mut self) {
        let Lane(lane) = &self.lane;
        lane.frames.store(self.lane.frames() + 1, Ordering::Relaxed);
        if !self.is_sending {
            self.is_sending = true;
            self.at = lane.sending.token();
        }
    }

    /// Says that the client waits for the server.
    pub fn working(&mut self) {
        if self.is_sending {
            self.is_sending = false;
            self.at = self.lane.0.working.token();
        }
    }
}
