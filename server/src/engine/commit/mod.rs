//! The log (WAL) of all filters. Calls append records to [queues]. One thread [writes](writer) the
//! records of all queues to the disk. Answers wait for the [watermark] of the log.

mod disk_watch;
mod failure;
mod parker;
mod queues;
mod segment_worker;
mod trackers;
pub mod versions;
mod watermark;
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

pub use self::queues::WalReservation;
use self::{
    disk_watch::DiskWatch, failure::Failure, parker::Parker, queues::WalQueues, trackers::Trackers,
    versions::Versions, watermark::Watermark, writer::Writer,
};
use super::error::EngineError;
use crate::{
    filter::hash::KeyHash,
    store::{Batch, FilterId, LogWriter, RecordHead, RequestId, Segment, StoreError},
};

/// The types that `testing/models/` tries with loom.
#[cfg(loom)]
pub mod modelled {
    pub use super::{parker::Parker, queues::WalQueues, trackers::Trackers, watermark::Watermark};
}

/// The durability of a change before its answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The change is on stable storage.
    Always,
    /// The change is in the page cache of the kernel. It is on stable storage after this time at
    /// the latest.
    Interval(Duration),
    /// No log: a crash can lose all changes since the last snapshot.
    Snapshot,
}

/// The log of all filters.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A request that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub filter: FilterId,
    pub request: RequestId,
    pub hashes: Vec<KeyHash>,
}

/// The log of one filter.
#[derive(Debug, Clone)]
pub struct FilterLog {
    shared: Arc<Shared>,
    filter: FilterId,
    watermark: Arc<Watermark>,
}

#[derive(Debug)]
struct Shared {
    queues: WalQueues,
    is_stopping: AtomicBool,
    trackers: Mutex<Trackers>,
    /// The reason why nothing can be written at present.
    failure: Mutex<Option<Failure>>,
    has_failed: AtomicBool,
    /// The reason why the log cannot get longer than it is.
    shortage: Mutex<Option<Failure>>,
    /// Whether calls are refused until there is another segment.
    is_full: AtomicBool,
    /// Publishes whether keys are refused, for either reason.
    is_read_only: watch::Sender<bool>,
    flushes: Mutex<Vec<Flush>>,
    /// The number of the segment that is being written.
    segment: AtomicU64,
    /// Whether the segment worker has a result.
    has_news: AtomicBool,
    /// Whether the thread has ended.
    has_ended: AtomicBool,
    writer: Parker,
    watch: Arc<DiskWatch>,
}

/// A request to be notified when changes are on stable storage.
#[derive(Debug)]
struct Flush {
    /// The changes of a filter up to a version. `None`: all records appended before the request.
    of: Option<(FilterId, u64)>,
    done: SyncSender<Result<(), String>>,
}

impl Journal {
    /// Starts the thread that writes a log, to segments of `segment_bytes` bytes. Reports through
    /// `is_read_only` whether keys are refused.
    ///
    /// # Errors
    ///
    /// [`EngineError::Internal`] if the kernel gives no thread.
    pub fn start(
        log: LogWriter,
        durability: Durability,
        segment_bytes: u64,
        is_read_only: watch::Sender<bool>,
    ) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared {
            queues: WalQueues::new(segment_bytes),
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
            writer: Parker::default(),
            watch: Arc::default(),
        });
        let writer = Writer::new(shared.clone(), log, durability, segment_bytes)?;
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| EngineError::internal("the system gives no thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the log of a filter whose changes are all stored or in the log already.
    pub fn filter(&self, filter: FilterId, versions: &Arc<Versions>) -> FilterLog {
        FilterLog {
            shared: self.shared.clone(),
            filter,
            watermark: self.shared.trackers.lock().begin(filter, versions),
        }
    }

    /// Returns the number of the segment that is being written. All records in earlier segments
    /// were appended before this call.
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Reserves space in the log for a call that adds up to `keys` keys in up to `records` records.
    /// Call it before the call sets a bit, so that no bit is set for which the log has no space.
    /// Waits while space is being made.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be written, or cannot get longer.
    pub async fn reserve(
        &self,
        keys: usize,
        records: usize,
    ) -> Result<WalReservation<'_>, EngineError> {
        loop {
            if let Some(reservation) = self.try_reserve(keys, records)? {
                return Ok(reservation);
            }
            let queues = &self.shared.queues;
            let mut more = pin!(queues.more_space.notified());
            // From here on no notification is missed.
            more.as_mut().enable();
            let _waiting = queues.wait();
            match self.try_reserve(keys, records)? {
                Some(reservation) => return Ok(reservation),
                None => more.await,
            }
        }
    }

    /// Appends again the keys that a request added first. The hashes are in the filter and on
    /// stable storage already, so the record needs no version.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub async fn repeat(&self, remembered: &Remembered) -> Result<(), EngineError> {
        for hashes in self.in_records(remembered) {
            let reservation = self.reserve(hashes.len(), 1).await?;
            self.append_first_added(reservation, remembered, hashes);
        }
        Ok(())
    }

    /// [`Self::repeat`] without waiting for space; `false` if there is too little.
    ///
    /// # Errors
    ///
    /// As [`Self::repeat`].
    pub fn try_repeat(&self, remembered: &Remembered) -> Result<bool, EngineError> {
        for hashes in self.in_records(remembered) {
            match self.try_reserve(hashes.len(), 1)? {
                Some(reservation) => self.append_first_added(reservation, remembered, hashes),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Several calls with one id can together have added more keys than fit into one record.
    fn in_records<'a>(&self, remembered: &'a Remembered) -> std::slice::Chunks<'a, KeyHash> {
        let most = self.shared.queues.hashes_of_a_record();
        remembered.hashes.chunks(most)
    }

    fn append_first_added(
        &self,
        mut reservation: WalReservation<'_>,
        of: &Remembered,
        hashes: &[KeyHash],
    ) {
        let head = RecordHead {
            request: Some(of.request),
            ..RecordHead::added(of.filter, 0)
        };
        let queues = &self.shared.queues;
        queues.append(
            &mut reservation,
            &head,
            hashes.len(),
            hashes.iter().copied(),
        );
        self.shared.wake();
    }

    /// Returns how long the oldest disk call of the log has been in progress; zero if none is.
    pub fn disk_silence(&self) -> Duration {
        self.shared.watch.silence()
    }

    /// Waits until all records appended before this call are on stable storage. Blocks.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be written.
    pub fn flush(&self) -> Result<(), String> {
        self.shared.flush(None)
    }

    /// [`Self::reserve`] for two filters that one call changes. Both reservations are made in one
    /// step, because with two steps calls could each hold space that another one waits for.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub async fn reserve_for_both(
        &self,
        keys: usize,
        records: [usize; 2],
    ) -> Result<[WalReservation<'_>; 2], EngineError> {
        let [first, second] = records;
        let reservation = self.reserve(2 * keys, first + second).await?;
        Ok(reservation.split(self.shared.queues.needed_bytes(keys, first)))
    }

    /// Returns the segment size, at least `least` bytes, with which a call that changes two filters
    /// always finds space. The call has up to `keys` keys and, beside the full records, up to
    /// `records` records in each filter.
    ///
    /// The space must fit into the next segment. In either segment, the log can leave up to
    /// the size of one batch unused after the records.
    pub fn segment_bytes_for(least: u64, keys: usize, records: usize) -> u64 {
        // With the smallest segments the records are smallest, and so most numerous.
        let queues = WalQueues::new(least);
        let full = keys / queues.hashes_of_a_record();
        // At most one record per key, but at least two: for a key that ages, two records are kept
        // ready.
        let records = (records + full).min(keys.max(2));
        let needed = queues.needed_bytes(2 * keys, 2 * records);
        (Segment::OVERHEAD_BYTES + 2 * Batch::MAX_BYTES + needed).max(least)
    }

    /// Returns the number of calls that wait for space.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.shared.queues.waiting()
    }

    /// [`Self::reserve`] without waiting; `None` if space is being made.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    pub fn try_reserve(
        &self,
        keys: usize,
        records: usize,
    ) -> Result<Option<WalReservation<'_>>, EngineError> {
        let shared = &self.shared;
        shared.check()?;
        if !shared.is_full.load(Ordering::Acquire)
            && let Some(reservation) = shared.queues.reserve(keys, records)
        {
            return Ok(Some(reservation));
        }
        match &*shared.shortage.lock() {
            None => Ok(None),
            Some(shortage) => {
                // From now on all calls are refused. Otherwise small calls would still succeed long
                // after a large one was refused.
                if !shared.is_full.swap(true, Ordering::AcqRel) {
                    shared.tell_read_only();
                }
                Err(shortage.error())
            }
        }
    }
}

impl Drop for Journal {
    /// Writes the appended records, and ends the thread.
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has been logged by its message.
            let _ = thread.join();
        }
    }
}

impl FilterLog {
    /// Appends the `count` hashes that a call with one version has changed, into space that was
    /// reserved for them. A version without hashes gets a record too.
    pub fn append(
        &self,
        reservation: &mut WalReservation<'_>,
        head: &RecordHead,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        self.shared.queues.append(reservation, head, count, hashes);
        self.shared.wake();
    }

    /// [`Self::append`] for a version whose hashes need records with different heads.
    pub fn append_parts<H: Iterator<Item = KeyHash>>(
        &self,
        reservation: &mut WalReservation<'_>,
        parts: impl Iterator<Item = (RecordHead, usize, H)>,
    ) {
        self.shared.queues.append_parts(reservation, parts);
        self.shared.wake();
    }

    /// Returns the most hashes of a record. A call with more hashes has several records.
    pub fn hashes_of_a_record(&self) -> usize {
        self.shared.queues.hashes_of_a_record()
    }

    /// As [`Journal::segment`].
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Returns whether a version and all before it are as durable as configured.
    #[inline]
    pub fn has_reached(&self, version: u64) -> bool {
        self.watermark.has_reached(version)
    }

    /// Waits until a version and all before it are as durable as configured.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be written. It is not known then whether the change survives a
    /// crash.
    pub async fn reached(&self, version: u64) -> Result<(), EngineError> {
        self.watermark
            .reached(version, || self.shared.check())
            .await
    }

    /// Waits until a version and all before it are on stable storage, whatever durability is
    /// configured. Blocks.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be written.
    pub fn flush(&self, version: u64) -> Result<(), String> {
        self.shared.flush(Some((self.filter, version)))
    }

    /// While the log cannot be written: returns whether keys are certainly in it. `version` is that
    /// of the latest change where the keys were found.
    pub fn is_certain(&self, version: u64, hashes: impl Iterator<Item = KeyHash>) -> bool {
        let failure = self.shared.failure.lock();
        let certain = |failure: &Failure| failure.is_certain(self.filter, version, hashes);
        failure.as_ref().is_some_and(certain)
    }

    /// Ends the log of a filter that has been deleted or replaced: no call waits for it any more.
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
            // Under the lock: when the thread ends, it drops the waiting flushes under this lock.
            let mut flushes = self.flushes.lock();
            if !self.has_ended.load(Ordering::Acquire) {
                flushes.push(Flush { of, done });
            }
        }
        self.wake();
        let stopped = |_| "the server is stopping".to_owned();
        result.recv().map_err(stopped)?
    }

    /// Wakes the thread, so that it writes the appended records.
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
            && self.queues.is_empty()
    }

    /// Sets or clears the reason why the log cannot be written, and notifies all calls that wait.
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
        self.queues.more_space.notify_waiters();
    }

    fn tell_read_only(&self) {
        self.is_read_only.send_if_modified(|is_read_only| {
            // The flags are read here, under the lock of the channel, so the last caller publishes
            // the latest state.
            let [has_failed, is_full] =
                [&self.has_failed, &self.is_full].map(|flag| flag.load(Ordering::Acquire));
            let now = has_failed || is_full;
            std::mem::replace(is_read_only, now) != now
        });
    }

    /// Sets or clears the reason why the log cannot get longer, and notifies all calls that wait
    /// for space.
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
        self.queues.more_space.notify_waiters();
    }
}

#[cfg(test)]
pub mod tests;
