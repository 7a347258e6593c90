//! The engine: named, lock-protected filters in memory, and their snapshots on disk.
//!
//! The RPCs use only [`Engine`]. Its methods are `async` although filters in memory answer at once,
//! so that an engine with its bits elsewhere can be added beside this one. The engine takes names
//! and keys as the client sent them, and checks them before it changes anything. Work that blocks
//! runs on threads of its own.

mod budget;
mod call;
mod catalog;
mod clock;
mod commit;
mod error;
mod filter;
mod per_thread;
mod persist;
mod upkeep;

use std::{
    ops::RangeInclusive,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Mutex, Semaphore, watch};

pub use budget::OverBudget;
pub use call::limits::Limits;
pub use call::pending::Pending;
pub use call::requests::RequestLimits;
pub use call::{Action, Call, Keys, Op};
pub use catalog::{Creation, Export, FileFormat, Import, Page};
pub use clock::{Clock, ManualClock};
pub use commit::Durability;
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

use self::{
    budget::MemoryBudget,
    call::admission::Admission,
    call::barrier::WriteBarrier,
    call::requests::Requests,
    call::workers::{Threads, Workers},
    catalog::{Creating, Entry, Promised, Registry, change_both},
    commit::Journal,
    filter::{Answer, Filter, WriteContext},
    upkeep::background::Queue,
};
use crate::store::DataDirectory;

/// All filters of one server. Cheap to clone; clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    data: Arc<DataPath>,
    catalog: Arc<Catalog>,
}

/// Everything that a call with keys needs.
#[derive(Debug)]
struct DataPath {
    registry: Registry,
    limits: Limits,
    recovered: AtomicBool,
    barrier: WriteBarrier,
    durability: Durability,
    /// The log, once there is one.
    journal: OnceLock<Journal>,
    is_read_only: watch::Sender<bool>,
    requests: Requests,
    /// Set by recovery.
    workers: OnceLock<Workers>,
}

/// Everything that operations on whole filters need besides.
#[derive(Debug)]
struct Catalog {
    data: Arc<DataPath>,
    directory: DataDirectory,
    budget: Arc<MemoryBudget>,
    clock: Clock,
    segment_bytes: u64,
    /// The queue for the work of operators' calls that needs no disk.
    queue: Queue,
    /// See [`catalog::Naming`].
    naming: Arc<Mutex<()>>,
    /// Serialises the removal of old segments of the log.
    shortening: parking_lot::Mutex<()>,
    promised: Promised,
    creating: Creating,
    /// One permit for each import that can be in progress.
    imports: Arc<Semaphore>,
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
        let data = Arc::new(DataPath {
            registry: Registry::default(),
            limits: settings.limits,
            recovered: AtomicBool::new(false),
            barrier: WriteBarrier::default(),
            durability: settings.durability,
            journal: OnceLock::new(),
            is_read_only: watch::Sender::new(false),
            requests: Requests::new(settings.requests, settings.limits.max_batch_keys),
            workers: OnceLock::new(),
        });
        let catalog = Arc::new(Catalog {
            data: data.clone(),
            directory,
            budget: MemoryBudget::new(settings.max_memory_bytes),
            clock,
            segment_bytes: settings.segment_bytes,
            queue: Queue::new(),
            naming: Arc::default(),
            shortening: parking_lot::Mutex::default(),
            promised: Promised::default(),
            creating: Creating::default(),
            imports: Semaphore::new(Limits::MAX_IMPORTS).into(),
        });
        Self { data, catalog }
    }

    /// Restores every filter from its snapshots and the log, and then accepts calls. If there is no
    /// default filter, creates it from `default`, if given.
    ///
    /// # Errors
    ///
    /// Fails if a file is damaged, has a newer format, or does not fit the memory budget. Fails
    /// with [`EngineError::Stopping`] soon after [`Self::close`]. The engine then still refuses
    /// calls, and no file is changed.
    pub async fn recover(&self, default: Option<SpecRequest>) -> Result<Recovered, EngineError> {
        self.recover_telling(default, |_| {}).await
    }

    /// [`Self::recover`], which also calls `tell` with its progress whenever some MiB have been
    /// read.
    ///
    /// # Errors
    ///
    /// As [`Self::recover`].
    pub async fn recover_telling(
        &self,
        default: Option<SpecRequest>,
        mut tell: impl FnMut(&Progress) + Send + 'static,
    ) -> Result<Recovered, EngineError> {
        let recover = move |catalog: &Catalog| catalog.recover(&mut tell);
        let recovered = self.blocking(recover).await?;
        if let Some(request) = default {
            let name = filter_name("name", FilterName::DEFAULT)?;
            if self.data.registry.get(&name).is_none() {
                self.create(name, request).await?;
            }
        }
        self.data.recovered.store(true, Ordering::Release);
        Ok(recovered)
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

impl DataPath {
    /// Calls `look` with the filter that a request names.
    fn find<T>(&self, name: &str, look: impl FnOnce(&Filter) -> T) -> Result<T, EngineError> {
        self.find_entry(name, |entry| look(&entry.filter))
    }

    /// Calls `look` with the registry entry that a request names.
    fn find_entry<T>(&self, name: &str, look: impl FnOnce(&Entry) -> T) -> Result<T, EngineError> {
        self.check_recovered()?;
        match self.registry.now().get(or_default(name)) {
            Some(entry) => Ok(look(entry)),
            None => Err(EngineError::UnknownFilter {
                name: filter_name("filter", name)?,
            }),
        }
    }

    /// Runs a query on the filter that a call names.
    fn ask<T>(
        &self,
        call: Call<'_>,
        ask: impl FnOnce(&Filter) -> Answer<T>,
    ) -> Result<Pending<T>, EngineError> {
        self.find(call.filter, |filter| {
            filter.check_age(call.max_age)?;
            Ok(pending(filter, ask(filter)))
        })?
    }

    /// Applies a write to the filter of a call, and to its mirror by `follow`.
    fn write<'a, T>(
        &self,
        call: Call<'a>,
        admission: Admission<'a>,
        change: impl FnOnce(&Filter, WriteContext<'_>) -> Result<Answer<T>, EngineError>,
        follow: impl FnOnce(&Filter, WriteContext<'_>) -> u64,
    ) -> Result<Pending<T>, EngineError> {
        let _permit = self.barrier.pass()?;
        // The call may have waited for a worker or for room in the log. A caller that gets
        // `DeadlineOver` believes that nothing was added.
        call.check_deadline()?;
        self.find_entry(call.filter, |entry| {
            if !admission.fits(entry) {
                return Err(EngineError::FilterReplaced);
            }
            let filter = &*entry.filter;
            match &entry.mirror {
                None => write_to(filter, call, admission, change),
                Some(mirror) => change_both(filter, mirror, call, admission, change, follow),
            }
        })?
    }

    /// Applies a write of `keys` keys to a filter without a mirror, if nothing has to be waited
    /// for; returns `None` otherwise.
    fn try_write<'a, T>(
        &'a self,
        call: Call<'a>,
        action: Action,
        keys: usize,
        threads: Threads,
        change: impl FnOnce(&Filter, WriteContext<'_>) -> Result<Answer<T>, EngineError>,
    ) -> Result<Option<Pending<T>>, EngineError> {
        let _permit = self.barrier.pass()?;
        call.check_deadline()?;
        self.find_entry(call.filter, |entry| {
            let Entry {
                filter,
                mirror: None,
            } = entry
            else {
                return Ok(None);
            };
            match self.try_admit(filter, call, action, keys, threads)? {
                Some(admission) => write_to(filter, call, admission, change).map(Some),
                None => Ok(None),
            }
        })?
    }

    fn workers(&self) -> Result<&Workers, EngineError> {
        self.workers.get().ok_or(EngineError::Recovering)
    }

    /// While the log cannot be written: returns whether keys that a filter has found are certainly
    /// in the log.
    fn is_certain<'a>(
        &self,
        name: &str,
        depends_on: u64,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let found = self.find(name, |filter| filter.is_certain(depends_on, keys));
        found.unwrap_or(false)
    }

    fn check_recovered(&self) -> Result<(), EngineError> {
        if self.recovered.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(EngineError::Recovering)
        }
    }
}

/// Applies a write to a filter without a mirror.
fn write_to<T>(
    filter: &Filter,
    call: Call<'_>,
    admission: Admission<'_>,
    change: impl FnOnce(&Filter, WriteContext<'_>) -> Result<Answer<T>, EngineError>,
) -> Result<Pending<T>, EngineError> {
    filter.check_age(call.max_age)?;
    filter.check_takes_keys()?;
    let answer = change(filter, admission.change(call))?;
    Ok(Pending {
        capacity_warning: filter.capacity_warning(),
        ..pending(filter, answer)
    })
}

/// Returns an answer together with the log and version that it waits for.
fn pending<T>(filter: &Filter, answer: Answer<T>) -> Pending<T> {
    let Answer { value, depends_on } = answer;
    Pending {
        value,
        log: filter.pending(depends_on),
        depends_on,
        mirror: None,
        capacity_warning: None,
    }
}

/// Parses the name in a request. An empty name is the default filter.
fn filter_name(field: &'static str, name: &str) -> Result<FilterName, EngineError> {
    or_default(name)
        .parse()
        .map_err(|source| EngineError::Name { field, source })
}

fn or_default(name: &str) -> &str {
    if name.is_empty() {
        FilterName::DEFAULT
    } else {
        name
    }
}

#[cfg(test)]
mod tests;
