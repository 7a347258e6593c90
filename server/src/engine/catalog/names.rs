//! The names of filters: which are taken, and which are promised to filters that are being created.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::{Mutex, OwnedMutexGuard};
use xxhash_rust::xxh3::xxh3_64;

use super::Catalog;
use crate::{
    engine::{
        Engine,
        error::EngineError,
        filter::{Filter, SnapshotLock},
    },
    store::FilterName,
};

/// A reservation of a name for a filter that is being created. No other filter gets the name until
/// this is dropped.
#[derive(Debug)]
pub struct Promise {
    pub(super) catalog: Arc<Catalog>,
    name: FilterName,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.catalog.promised.lock().remove(&self.name);
    }
}

/// The reserved names of filters that are being created. A reservation lasts longer than the lock
/// [`Naming`].
pub type Promised = parking_lot::Mutex<BTreeSet<FilterName>>;

/// Locks that serialise `CreateFilter` calls of the same name.
#[derive(Debug, Default)]
pub struct Creating([Arc<Mutex<()>>; 32]);

impl Creating {
    /// Acquires the lock of a name. Some other names share this lock.
    pub async fn lock(&self, name: &FilterName) -> OwnedMutexGuard<()> {
        let Self(locks) = self;
        let hash = xxh3_64(name.as_str().as_bytes()) as usize;
        let [first, ..] = locks;
        let lock = locks.get(hash % locks.len()).unwrap_or(first);
        lock.clone().lock_owned().await
    }
}

/// The lock for the creation and deletion of filters: while it is held, a free name stays free and
/// a taken name stays taken. Calls with keys never wait for it. The wait is asynchronous, so it
/// blocks no thread.
pub type Naming = OwnedMutexGuard<()>;

impl Engine {
    /// Acquires the lock for the creation and deletion of filters.
    pub(in crate::engine) async fn naming(&self) -> Naming {
        self.catalog.naming.clone().lock_owned().await
    }

    /// Returns the filter of a name when no other task writes its snapshots, and the lock. While
    /// the lock is held, nobody deletes or renames the filter.
    pub(in crate::engine) async fn filter_with_lock(
        &self,
        name: &FilterName,
    ) -> Result<(Arc<Filter>, SnapshotLock), EngineError> {
        loop {
            let filter = self.filter_named(name.clone())?;
            let lock = filter.snapshot_lock().await;
            // Another filter can have the name by now.
            let now = self.data.registry.get(name);
            if now.is_some_and(|now| Arc::ptr_eq(&now, &filter)) {
                return Ok((filter, lock));
            }
        }
    }

    /// Reserves a name for a filter that is being created.
    pub(in crate::engine) fn promise(
        &self,
        _naming: &Naming,
        name: FilterName,
    ) -> Result<Promise, EngineError> {
        self.catalog.check_new(&name)?;
        self.catalog.promised.lock().insert(name.clone());
        let catalog = self.catalog.clone();
        Ok(Promise { catalog, name })
    }
}

impl Catalog {
    /// Fails if no filter of this name can be added. The caller holds the lock [`Naming`].
    pub(in crate::engine) fn check_new(&self, name: &FilterName) -> Result<(), EngineError> {
        self.check_free(name)?;
        // Recovery can add the default filter beyond the limit.
        if self.data.check_recovered().is_err() {
            return Ok(());
        }
        let filters = self.data.registry.count() + self.promised.lock().len();
        let limit = self.data.limits.max_filters;
        match filters < limit {
            true => Ok(()),
            false => Err(EngineError::TooManyFilters { limit }),
        }
    }

    /// Fails if a filter has the name, or the name is reserved. The caller holds the lock
    /// [`Naming`].
    pub(in crate::engine) fn check_free(&self, name: &FilterName) -> Result<(), EngineError> {
        let is_promised = self.promised.lock().contains(name);
        if is_promised || self.data.registry.get(name).is_some() {
            return Err(EngineError::NameTaken { name: name.clone() });
        }
        Ok(())
    }
}

/// Parses the name in a request where an empty name is not the default filter.
pub fn given_name(field: &'static str, name: &str) -> Result<FilterName, EngineError> {
    let name = name.parse();
    name.map_err(|source| EngineError::Name { field, source })
}
