//! The calls in flight: whether new ones are admitted, and when the last one has ended.
//!
//! Health checks and reflection do not count. So a client that watches a server which is about to
//! stop neither delays the stop nor is refused.

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

use crate::grpc::status::unapplied;

/// The prefix of the paths of our own services.
const OUR_PATHS: &str = "/seenset.";

/// The time that a stop waits for clients that do not read the answers that wait for them.
const READING_PATIENCE: Duration = Duration::from_secs(3);

/// The calls in flight. Cheap to clone: clones share the same calls.
#[derive(Debug, Clone)]
pub struct Calls {
    /// The calls of each core. With one counter, all cores would contend for it.
    cores: Arc<Mutex<Vec<CoreCalls>>>,
    drain: watch::Sender<Drain>,
}

/// The progress of a stop, for calls that last as long as their clients like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drain {
    /// The server is not stopping.
    No,
    /// Calls may finish, and silent calls end.
    Begun,
    /// Time is up: each stream ends after its current batch.
    Over,
}

impl Default for Calls {
    /// Starts without calls, and admits new ones.
    fn default() -> Self {
        Self {
            cores: Arc::default(),
            drain: watch::Sender::new(Drain::No),
        }
    }
}

impl Calls {
    /// Returns a receiver for the progress of a stop.
    pub fn drain_state(&self) -> watch::Receiver<Drain> {
        self.drain.subscribe()
    }

    /// Adds a core, and returns its calls.
    pub fn core_calls(&self) -> CoreCalls {
        let core_calls = CoreCalls(Arc::new(CoreCallsState {
            working: TaskTracker::new(),
            sending: TaskTracker::new(),
            frames: AtomicU64::new(0),
            draining: self.drain.subscribe(),
        }));
        self.cores.lock().push(core_calls.clone());
        if *self.drain.borrow() >= Drain::Begun {
            core_calls.close();
        }
        core_calls
    }

    /// Refuses calls from now on, and waits for the calls in flight. Returns whether all have
    /// ended. If not, the clients of the calls that are left read nothing.
    pub async fn drain(&self) -> bool {
        let cores = self.turn_to(Drain::Begun);
        let frames = || -> u64 { cores.iter().map(CoreCalls::frames).sum() };
        let nothing_works = || {
            cores
                .iter()
                .all(|CoreCalls(core_calls)| core_calls.working.is_empty())
        };
        loop {
            for CoreCalls(core_calls) in &cores {
                core_calls.working.wait().await;
            }
            let frames_before = frames();
            let sent = timeout(READING_PATIENCE, async {
                for CoreCalls(core_calls) in &cores {
                    core_calls.sending.wait().await;
                }
            });
            let all_sent = sent.await.is_ok();
            // A stream that has sent an answer works on the next one.
            if nothing_works() && (all_sent || frames() == frames_before) {
                return all_sent;
            }
        }
    }

    /// Ends each stream after its current batch, and returns when all calls have ended.
    pub async fn cut(&self) {
        for CoreCalls(core_calls) in self.turn_to(Drain::Over) {
            core_calls.working.wait().await;
            core_calls.sending.wait().await;
        }
    }

    fn turn_to(&self, drain: Drain) -> Vec<CoreCalls> {
        self.drain.send_replace(drain);
        // Lanes that are added from now on are closed from the start.
        let cores = self.cores.lock().clone();
        cores.iter().for_each(CoreCalls::close);
        cores
    }
}

/// The calls in flight of one core. Cheap to clone: clones share the same calls.
#[derive(Debug, Clone)]
pub struct CoreCalls(Arc<CoreCallsState>);

#[derive(Debug)]
struct CoreCallsState {
    /// The calls that wait for the server or for their request.
    working: TaskTracker,
    /// The calls whose answer, or the next part of it, waits until the client reads.
    sending: TaskTracker,
    /// The number of answer parts that have been sent. Only the thread of the core adds to it.
    frames: AtomicU64,
    draining: watch::Receiver<Drain>,
}

impl CoreCalls {
    /// Admits a call, and tracks it if it is for one of our own services.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if the server is stopping.
    pub fn admit(&self, path: &str) -> Result<Option<Token>, Status> {
        if !path.starts_with(OUR_PATHS) {
            return Ok(None);
        }
        let Self(core_calls) = self;
        // The token is taken before the check, so that the stop waits for each call that is
        // admitted.
        let token = Token {
            at: core_calls.working.token(),
            is_sending: false,
            core_calls: self.clone(),
        };
        if core_calls.working.is_closed() {
            return Err(unapplied(
                "the server is stopping, and the call was not carried out; try again",
            ));
        }
        Ok(Some(token))
    }

    /// Returns a receiver for the progress of a stop.
    pub fn drain_state(&self) -> watch::Receiver<Drain> {
        self.0.draining.clone()
    }

    fn frames(&self) -> u64 {
        self.0.frames.load(Ordering::Relaxed)
    }

    fn close(&self) {
        let Self(core_calls) = self;
        core_calls.working.close();
        core_calls.sending.close();
    }
}

/// One call in flight. Dropping it ends the call.
#[derive(Debug)]
pub struct Token {
    at: TaskTrackerToken,
    is_sending: bool,
    core_calls: CoreCalls,
}

impl Token {
    /// Notes that a part of the answer is made, and that the next one is made when the client
    /// reads.
    pub fn sending(&mut self) {
        let CoreCalls(core_calls) = &self.core_calls;
        core_calls
            .frames
            .store(self.core_calls.frames() + 1, Ordering::Relaxed);
        if !self.is_sending {
            self.is_sending = true;
            self.at = core_calls.sending.token();
        }
    }

    /// Notes that the client waits for the server.
    pub fn working(&mut self) {
        if self.is_sending {
            self.is_sending = false;
            self.at = self.core_calls.0.working.token();
        }
    }
}
