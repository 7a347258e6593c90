//! The log, as filters use it: what they add is handed to one thread, which writes it for all of
//! them at once.
//!
//! While a group of records is written, and synced if need be, the next one gathers. Records
//! come in lanes, one for each thread or few, so that calls on different cores do not contend;
//! in which order they reach the log does not matter, for additions commute.
//!
//! # What an answer waits for
//!
//! A filter gives its changes versions, one after the other, and each comes to the log once.
//! The [`Progress`] of a filter is the version up to which *all* have been written (and synced,
//! as [`Durability`] demands). An answer that rests on a version waits until progress is there:
//! whatever it has seen or changed is then as durable as it is to be.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    mem,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{EngineError, counters::stripe_of_this_thread};
use crate::{
    filter::hash::KeyHash,
    store::{Batch, FilterId, LogWriter, RequestId, StoreError},
};

/// More than this many threads share lanes.
const LANES: usize = 16;

/// How long the thread waits before it tries again what has failed.
const RETRY: Duration = Duration::from_millis(100);

/// What must have happened to a change before the answer to it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is on stable storage.
    Always,
    /// The operating system has it, and it will be on stable storage after this time at the
    /// latest.
    Interval(Duration),
    /// Nothing: what has changed since the last snapshot may be lost.
    Snapshot,
}

/// The log of all filters.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The log of one filter.
#[derive(Debug, Clone)]
pub struct FilterLog {
    shared: Arc<Shared>,
    filter: FilterId,
    progress: Arc<Progress>,
}

/// How far the log of a filter has come.
#[derive(Debug, Default)]
struct Progress {
    version: AtomicU64,
    moved: Notify,
}

#[derive(Debug)]
struct Shared {
    lanes: [CachePadded<Mutex<Lane>>; LANES],
    is_stopping: AtomicBool,
    trackers: Mutex<HashMap<FilterId, Tracker>>,
    /// Why nothing can be written at present.
    failure: Mutex<Option<Failure>>,
    has_failed: AtomicBool,
    /// The number of the segment that is written to.
    segment: AtomicU64,
    is_asleep: AtomicBool,
    writer: OnceLock<Thread>,
}

/// Records on their way to the log.
#[derive(Debug, Default)]
struct Lane {
    batches: Vec<Batch>,
    ends: Vec<End>,
}

/// That a version of a filter is in the batches.
#[derive(Debug, Clone, Copy)]
struct End {
    filter: FilterId,
    version: u64,
}

#[derive(Debug, Clone)]
struct Failure {
    is_full: bool,
    error: String,
}

/// Which versions of a filter have been written.
#[derive(Debug)]
struct Tracker {
    progress: Arc<Progress>,
    /// Those past the first that has not.
    ahead: BTreeSet<u64>,
}

impl Journal {
    /// Starts the thread that writes a log.
    ///
    /// # Errors
    ///
    /// [`EngineError::Internal`] if the system gives no thread.
    pub fn start(log: LogWriter, durability: Durability) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared {
            lanes: Default::default(),
            is_stopping: AtomicBool::new(false),
            trackers: Mutex::default(),
            failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            segment: AtomicU64::new(log.sequence()),
            is_asleep: AtomicBool::new(false),
            writer: OnceLock::new(),
        });
        let writer = Writer {
            shared: shared.clone(),
            log,
            sync_after: match durability {
                Durability::Interval(interval) => interval,
                Durability::Always | Durability::Snapshot => Duration::ZERO,
            },
            batches: VecDeque::new(),
            ends: Vec::new(),
            unsynced_since: None,
            is_broken: false,
        };
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| EngineError::internal("the system gives no thread", error))?;
        let _ = shared.writer.set(thread.thread().clone());
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The log of a filter that has a version, all of which is stored or in the log already.
    pub fn filter(&self, filter: FilterId, version: u64) -> FilterLog {
        let progress = Arc::new(Progress {
            version: AtomicU64::new(version),
            moved: Notify::new(),
        });
        let tracker = Tracker {
            progress: progress.clone(),
            ahead: BTreeSet::new(),
        };
        self.shared.trackers.lock().insert(filter, tracker);
        FilterLog {
            shared: self.shared.clone(),
            filter,
            progress,
        }
    }

    /// The number of the segment that is written to. What is in those before it was appended
    /// before this was asked.
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Refuses a call that is about to change something while nothing can be written.
    ///
    /// # Errors
    ///
    /// What keeps the log from being written.
    #[inline]
    pub fn check(&self) -> Result<(), EngineError> {
        if self.shared.has_failed.load(Ordering::Acquire) {
            self.shared.check()
        } else {
            Ok(())
        }
    }
}

impl Drop for Journal {
    /// Writes what there is.
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been told by its message.
            let _ = thread.join();
        }
    }
}

impl FilterLog {
    /// Hands over what a call of a version has added, up to `count` hashes.
    #[expect(
        clippy::indexing_slicing,
        reason = "a remainder is less than what it is the remainder of"
    )]
    pub fn append(
        &self,
        version: u64,
        request: Option<&RequestId>,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        let mut lane = self.shared.lanes[stripe_of_this_thread() % LANES].lock();
        if !lane.batches.last().is_some_and(|batch| batch.fits(count)) {
            lane.batches.push(Batch::default());
        }
        if let Some(batch) = lane.batches.last_mut() {
            batch.push(self.filter, version, request, hashes);
        }
        lane.ends.push(End {
            filter: self.filter,
            version,
        });
        drop(lane);
        self.shared.wake();
    }

    /// As [`Journal::segment`].
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Whether a version and all before it are as durable as they are to be.
    #[inline]
    pub fn has_reached(&self, version: u64) -> bool {
        self.progress.version.load(Ordering::Acquire) >= version
    }

    /// Waits until a version and all before it are as durable as they are to be.
    ///
    /// # Errors
    ///
    /// What keeps the log from being written. Whether the change will be found after a crash is
    /// then not known.
    pub async fn reached(&self, version: u64) -> Result<(), EngineError> {
        loop {
            let mut moved = pin!(self.progress.moved.notified());
            // From here on no move is missed.
            moved.as_mut().enable();
            if self.has_reached(version) {
                return Ok(());
            }
            self.shared.check()?;
            moved.await;
        }
    }

    /// Ends the log of a filter that is no more: nobody need wait for it.
    pub fn end(&self) {
        self.shared.trackers.lock().remove(&self.filter);
        self.progress.version.store(u64::MAX, Ordering::Release);
        self.progress.moved.notify_waiters();
    }
}

impl Shared {
    fn segment(&self) -> u64 {
        self.segment.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), EngineError> {
        match &*self.failure.lock() {
            None => Ok(()),
            Some(Failure { is_full, error }) => {
                let error = error.clone().into();
                Err(if *is_full {
                    EngineError::StorageFull(error)
                } else {
                    EngineError::StorageFailed(error)
                })
            }
        }
    }

    /// Has the thread look for what has been handed over.
    fn wake(&self) {
        // Either this sees that the thread is asleep, or the thread sees what there is.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn is_idle(&self) -> bool {
        !self.is_stopping() && self.lanes.iter().all(|lane| lane.lock().ends.is_empty())
    }

    /// Tells all who wait what keeps the log from being written, or that nothing does any more.
    fn set_failure(&self, error: Option<&StoreError>) {
        *self.failure.lock() = error.map(|error| Failure {
            is_full: error.is_full(),
            error: error.to_string(),
        });
        self.has_failed.store(error.is_some(), Ordering::Release);
        for tracker in self.trackers.lock().values() {
            tracker.progress.moved.notify_waiters();
        }
    }
}

impl Tracker {
    /// Notes that a version has been written.
    fn note(&mut self, version: u64) {
        let reached = self.progress.version.load(Ordering::Relaxed);
        self.ahead.insert(version);
        let mut now = reached;
        while self.ahead.first() == Some(&(now + 1)) {
            self.ahead.pop_first();
            now += 1;
        }
        if now > reached {
            self.progress.version.store(now, Ordering::Release);
            self.progress.moved.notify_waiters();
        }
    }
}

/// The thread that writes the log.
struct Writer {
    shared: Arc<Shared>,
    log: LogWriter,
    /// How long what has been written may stay unsynced.
    sync_after: Duration,
    /// What is to be written.
    batches: VecDeque<Batch>,
    /// The versions in that, and in what has been written but not told of.
    ends: Vec<End>,
    unsynced_since: Option<Instant>,
    /// Whether the log has failed, and is to be recovered before anything is written.
    is_broken: bool,
}

impl Writer {
    fn run(mut self) {
        loop {
            // Before the records are taken: those that are there by now are the last ones.
            let is_stopping = self.shared.is_stopping();
            self.take();
            let done = self.commit(is_stopping);
            self.tell(done.as_ref().err());
            match done {
                _ if is_stopping => return,
                Ok(()) => self.sleep(
                    self.unsynced_since
                        .map(|since| self.sync_after.saturating_sub(since.elapsed())),
                    Shared::is_idle,
                ),
                Err(_) => self.sleep(Some(RETRY), |shared| !shared.is_stopping()),
            }
        }
    }

    /// Takes what has been handed over.
    fn take(&mut self) {
        for lane in &self.shared.lanes {
            let Lane { batches, ends } = mem::take(&mut *lane.lock());
            self.batches.extend(batches);
            self.ends.extend(ends);
        }
    }

    /// Writes what is to be written, and syncs if it is time to.
    fn commit(&mut self, sync: bool) -> Result<(), StoreError> {
        if self.is_broken {
            self.log.recover()?;
            self.is_broken = false;
            self.unsynced_since = None;
            self.note_segment();
        }
        while let Some(batch) = self.batches.pop_front() {
            self.unsynced_since.get_or_insert_with(Instant::now);
            let written = self.log.write(batch);
            self.broken_by(written)?;
            self.note_segment();
        }
        let is_due = |since: Instant| sync || since.elapsed() >= self.sync_after;
        if self.unsynced_since.is_some_and(is_due) {
            let synced = self.log.sync();
            self.broken_by(synced)?;
            self.unsynced_since = None;
        }
        Ok(())
    }

    fn broken_by(&mut self, done: Result<(), StoreError>) -> Result<(), StoreError> {
        self.is_broken = done.is_err();
        done
    }

    fn note_segment(&self) {
        let segment = self.log.sequence();
        self.shared.segment.store(segment, Ordering::Release);
    }

    /// Tells those who wait what has been written, or why it has not.
    fn tell(&mut self, error: Option<&StoreError>) {
        let had_failed = self.shared.has_failed.load(Ordering::Relaxed);
        if let Some(error) = error {
            if !had_failed {
                tracing::error!(%error, "the log cannot be written: keys are refused until it can");
            }
            self.shared.set_failure(Some(error));
            return;
        }
        if had_failed {
            tracing::info!("the log can be written again");
            self.shared.set_failure(None);
        }
        if self.ends.is_empty() {
            return;
        }
        let mut trackers = self.shared.trackers.lock();
        for End { filter, version } in self.ends.drain(..) {
            // One that has been deleted has none.
            if let Some(tracker) = trackers.get_mut(&filter) {
                tracker.note(version);
            }
        }
    }

    /// Waits, if there is nothing to do, for something to do or until time is up.
    fn sleep(&self, time: Option<Duration>, has_nothing_to_do: fn(&Shared) -> bool) {
        self.shared.is_asleep.store(true, Ordering::Relaxed);
        // See `wake`.
        fence(Ordering::SeqCst);
        if has_nothing_to_do(&self.shared) {
            match time {
                Some(time) => thread::park_timeout(time),
                None => thread::park(),
            }
        }
        self.shared.is_asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::store::{Disk, LogEnd, LogReader, simulated::SimulatedDisk};

    fn start(disk: &SimulatedDisk) -> Journal {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let log = LogWriter::open(disk, LogEnd::default(), 1 << 10).unwrap();
        Journal::start(log, Durability::Always).unwrap()
    }

    fn append(log: &FilterLog, version: u64) {
        let hash = KeyHash {
            low: version,
            high: version,
        };
        log.append(version, None, 1, std::iter::once(hash));
    }

    /// A version whose call has not handed it over yet holds up those behind it, and nobody who
    /// waits for those before.
    #[tokio::test]
    async fn progress_waits_for_every_version() {
        let disk = SimulatedDisk::default();
        let journal = start(&disk);
        let (log, other) = (
            journal.filter(FilterId(1), 4),
            journal.filter(FilterId(2), 0),
        );
        assert!(log.has_reached(4) && !log.has_reached(5));
        append(&log, 5);
        log.reached(5).await.unwrap();
        append(&log, 8);
        append(&log, 7);
        // What comes later has been written, and so have those.
        append(&other, 1);
        other.reached(1).await.unwrap();
        assert!(!log.has_reached(6));
        assert!(log.reached(7).now_or_never().is_none());
        append(&log, 6);
        log.reached(8).await.unwrap();

        drop(journal);
        let mut versions = Vec::new();
        let reader = LogReader::open(&disk, 1).unwrap();
        reader
            .read(|record| {
                versions.push((record.filter.0, record.version));
                Ok::<_, StoreError>(())
            })
            .unwrap();
        versions.sort_unstable();
        assert_eq!(versions, [(1, 5), (1, 6), (1, 7), (1, 8), (2, 1)]);
    }

    /// Threads hand over at the same time: nothing is lost on the way, and everybody is woken.
    #[test]
    fn nothing_is_lost_between_threads() {
        let disk = SimulatedDisk::default();
        let journal = start(&disk);
        let log = journal.filter(FilterId(1), 0);
        let next = AtomicU64::new(1);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build();
                    runtime.unwrap().block_on(async {
                        for _ in 0..200 {
                            let version = next.fetch_add(1, Ordering::Relaxed);
                            append(&log, version);
                            log.reached(version).await.unwrap();
                        }
                    });
                });
            }
        });
        assert!(log.has_reached(1600));
        assert!(!log.has_reached(1601));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_filter_that_is_no_more() {
        let disk = SimulatedDisk::default();
        let journal = start(&disk);
        let log = journal.filter(FilterId(1), 0);
        let (waiting, ending) = (log.reached(1), async { log.end() });
        let both = async { tokio::join!(waiting, ending) };
        let (waited, ()) = tokio::time::timeout(Duration::from_secs(10), both)
            .await
            .unwrap();
        waited.unwrap();
    }
}
