//! The engine: named, lock-protected filters in memory, and their snapshots on disk.
//!
//! [`Engine`] is the one face that the rpcs see. Its methods are `async` although filters
//! in memory answer at once: so an engine that keeps its bits elsewhere can stand beside
//! this one. It takes names and keys as they came, and checks them before it changes
//! anything; work that blocks runs on threads of its own.

mod budget;
mod counters;
mod error;
mod guarded;
mod limits;
mod region;
mod registry;
mod storing;

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard};
use parking_lot::Mutex;

pub use budget::OverBudget;
pub use counters::Usage;
pub use error::EngineError;
pub use guarded::{FilterStatus, LastStore};
pub use limits::Limits;
pub use storing::{StoreOutcome, StoreReport};

use self::{budget::MemoryBudget, guarded::GuardedFilter, registry::Registry};
use crate::{
    filter::{hash::Secret, spec::SpecRequest},
    store::{DataDirectory, FilterName},
};

/// The filters of a page where none is asked for.
pub const DEFAULT_PAGE_SIZE: usize = 100;
/// The most filters of a page.
pub const MAX_PAGE_SIZE: usize = 1000;

/// All filters of one server. Cheap to clone; clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    directory: DataDirectory,
    budget: Arc<MemoryBudget>,
    limits: Limits,
    recovered: AtomicBool,
    /// Whether keys are no longer taken. Held shared by each call that adds keys, until it
    /// has; sharded, so that such calls do not contend for it.
    closed: ShardedLock<bool>,
    /// Held while a filter is made or deleted, so that its name is free or taken for as long
    /// as that takes. Calls with keys never wait for it.
    naming: Mutex<()>,
}

/// One page of filters.
#[derive(Debug)]
pub struct Page {
    /// The filters, in the order of their names.
    pub filters: Vec<FilterStatus>,
    /// What to ask for the next page with; `None` if this is the last.
    pub next: Option<String>,
}

impl Engine {
    /// An engine over a data directory. It refuses calls until [`Self::recover`] is done.
    pub fn new(directory: DataDirectory, limits: Limits, max_memory_bytes: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                registry: Registry::default(),
                directory,
                budget: MemoryBudget::new(max_memory_bytes),
                limits,
                recovered: AtomicBool::new(false),
                closed: ShardedLock::new(false),
                naming: Mutex::new(()),
            }),
        }
    }

    /// Restores every filter that has a snapshot, makes the default one if it has none and
    /// `default` says what of, and then lets calls in.
    ///
    /// # Errors
    ///
    /// If any snapshot is damaged, of a newer format, or does not fit the memory budget. The
    /// engine then stays closed, and no file is changed.
    pub async fn recover(
        &self,
        default: Option<SpecRequest>,
    ) -> Result<Vec<FilterStatus>, EngineError> {
        self.blocking(move |inner| {
            let mut restored = Vec::new();
            for name in inner.directory.filters()? {
                let snapshot = inner.directory.read_snapshot(&name)?;
                let filter = GuardedFilter::restore(snapshot, &inner.budget)?;
                restored.push(filter.status());
                inner.registry.insert(Arc::new(filter));
            }
            if let Some(request) = default {
                let name = filter_name("name", FilterName::DEFAULT)?;
                if inner.registry.get(&name).is_none() {
                    inner.create(name, &request)?;
                }
            }
            inner.recovered.store(true, Ordering::Release);
            Ok(restored)
        })
        .await
    }

    /// Takes no more keys from now on, and returns when the calls that are adding some have
    /// added them: what is stored afterwards is all that was acknowledged. Waits for no more
    /// than one batch of each thread.
    pub fn close(&self) {
        *self
            .inner
            .closed
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Whether a key has been seen.
    ///
    /// # Errors
    ///
    /// Here and in the methods like this one: [`EngineError::Recovering`], [`EngineError::Name`],
    /// [`EngineError::UnknownFilter`], [`EngineError::KeyLength`] or
    /// [`EngineError::BatchLength`]. The call has then changed nothing.
    pub async fn query(&self, filter: &str, key: &str) -> Result<bool, EngineError> {
        self.inner.limits.check_key(key.as_bytes())?;
        Ok(self.filter(filter)?.query(key.as_bytes()))
    }

    /// Adds a key.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn add(&self, filter: &str, key: &str) -> Result<(), EngineError> {
        self.inner.limits.check_key(key.as_bytes())?;
        let _open = self.open()?;
        self.filter(filter)?.add(key.as_bytes());
        Ok(())
    }

    /// Whether a key had been seen before this call, which adds it.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn query_and_add(&self, filter: &str, key: &str) -> Result<bool, EngineError> {
        self.inner.limits.check_key(key.as_bytes())?;
        let _open = self.open()?;
        Ok(self.filter(filter)?.query_and_add(key.as_bytes()))
    }

    /// Whether each of the keys has been seen.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn query_batch<K: AsRef<[u8]>>(
        &self,
        filter: &str,
        keys: &[K],
    ) -> Result<Vec<bool>, EngineError> {
        self.inner.limits.check_batch(keys)?;
        Ok(self.filter(filter)?.query_batch(keys))
    }

    /// Adds the keys.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn add_batch<K: AsRef<[u8]>>(
        &self,
        filter: &str,
        keys: &[K],
    ) -> Result<(), EngineError> {
        self.inner.limits.check_batch(keys)?;
        let _open = self.open()?;
        self.filter(filter)?.add_batch(keys);
        Ok(())
    }

    /// Whether each of the keys had been seen before it was added.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn query_and_add_batch<K: AsRef<[u8]>>(
        &self,
        filter: &str,
        keys: &[K],
    ) -> Result<Vec<bool>, EngineError> {
        self.inner.limits.check_batch(keys)?;
        let _open = self.open()?;
        Ok(self.filter(filter)?.query_and_add_batch(keys))
    }

    /// Makes an empty filter and stores it, or returns the one that has the name and is of
    /// the same spec.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no filter has then been made, and none changed.
    pub async fn create_filter(
        &self,
        name: &str,
        request: SpecRequest,
    ) -> Result<FilterStatus, EngineError> {
        self.check_recovered()?;
        let name = filter_name("name", name)?;
        self.blocking(move |inner| inner.create(name, &request))
            .await
    }

    /// How a filter is now.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`], [`EngineError::Name`] or [`EngineError::UnknownFilter`].
    pub async fn get_filter(&self, name: &str) -> Result<FilterStatus, EngineError> {
        let filter = self.filter_named(filter_name("name", name)?)?;
        self.blocking(move |_| Ok(filter.status())).await
    }

    /// A page of filters in the order of their names, from behind the one that `token`
    /// names, or from the first.
    ///
    /// # Errors
    ///
    /// [`EngineError::Recovering`], [`EngineError::PageSize`], or [`EngineError::Name`] for a
    /// token that no page has ended with.
    pub async fn list_filters(&self, page_size: i32, token: &str) -> Result<Page, EngineError> {
        self.check_recovered()?;
        let size = match usize::try_from(page_size) {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) => size.min(MAX_PAGE_SIZE),
            Err(_) => return Err(EngineError::PageSize { value: page_size }),
        };
        let after = match token {
            "" => None,
            token => Some(filter_name("page_token", token)?),
        };
        self.blocking(move |inner| {
            // One more than asked for tells whether there is a next page.
            let mut filters = inner.registry.list(after.as_ref(), size + 1);
            let more = filters.len() > size;
            filters.truncate(size);
            let next = filters
                .last()
                .filter(|_| more)
                .map(|last| last.name().to_string());
            Ok(Page {
                filters: filters.iter().map(|filter| filter.status()).collect(),
                next,
            })
        })
        .await
    }

    /// Removes a filter and its snapshot. An empty name is not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the filter is then still there.
    pub async fn delete_filter(&self, name: &str) -> Result<(), EngineError> {
        self.check_recovered()?;
        let name: FilterName = name.parse().map_err(|source| EngineError::Name {
            field: "name",
            source,
        })?;
        self.blocking(move |inner| {
            let _naming = inner.naming.lock();
            let Some(filter) = inner.registry.get(&name) else {
                return Err(EngineError::UnknownFilter { name });
            };
            filter.delete(&inner.directory)?;
            inner.registry.remove(&name);
            Ok(())
        })
        .await
    }

    /// Keeps the engine open for as long as a call adds keys.
    fn open(&self) -> Result<ShardedLockReadGuard<'_, bool>, EngineError> {
        let closed = self
            .inner
            .closed
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if *closed {
            Err(EngineError::Stopping)
        } else {
            Ok(closed)
        }
    }

    fn filter(&self, name: &str) -> Result<Arc<GuardedFilter>, EngineError> {
        self.filter_named(filter_name("filter", name)?)
    }

    fn filter_named(&self, name: FilterName) -> Result<Arc<GuardedFilter>, EngineError> {
        self.check_recovered()?;
        self.inner
            .registry
            .get(&name)
            .ok_or(EngineError::UnknownFilter { name })
    }

    fn check_recovered(&self) -> Result<(), EngineError> {
        if self.inner.recovered.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(EngineError::Recovering)
        }
    }

    /// Runs work that blocks, or may take long, off the threads that serve calls. It runs to
    /// its end even if the caller goes away.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(|error| EngineError::internal("a task of the engine ended early", error))?
    }
}

impl Inner {
    fn create(&self, name: FilterName, request: &SpecRequest) -> Result<FilterStatus, EngineError> {
        let spec = request.resolve()?;
        let _naming = self.naming.lock();
        if let Some(filter) = self.registry.get(&name) {
            if filter.spec().answers(request) {
                return Ok(filter.status());
            }
            let existing = Box::new(*filter.spec());
            return Err(EngineError::FilterExists { name, existing });
        }
        let filter = GuardedFilter::new(
            name,
            spec,
            random_secret()?,
            SystemTime::now(),
            &self.budget,
        )?;
        // What is acknowledged must outlive a crash, and this includes that there is such a
        // filter. An empty snapshot is short.
        filter.store(&self.directory)?;
        let status = filter.status();
        self.registry.insert(Arc::new(filter));
        Ok(status)
    }
}

/// The name in a request, in which nothing stands for the default filter.
fn filter_name(field: &'static str, name: &str) -> Result<FilterName, EngineError> {
    let name = if name.is_empty() {
        FilterName::DEFAULT
    } else {
        name
    };
    name.parse()
        .map_err(|source| EngineError::Name { field, source })
}

fn random_secret() -> Result<Secret, EngineError> {
    let mut bytes = [0; Secret::BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| EngineError::internal("the system gave no random bytes", error))?;
    Ok(Secret::new(bytes))
}

#[cfg(test)]
mod tests;
