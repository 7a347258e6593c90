//! The log, as filters use it: what they add is handed over in [lanes] to one thread, which
//! [writes](writer) it for all of them at once, and answers wait for its [progress].

mod disk_watch;
mod failure;
mod keeper;
mod lanes;
mod progress;
mod sleeper;
mod trackers;
mod writer;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::lanes::Room;
use self::{
    disk_watch::DiskWatch, failure::Failure, lanes::Lanes, progress::Progress, sleeper::Sleeper,
    trackers::Trackers, writer::Writer,
};
use super::{EngineError, requests::Remembered, versions::Versions};
use crate::{
    filter::hash::KeyHash,
    store::{Batch, FilterId, LogWriter, RecordHead, Segment, StoreError},
};

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

#[derive(Debug)]
struct Shared {
    lanes: Lanes,
    is_stopping: AtomicBool,
    trackers: Mutex<Trackers>,
    /// Why nothing can be written at present.
    failure: Mutex<Option<Failure>>,
    has_failed: AtomicBool,
    /// Why there will be no room beyond what there is.
    shortage: Mutex<Option<Failure>>,
    /// Whether calls are refused until there is another segment.
    is_full: AtomicBool,
    /// Tells others whether keys are refused, for either reason.
    is_read_only: watch::Sender<bool>,
    flushes: Mutex<Vec<Flush>>,
    /// The number of the segment that is written to.
    segment: AtomicU64,
    /// Whether the keeper has done something.
    has_news: AtomicBool,
    /// Whether the thread is no more.
    has_ended: AtomicBool,
    writer: Sleeper,
    watch: Arc<DiskWatch>,
}

/// That somebody waits for something to be on stable storage.
#[derive(Debug)]
struct Flush {
    /// A filter, up to a version; or else all that had been handed over.
    of: Option<(FilterId, u64)>,
    done: SyncSender<Result<(), String>>,
}

impl Journal {
    /// Starts the thread that writes a log, to segments of so many bytes. Tells through
    /// `is_read_only` when keys are refused.
    ///
    /// # Errors
    ///
    /// [`EngineError::Internal`] if the system gives no thread.
    pub fn start(
        log: LogWriter,
        durability: Durability,
        segment_bytes: u64,
        is_read_only: watch::Sender<bool>,
    ) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared {
            lanes: Lanes::new(segment_bytes),
            is_stopping: AtomicBool::new(false),
            trackers: Mutex::default(),
            failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            shortage: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_read_only,
            flushes: Mutex::default(),
            segment: AtomicU64::new(log.sequence()),
            has_news: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            writer: Sleeper::default(),
            watch: Arc::default(),
        });
        let writer = Writer::new(shared.clone(), log, durability, segment_bytes)?;
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| EngineError::internal("the system gives no thread", error))?;
        shared.writer.set_thread(thread.thread().clone());
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The log of a filter, all changes of which are stored or in the log already.
    pub fn filter(&self, filter: FilterId, versions: &Arc<Versions>) -> FilterLog {
        FilterLog {
            shared: self.shared.clone(),
            filter,
            progress: self.shared.trackers.lock().begin(filter, versions),
        }
    }

    /// The number of the segment that is written to. What is in those before it was appended
    /// before this was asked.
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Reserves room in the log for a call that may add so many keys, in so many records: to
    /// be done before it adds any, or there might be bits that the log has no room for. Waits for
    /// room that is being made.
    ///
    /// # Errors
    ///
    /// What keeps the log from being written, or from getting longer.
    pub async fn reserve(&self, keys: usize, records: usize) -> Result<Room<'_>, EngineError> {
        loop {
            if let Some(room) = self.try_reserve(keys, records)? {
                return Ok(room);
            }
            let lanes = &self.shared.lanes;
            let mut more = pin!(lanes.more_room.notified());
            // From here on no change is missed.
            more.as_mut().enable();
            let _waiting = lanes.wait();
            match self.try_reserve(keys, records)? {
                Some(room) => return Ok(room),
                None => more.await,
            }
        }
    }

    /// Writes again what requests of a filter have won. Their hashes are in the filter and on
    /// stable storage, so that no version is needed.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub async fn repeat(&self, remembered: &Remembered) -> Result<(), EngineError> {
        for hashes in self.in_records(remembered) {
            let room = self.reserve(hashes.len(), 1).await?;
            self.append_won(room, remembered, hashes);
        }
        Ok(())
    }

    /// [`Self::repeat`] for whoever must not wait for room; `false` if there is too little.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_repeat(&self, remembered: &Remembered) -> Result<bool, EngineError> {
        for hashes in self.in_records(remembered) {
            match self.try_reserve(hashes.len(), 1)? {
                Some(room) => self.append_won(room, remembered, hashes),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Several calls may have won more than there is room for at once.
    fn in_records<'a>(&self, remembered: &'a Remembered) -> std::slice::Chunks<'a, KeyHash> {
        let most = self.shared.lanes.hashes_of_a_record();
        remembered.hashes.chunks(most)
    }

    fn append_won(&self, mut room: Room<'_>, of: &Remembered, hashes: &[KeyHash]) {
        let head = RecordHead {
            request: Some(of.request),
            ..RecordHead::added(of.filter, 0)
        };
        let lanes = &self.shared.lanes;
        lanes.append(&mut room, &head, hashes.len(), hashes.iter().copied());
        self.shared.wake();
    }

    /// How long the oldest disk call of the log has been in progress; zero if there is none.
    pub fn disk_silence(&self) -> Duration {
        self.shared.watch.silence()
    }

    /// Waits until all that has been handed over is on stable storage. Blocks.
    ///
    /// # Errors
    ///
    /// What keeps the log from being written.
    pub fn flush(&self) -> Result<(), String> {
        self.shared.flush(None)
    }

    /// [`Self::reserve`] for two filters that a call changes. At once: or calls could hold what the
    /// others wait for.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn reserve_for_both(
        &self,
        keys: usize,
        records: [usize; 2],
    ) -> Result<[Room<'_>; 2], EngineError> {
        let [first, second] = records;
        let room = self.reserve(2 * keys, first + second).await?;
        Ok(room.split(self.shared.lanes.needed_bytes(keys, first)))
    }

    /// The bytes of segments, of `least` or more, in which two filters that a call changes find
    /// room: for so many keys and, beside those that are full, so many records in each.
    ///
    /// There is room in the next segment at least, and behind what is written to either of the two as
    /// much may be left as a batch has.
    pub fn segment_bytes_for(least: u64, keys: usize, records: usize) -> u64 {
        // Nowhere are records smaller, and so more.
        let lanes = Lanes::new(least);
        let full = keys / lanes.hashes_of_a_record();
        // No more than there are keys, but for the two that are kept ready for a key that ages.
        let records = (records + full).min(keys.max(2));
        let needed = lanes.needed_bytes(2 * keys, 2 * records);
        (Segment::OVERHEAD_BYTES + 2 * Batch::MAX_BYTES + needed).max(least)
    }

    /// How many wait for room.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.shared.lanes.waiting()
    }

    /// [`Self::reserve`] without waiting; `None` if room is being made.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_reserve(
        &self,
        keys: usize,
        records: usize,
    ) -> Result<Option<Room<'_>>, EngineError> {
        let shared = &self.shared;
        shared.check()?;
        if !shared.is_full.load(Ordering::Acquire)
            && let Some(room) = shared.lanes.reserve(keys, records)
        {
            return Ok(Some(room));
        }
        match &*shared.shortage.lock() {
            None => Ok(None),
            Some(shortage) => {
                // Or small calls would go on for long after a large one was refused.
                if !shared.is_full.swap(true, Ordering::AcqRel) {
                    shared.tell_read_only();
                }
                Err(shortage.error())
            }
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
    /// Hands over so many hashes, which a call of a version has changed, and for which room was
    /// reserved. Of a version without any there is a record nevertheless.
    pub fn append(
        &self,
        room: &mut Room<'_>,
        head: &RecordHead,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        self.shared.lanes.append(room, head, count, hashes);
        self.shared.wake();
    }

    /// [`Self::append`] for a version whose hashes are not all of one head, but in that.
    pub fn append_parts<H: Iterator<Item = KeyHash>>(
        &self,
        room: &mut Room<'_>,
        parts: impl Iterator<Item = (RecordHead, usize, H)>,
    ) {
        self.shared.lanes.append_parts(room, parts);
        self.shared.wake();
    }

    /// Calls with more hashes than this have several records.
    pub fn hashes_of_a_record(&self) -> usize {
        self.shared.lanes.hashes_of_a_record()
    }

    /// As [`Journal::segment`].
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Whether a version and all before it are as durable as they are to be.
    #[inline]
    pub fn has_reached(&self, version: u64) -> bool {
        self.progress.has_reached(version)
    }

    /// Waits until a version and all before it are as durable as they are to be.
    ///
    /// # Errors
    ///
    /// What keeps the log from being written. Whether the change will be found after a crash is
    /// then not known.
    pub async fn reached(&self, version: u64) -> Result<(), EngineError> {
        self.progress.reached(version, || self.shared.check()).await
    }

    /// Waits until a version and all before it are on stable storage, however durable they are
    /// to be. Blocks.
    ///
    /// # Errors
    ///
    /// What keeps the log from being written.
    pub fn flush(&self, version: u64) -> Result<(), String> {
        self.shared.flush(Some((self.filter, version)))
    }

    /// While the log cannot be written: whether keys are in it nevertheless, that were found
    /// where the latest change is of a version.
    pub fn is_certain(&self, version: u64, hashes: impl Iterator<Item = KeyHash>) -> bool {
        let failure = self.shared.failure.lock();
        let certain = |failure: &Failure| failure.is_certain(self.filter, version, hashes);
        failure.as_ref().is_some_and(certain)
    }

    /// Ends the log of a filter that is no more: nobody need wait for it.
    pub fn end(&self) {
        self.shared.trackers.lock().end(self.filter);
    }
}

impl Shared {
    fn segment(&self) -> u64 {
        self.segment.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), EngineError> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.failure.lock() {
            None => Ok(()),
            Some(failure) => Err(failure.error()),
        }
    }

    fn flush(&self, of: Option<(FilterId, u64)>) -> Result<(), String> {
        let (done, result) = sync_channel(1);
        {
            // With the lock, under which those that are there are dropped in the end.
            let mut flushes = self.flushes.lock();
            if !self.has_ended.load(Ordering::Acquire) {
                flushes.push(Flush { of, done });
            }
        }
        self.wake();
        let stopped = |_| "the server is stopping".to_owned();
        result.recv().map_err(stopped)?
    }

    /// Has the thread look for what has been handed over.
    fn wake(&self) {
        self.writer.wake();
    }

    fn tell_news(&self) {
        self.has_news.store(true, Ordering::Release);
        self.wake();
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn is_idle(&self) -> bool {
        !self.is_stopping()
            && !self.has_news.load(Ordering::Acquire)
            && self.flushes.lock().is_empty()
            && self.lanes.is_empty()
    }

    /// Tells all who wait what keeps the log from being written, or that nothing does any more.
    fn set_failure(&self, failure: Option<Failure>) {
        let (has_failed, had_failed) = (failure.is_some(), self.has_failed.load(Ordering::Relaxed));
        match &failure {
            None if !had_failed => return,
            None => tracing::info!("the log can be written again"),
            Some(_) if had_failed => {}
            Some(failure) => {
                let error = failure.error();
                tracing::error!(%error, "the log cannot be written: keys are refused until it can");
            }
        }
        *self.failure.lock() = failure;
        self.has_failed.store(has_failed, Ordering::Release);
        self.tell_read_only();
        self.trackers.lock().wake_all();
        self.lanes.more_room.notify_waiters();
    }

    fn tell_read_only(&self) {
        self.is_read_only.send_if_modified(|is_read_only| {
            // Read here, where one at a time is: whoever comes last tells how it is.
            let [has_failed, is_full] =
                [&self.has_failed, &self.is_full].map(|flag| flag.load(Ordering::Acquire));
            let now = has_failed || is_full;
            std::mem::replace(is_read_only, now) != now
        });
    }

    /// Tells all who wait for room why there will be none, or that there is.
    fn set_shortage(&self, error: Option<&StoreError>) {
        let mut shortage = self.shortage.lock();
        match (&*shortage, error) {
            (None, Some(error)) => {
                tracing::warn!(%error, "the log cannot get longer: keys are refused when it is full");
            }
            (Some(_), None) => tracing::info!("the log can get longer again"),
            _ => {}
        }
        *shortage = error.map(|error| Failure::new(error, Default::default()));
        drop(shortage);
        if error.is_none() {
            self.is_full.store(false, Ordering::Release);
            self.tell_read_only();
        }
        self.lanes.more_room.notify_waiters();
    }
}

#[cfg(test)]
pub mod tests;
