//! The engine: named, lock-protected filters in memory, and their snapshots on disk.
//!
//! The RPCs use only [`Engine`]. Its methods are `async` although filters in memory answer at once,
//! so that an engine with its bits elsewhere can be added beside this one. The engine takes names
//! and keys as the client sent them, and checks them before it changes anything. Work that blocks
//! runs on threads of its own.

mod background;
mod budget;
mod call;
mod catalog;
mod clock;
mod commit;
mod data_path;
mod error;
mod filter;
mod per_thread;
mod persist;
mod registry;
mod upkeep;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::sync::watch;

pub use budget::OverBudget;
pub use call::limits::Limits;
pub use call::requests::RequestLimits;
pub use call::{Action, Call, Keys, Op};
pub use catalog::{Creation, Export, FileFormat, Import, Page};
pub use clock::{Clock, ManualClock};
pub use commit::Durability;
pub use data_path::Pending;
pub use error::{EngineError, Full};
pub use filter::counters::Usage;
pub use filter::{
    CapacityWarning, Explanation, FilterStatus, Growth, LastStore, LayersStatus, Outlook,
    StoreReport,
};
pub use persist::recovery::{Progress, Recovered};
pub use persist::storing::StoreOutcome;

pub use crate::{
    filter::{
        canary::Measurement,
        hash::KeyHash,
        profile::KeyProfile,
        scaling::{OnFull, OnFullName, Scaling},
        spec::{Aging, FilterSpec, HashFunction, Kind, KindName, Layout, SpecRequest},
    },
    store::{FilterName, StartupWarnings, Torn},
};

/// The types that `testing/models/` tries with loom.
#[cfg(loom)]
pub mod modelled {
    pub use super::{
        call::barrier::WriteBarrier,
        call::requests::{Requests, RetrySession},
        commit::modelled::*,
        commit::versions::Versions,
        filter::mapping::reserve,
        filter::modelled::*,
    };
    pub use crate::sync::{Mutex, set_stripe};
}

use self::{catalog::Catalog, commit::Journal, data_path::DataPath, filter::Filter};
use crate::store::DataDirectory;

/// All filters of one server. Cheap to clone; clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    data: Arc<DataPath>,
    catalog: Arc<Catalog>,
}

/// The settings of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The limits of a call.
    pub limits: Limits,
    /// The memory budget of all filters together.
    pub max_memory_bytes: u64,
    /// The durability of a change before its answer is sent.
    pub durability: Durability,
    /// The size of each segment of the log, which is reserved on the disk.
    pub segment_bytes: u64,
    /// The limits on the requests that are remembered, so that a repeated one is recognised.
    pub requests: RequestLimits,
}

impl Settings {
    /// The default size of a segment: many times the size of one write, and little compared with a
    /// filter.
    pub const SEGMENT_BYTES: u64 = 64 << 20;

    /// The smallest and the largest segment size.
    pub const SEGMENT_SIZES: RangeInclusive<u64> = 1 << 20..=1 << 30;

    /// Returns the smallest segment size for batches of `max_batch_keys` keys, on this machine. A
    /// call must find room for all keys that it can add, or it would wait for ever.
    pub fn segment_bytes_for(max_batch_keys: usize) -> u64 {
        let least = *Self::SEGMENT_SIZES.start();
        Journal::segment_bytes_for(least, max_batch_keys, Filter::most_records(max_batch_keys))
    }
}

impl Engine {
    /// Returns an engine for a data directory. It refuses calls until [`Self::recover`] is done.
    pub fn new(directory: DataDirectory, settings: Settings) -> Self {
        Self::with_clock(directory, settings, Clock::default())
    }

    /// [`Self::new`], with another clock than the system clock.
    pub fn with_clock(directory: DataDirectory, settings: Settings, clock: Clock) -> Self {
        let data = Arc::new(DataPath::new(&settings));
        let catalog = Catalog::new(data.clone(), directory, &settings, clock);
        let catalog = Arc::new(catalog);
        Self { data, catalog }
    }

    /// Returns the durability of a change before its answer is sent.
    pub fn durability(&self) -> Durability {
        self.data.durability
    }

    /// Returns a channel with a flag: whether keys are refused at present because they cannot be
    /// logged. The disk is then full, or fails. Queries are answered meanwhile.
    pub fn is_read_only(&self) -> watch::Receiver<bool> {
        self.data.is_read_only.subscribe()
    }

    /// Returns how long the oldest disk call of the log has been in progress. Writes wait for it,
    /// and so do queries that find keys which are not in the log yet.
    pub fn disk_silence(&self) -> Duration {
        let journal = self.data.journal.get();
        journal.map_or(Duration::ZERO, Journal::disk_silence)
    }

    /// Checks that no other program has removed or replaced the lock, the manifest or the log. If
    /// one has, and there is a log, keys are refused. Blocks.
    ///
    /// # Errors
    ///
    /// The file concerned, and what to do.
    pub fn check_directory(&self) -> std::io::Result<()> {
        self.catalog.directory.check()
    }

    /// Returns the limits on the requests that are remembered.
    pub fn request_limits(&self) -> RequestLimits {
        self.data.requests.limits()
    }

    /// Returns the warnings about the files that an operator should know of.
    pub fn startup_warnings(&self) -> &StartupWarnings {
        self.catalog.directory.startup_warnings()
    }

    /// Refuses new writes from now on, and waits until the writes in progress have ended. A
    /// snapshot after that contains every acknowledged key. The wait is at most one batch of each
    /// thread. A recovery in progress ends early.
    pub fn close(&self) {
        self.data.barrier.close();
    }

    fn filter_named(&self, name: FilterName) -> Result<Arc<Filter>, EngineError> {
        self.data.check_recovered()?;
        self.data
            .registry
            .get(&name)
            .ok_or(EngineError::UnknownFilter { name })
    }

    /// Runs work that blocks, or can take long, off the threads that serve calls. It runs to its
    /// end even if the caller goes away.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Catalog) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let catalog = self.catalog.clone();
        tokio::task::spawn_blocking(move || work(&catalog))
            .await
            .map_err(|error| EngineError::internal("a task of the engine ended early", error))?
    }

    /// Runs work for an operator in the queue, so that it takes little CPU time from calls.
    async fn queued<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Catalog) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let catalog = self.catalog.clone();
        self.catalog.queue.run(move || work(&catalog)).await
    }
}

#[cfg(test)]
mod tests;
