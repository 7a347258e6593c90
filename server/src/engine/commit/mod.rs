//! The log (WAL) of all filters. Calls append records to [queues]. One thread [writes](writer) the
//! records of all queues to the disk. Answers wait for the [watermark] of the log.

mod disk_watch;
mod failure;
mod filter_log;
mod log_state;
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
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::{filter_log::FilterLog, queues::WalReservation};
use self::{
    log_state::LogState, parker::Parker, queues::WalQueues, versions::Versions, writer::Writer,
};
use super::error::EngineError;
use crate::{
    filter::hash::KeyHash,
    store::{Batch, FilterId, LogWriter, RecordHead, RequestId, Segment},
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
    shared: Arc<LogState>,
    thread: Option<JoinHandle<()>>,
}

/// A request that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub filter: FilterId,
    pub request: RequestId,
    pub hashes: Vec<KeyHash>,
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
        let shared = Arc::new(LogState {
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
            has_result: AtomicBool::new(false),
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
                    shared.publish_read_only();
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

#[cfg(test)]
pub mod tests;
