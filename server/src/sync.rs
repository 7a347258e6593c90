//! What threads meet at, under names of this crate's own: the models in `testing/models/` compile
//! the same files with other locks and atomic numbers in the place of these, and try all orders.

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

/// The cores that the process may use. Asked for with each filter that is made or found, where the
/// system takes several files to tell.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// How many threads have each something of its own: those that serve calls, one for each core, and
/// as many that work for them.
pub(crate) fn stripes() -> usize {
    (2 * cores()).max(16)
}

/// One for each thread, from 0 on.
pub(crate) fn number_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// How many versions a thread takes at once that meets others: so many calls share the price of
/// a line that another core has written. Fewer in tests, in which callers then meet more often.
pub(crate) const LEASE: u64 = if cfg!(test) { 4 } else { 64 };

/// Requests are dealt to these by their ids, so that few contend.
pub(crate) const REQUEST_LANES: usize = 64;
