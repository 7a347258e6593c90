//! One filter, which any number of threads use at once.
//!
//! # One winner
//!
//! All bits of a key lie in one shard; `body/foreign.rs` describes the exception. A call checks
//! whether a key is new, and sets its bits, under the exclusive lock of that shard. So of all
//! threads that add one key, the first to hold the lock finds bits unset, and every other thread
//! finds them set.
//!
//! # Versions
//!
//! Each call that changes anything gets a version of its own (`engine/commit/versions.rs`) when it finds
//! the first bit to set. Exception: in a counting filter with a log, a call gets the next version
//! under each lock (`body/counting.rs`). A shard keeps the greatest version of the calls that
//! changed it. The version is set under the shard's lock together with the bits. From this follows:
//!
//! * An answer that finds a key in a shard depends on no later version than the shard's. So the
//!   answer stands once all calls up to that version are on stable storage.
//! * A snapshot reads the latest version V, waits until the writes in progress have ended
//!   (`engine/call/barrier.rs`), and then copies the shards. It contains every change up to V: no later
//!   call gets a version up to V. A change that it does not contain leaves its shard with a greater
//!   version. So the list of shards with a version above V is all that changed since V.

mod addition;
mod body;
pub mod counters;
mod hashed_key;
mod hold;
pub mod mapping;
mod names;
mod one_or_many;
mod pipeline;
mod place;
mod records;
mod report;
mod shard;
mod snapshot_lock;
mod snapshots;
mod stripes;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::{
    addition::Addition,
    body::{Unfit, Whole},
    names::Names,
    report::{CapacityWarning, Explanation, FilterStatus, Growth, LayersStatus, Outlook},
    shard::Shard,
    snapshot_lock::{Presence, SnapshotLock, StoreReport},
    snapshots::LastStore,
};
use self::{
    body::AnyBody,
    counters::Counters,
    hold::Hold,
    report::{FillWatch, History, LastMeasurement},
    snapshot_lock::SnapshotLocks,
};
use super::{
    budget::{MemoryBudget, Reservation},
    call::requests::RetrySession,
    clock::Clock,
    commit::{FilterLog, WalReservation, versions::Versions},
    error::EngineError,
};
use crate::{
    filter::{
        hash::{KeyHash, KeyHasher, Purpose, Secret},
        shape::Shape,
        spec::FilterSpec,
    },
    store::{FilterId, FilterName},
};

/// The types that `testing/models/` tries with loom.
#[cfg(loom)]
pub mod modelled {
    pub use super::{body::modelled::BitBudget, shard::Shard, stripes::Stripes};
}

/// A filter with its locks, and the state of its last snapshot.
#[derive(Debug)]
pub struct Filter {
    pub(super) id: FilterId,
    pub(super) names: Mutex<Names>,
    pub(super) spec: FilterSpec,
    pub(super) shape: Shape,
    pub(super) secret: Secret,
    hasher: KeyHasher,
    canary_hasher: KeyHasher,
    request_hasher: KeyHasher,
    pub(super) create_time: SystemTime,
    pub(super) body: AnyBody,
    pub(super) clock: Clock,
    pub(super) versions: Arc<Versions>,
    counters: Counters,
    fill: FillWatch,
    history: Mutex<History>,
    last_measurement: LastMeasurement,
    /// The memory reservation. Shared with the filter that this one replaced, until that is
    /// dropped.
    pub(super) memory: Arc<Reservation>,
    /// Whether another filter can be in its place after a crash.
    place_in_doubt: AtomicBool,
    /// The filter that this one was created to replace.
    pub(super) rebuilds: Option<FilterId>,
    pub(super) last_store: Mutex<Option<LastStore>>,
    pub(super) locks: SnapshotLocks,
    hold: Hold,
    /// `None` if there is no log.
    pub(super) log: Option<FilterLog>,
}

/// Per-call context of a write.
#[derive(Debug, Default)]
pub struct WriteContext<'a> {
    /// The reservation in the log, if there is a log.
    pub reservation: Option<WalReservation<'a>>,
    /// The session of the call's request id, if it has one.
    pub session: Option<Box<RetrySession<'a>>>,
    /// The greatest age of a key that counts as seen, in a filter whose keys age.
    pub max_age: Option<Duration>,
    /// The time at which the caller of a batch stops waiting. The keys of a batch are hashed before
    /// any bit is set, which can take long.
    pub deadline: Option<Instant>,
    /// Whether the call runs on a thread that serves connections, which must not block.
    pub must_not_wait: bool,
}

/// The answer of a filter to one call.
#[derive(Debug)]
pub struct Answer<T> {
    /// The result.
    pub value: T,
    /// The version of the latest change that it depends on: a change of the call itself, or of
    /// another call whose keys it has seen. 0 for none.
    pub depends_on: u64,
}

impl Filter {
    /// Returns a new, empty filter. Its memory is counted against the budget before any is mapped.
    ///
    /// # Errors
    ///
    /// [`EngineError::OverBudget`], or [`EngineError::OutOfMemory`] if the kernel has no address
    /// space left.
    pub fn new(
        id: FilterId,
        name: FilterName,
        spec: FilterSpec,
        secret: Secret,
        create_time: SystemTime,
        budget: &Arc<MemoryBudget>,
        clock: &Clock,
    ) -> Result<Self, EngineError> {
        let first = spec.body.shape();
        let bytes = match spec.body.layers() {
            None => mapping::region_bytes(&first),
            Some(_) => first.bit_count() / 8,
        };
        let memory = budget.reserve(bytes).map_err(EngineError::OverBudget)?;
        Self::in_memory(id, name, spec, secret, create_time, memory.into(), clock)
    }

    /// Returns a new, empty filter in memory that has been reserved for it.
    pub(super) fn in_memory(
        id: FilterId,
        name: FilterName,
        spec: FilterSpec,
        secret: Secret,
        create_time: SystemTime,
        memory: Arc<Reservation>,
        clock: &Clock,
    ) -> Result<Self, EngineError> {
        let shape = spec.body.shape();
        let out_of_memory = |source| EngineError::OutOfMemory {
            needed_bytes: memory.bytes(),
            source,
        };
        let body = AnyBody::new(&spec, memory.budget(), clock).map_err(out_of_memory)?;
        Ok(Self {
            id,
            names: Mutex::new(Names::new(name)),
            hasher: KeyHasher::new(spec.hash_function, &secret),
            canary_hasher: KeyHasher::of_purpose(Purpose::Canaries, &secret),
            request_hasher: KeyHasher::of_purpose(Purpose::Requests, &secret),
            spec,
            shape,
            secret,
            create_time,
            body,
            clock: clock.clone(),
            versions: Arc::default(),
            counters: Counters::default(),
            fill: FillWatch::default(),
            history: Mutex::default(),
            last_measurement: LastMeasurement::default(),
            memory,
            place_in_doubt: AtomicBool::new(false),
            rebuilds: None,
            last_store: Mutex::new(None),
            locks: SnapshotLocks::default(),
            hold: Hold::default(),
            log: None,
        })
    }

    /// Returns the id of the filter.
    pub fn id(&self) -> FilterId {
        self.id
    }

    /// Returns the spec of the filter.
    pub fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// Returns whether the filter brings keys into a canonical form before it hashes them.
    pub fn has_profile(&self) -> bool {
        self.spec.key_profile.is_some()
    }

    /// Returns the hash of a key, in its canonical form if the filter has a profile.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        match &self.spec.key_profile {
            None => self.hasher.hash(key),
            Some(profile) => self.hasher.hash(&profile.canonical(key)),
        }
    }

    /// Returns whether keys are counted, so that they can be removed.
    pub fn counts(&self) -> bool {
        self.spec.body.counts()
    }

    /// Checks the age that a call asks for.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotAging`] or [`EngineError::MaxAge`].
    pub fn check_age(&self, max_age: Option<Duration>) -> Result<(), EngineError> {
        let Some(asked) = max_age else { return Ok(()) };
        let Some(most) = self.body.whole().max_age() else {
            let name = self.name();
            return Err(EngineError::NotAging { name });
        };
        match asked.is_zero() || asked > most {
            true => Err(EngineError::MaxAge { asked, most }),
            false => Ok(()),
        }
    }

    /// Makes this thread lease versions for later calls of its own, as it does under contention.
    #[cfg(test)]
    pub fn lease_versions(&self) {
        super::commit::versions::tests::lease(&self.versions);
    }
}

#[cfg(test)]
mod tests;
