//! The right to write or remove a filter's snapshot.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::store::{FilterName, SnapshotFiles};

/// The lock that gives this right to one caller at a time.
pub type SnapshotLocks = Arc<Mutex<Presence>>;

/// The state of a filter on the disk, for the holder of its lock.
#[derive(Debug)]
pub enum Presence {
    /// The filter exists.
    Present {
        /// The files of its snapshots.
        files: SnapshotFiles,
        /// The last snapshot of this process, and when it was begun.
        last: Option<(Instant, StoreReport)>,
    },
    /// The filter has been deleted. Its snapshot must not be written again.
    Deleted,
}

impl Default for Presence {
    fn default() -> Self {
        Self::Present {
            files: SnapshotFiles::default(),
            last: None,
        }
    }
}

/// The right to write or remove a filter's snapshot.
#[derive(Debug)]
pub struct SnapshotLock {
    pub presence: OwnedMutexGuard<Presence>,
    /// The time when the lock was requested.
    pub asked: Instant,
}

/// The report of a snapshot that reached stable storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// The filter.
    pub name: FilterName,
    /// The version that the snapshot holds.
    pub version: u64,
    /// The length of its file; 0 if nothing had changed since the last one.
    pub written_bytes: u64,
    /// The time that it took.
    pub duration: Duration,
}
