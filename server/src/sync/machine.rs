//! The locks and atomics of the machine.

pub(crate) use std::{sync::atomic, thread, time::Instant};

use std::{
    cell::Cell,
    num::NonZero,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

pub(crate) use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
pub(crate) use parking_lot::{
    Condvar, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
pub(crate) use tokio::sync::{Notify, oneshot};

/// Returns the number of cores that the process may use. The value is cached: every filter that is
/// made or found asks for it, and computing it reads several files.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Returns the number of stripes of a striped value: one for each thread that serves calls (one per
/// core), and as many again for the threads that work for them; at least 16.
pub(crate) fn stripes() -> usize {
    (2 * cores()).max(16)
}

/// Returns the number of the calling thread. Each thread has its own, counted from 0.
pub(crate) fn number_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// The number of versions that a thread takes at once when it contends with other threads. These
/// calls then share the cost of a cache line that another core has written. The number is smaller
/// in tests, so that callers contend more often.
pub(crate) const LEASE: u64 = if cfg!(test) { 4 } else { 64 };

/// The number of lanes for requests. The id of a request picks its lane, so that few contend.
pub(crate) const REQUEST_LANES: usize = 64;
