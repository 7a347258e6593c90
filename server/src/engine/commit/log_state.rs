//! The state that the calls and the log thread share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
    mpsc::{SyncSender, sync_channel},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    disk_watch::DiskWatch, failure::Failure, parker::Parker, queues::WalQueues, trackers::Trackers,
};
use crate::{
    engine::error::EngineError,
    store::{FilterId, StoreError},
};

/// The state that the calls and the log thread share.
#[derive(Debug)]
pub(super) struct LogState {
    pub(super) queues: WalQueues,
    pub(super) is_stopping: AtomicBool,
    pub(super) trackers: Mutex<Trackers>,
    /// The reason why nothing can be written at present.
    pub(super) failure: Mutex<Option<Failure>>,
    pub(super) has_failed: AtomicBool,
    /// The reason why the log cannot get longer than it is.
    pub(super) shortage: Mutex<Option<Failure>>,
    /// The log refuses calls until there is another segment.
    pub(super) is_full: AtomicBool,
    /// Publishes whether keys are refused, for either reason.
    pub(super) is_read_only: watch::Sender<bool>,
    pub(super) flushes: Mutex<Vec<Flush>>,
    /// The number of the segment that is being written.
    pub(super) segment: AtomicU64,
    /// The segment worker has a result.
    pub(super) has_result: AtomicBool,
    /// The log thread has ended.
    pub(super) has_ended: AtomicBool,
    pub(super) writer: Parker,
    pub(super) watch: Arc<DiskWatch>,
}

/// A request to be notified when changes are on stable storage.
#[derive(Debug)]
pub(super) struct Flush {
    /// The changes of a filter up to a version. `None`: all records appended before the request.
    pub(super) of: Option<(FilterId, u64)>,
    pub(super) done: SyncSender<Result<(), String>>,
}

impl LogState {
    pub(super) fn segment(&self) -> u64 {
        self.segment.load(Ordering::Acquire)
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.failure.lock() {
            None => Ok(()),
            Some(failure) => Err(failure.error()),
        }
    }

    pub(super) fn flush(&self, of: Option<(FilterId, u64)>) -> Result<(), String> {
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
    pub(super) fn wake(&self) {
        self.writer.wake();
    }

    pub(super) fn note_result(&self) {
        self.has_result.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.is_stopping()
            && !self.has_result.load(Ordering::Acquire)
            && self.flushes.lock().is_empty()
            && self.queues.is_empty()
    }

    /// Sets or clears the reason why the log cannot be written, and notifies all calls that wait.
    pub(super) fn set_failure(&self, failure: Option<Failure>) {
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
        self.publish_read_only();
        self.trackers.lock().wake_all();
        self.queues.more_space.notify_waiters();
    }

    pub(super) fn publish_read_only(&self) {
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
    pub(super) fn set_shortage(&self, error: Option<&StoreError>) {
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
            self.publish_read_only();
        }
        self.queues.more_space.notify_waiters();
    }
}
