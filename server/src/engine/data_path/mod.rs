//! The way of calls with keys: from the name of the filter to the answer.

mod admission;
mod batches;
mod mirrored;
mod one_key;
mod pending;
mod resources;

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;

use self::admission::Admission;
pub use self::pending::Pending;
use super::{
    Settings,
    call::{
        Action, Call,
        barrier::WriteBarrier,
        filter_name,
        limits::Limits,
        or_default,
        requests::Requests,
        workers::{Threads, Workers},
    },
    commit::{Durability, Journal},
    error::EngineError,
    filter::{Answer, Filter, WriteContext},
    registry::{Entry, Registry},
};

/// Everything that a call with keys needs.
#[derive(Debug)]
pub struct DataPath {
    pub(super) registry: Registry,
    pub(super) limits: Limits,
    pub(super) recovered: AtomicBool,
    pub(super) barrier: WriteBarrier,
    pub(super) durability: Durability,
    /// The log, once there is one.
    pub(super) journal: OnceLock<Journal>,
    pub(super) is_read_only: watch::Sender<bool>,
    pub(super) requests: Requests,
    /// Set by recovery.
    pub(super) workers: OnceLock<Workers>,
}

impl DataPath {
    /// Returns the data path of an engine without filters.
    pub fn new(settings: &Settings) -> Self {
        Self {
            registry: Registry::default(),
            limits: settings.limits,
            recovered: AtomicBool::new(false),
            barrier: WriteBarrier::default(),
            durability: settings.durability,
            journal: OnceLock::new(),
            is_read_only: watch::Sender::new(false),
            requests: Requests::new(settings.requests, settings.limits.max_batch_keys),
            workers: OnceLock::new(),
        }
    }

    /// Calls `look` with the filter that a request names.
    pub fn find<T>(&self, name: &str, look: impl FnOnce(&Filter) -> T) -> Result<T, EngineError> {
        self.find_entry(name, |entry| look(entry.filter()))
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
        ask: impl FnOnce(&Filter) -> Result<Answer<T>, EngineError>,
    ) -> Result<Pending<T>, EngineError> {
        self.find(call.filter, |filter| {
            filter.check_age(call.max_age)?;
            Ok(pending(filter, ask(filter)?))
        })?
    }

    /// Applies a write to the filter of a call. If the filter is rebuilt, applies the action to
    /// these keys of the mirror too.
    fn write<'a, T>(
        &self,
        call: Call<'a>,
        mut admission: Admission<'a>,
        change: impl FnOnce(&Filter, WriteContext<'_>) -> Result<Answer<T>, EngineError>,
        action: Action,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Pending<T>, EngineError> {
        let _permit = self.barrier.pass()?;
        // The call may have waited for a worker or for room in the log. A caller that gets
        // `DeadlineOver` believes that nothing was added.
        call.check_deadline()?;
        self.find_entry(call.filter, |entry| {
            if !admission.fits(entry) {
                return Err(EngineError::FilterReplaced);
            }
            match entry {
                Entry::Filter(filter) => write_to(filter, call, admission, change),
                Entry::Mirrored(mirror) => {
                    let resources = admission.take_mirror().expect("it fits the entry");
                    let own = admission.change(call);
                    mirrored::write(mirror, own, resources, change, action, keys)
                }
            }
        })?
    }

    /// Applies a write of `keys` keys to a filter that is not rebuilt, if nothing has to be waited
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
            let Entry::Filter(filter) = entry else {
                return Ok(None);
            };
            match self.try_admit(filter, call, action, keys, threads)? {
                Some(admission) => write_to(filter, call, admission, change).map(Some),
                None => Ok(None),
            }
        })?
    }

    /// Returns the threads for heavy batches.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`] if recovery has not made them yet.
    pub(super) fn workers(&self) -> Result<&Workers, EngineError> {
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

    /// Fails until recovery is done.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`].
    pub fn check_recovered(&self) -> Result<(), EngineError> {
        if self.recovered.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(EngineError::Recovering)
        }
    }
}

/// Applies a write to a filter that is not rebuilt.
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
