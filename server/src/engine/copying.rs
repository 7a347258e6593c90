//! Copies filters: `CopyFilter`.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::{Mutex, OwnedMutexGuard};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Engine, EngineError, FilterStatus, Inner, background, filter_name,
    filters::{Naming, given_name},
};
use crate::store::{FilterId, FilterName};

/// A reservation of a name for a filter that is being created. No other filter gets the name until
/// this is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    inner: Arc<Inner>,
    name: FilterName,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.inner.promised.lock().remove(&self.name);
    }
}

/// The reserved names of filters that are being created. A reservation lasts longer than the lock
/// [`Naming`].
pub(super) type Promised = parking_lot::Mutex<BTreeSet<FilterName>>;

/// Locks that serialise `CreateFilter` calls of the same name.
#[derive(Debug, Default)]
pub(super) struct Creating([Arc<Mutex<()>>; 32]);

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

impl Engine {
    /// Creates a copy of a filter, and returns its status. The copy has the same spec, secret and
    /// content. It contains every key that was acknowledged before the call began; the source takes
    /// calls meanwhile. The copy does not remember the requests that the source remembers.
    ///
    /// An empty `name` means `default`; an empty `new_name` is refused.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], [`EngineError::NameTaken`], [`EngineError::OverBudget`] or
    /// another [`EngineError`]: there is no copy. [`EngineError::NotDurable`]: the copy can exist
    /// after a crash.
    pub async fn copy_filter(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = filter_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let source = self.filter_named(name)?;
        let promise = {
            let naming = self.naming().await;
            self.promise(&naming, new_name.clone())?
        };
        let inner = self.inner.clone();
        let copy = move || {
            let id = FilterId(inner.directory.new_number());
            let (barrier, journal) = (&inner.barrier, inner.journal.get());
            let copied = source.copy(id, new_name, &inner.budget, barrier, journal)?;
            Ok(Arc::new(copied))
        };
        let copy = background::run("copy", copy).await?;
        let lock = copy.snapshot_lock().await;
        let store = move || {
            let inner = &promise.inner;
            copy.store(&inner.directory, &inner.barrier, lock)?;
            inner.registry.insert(copy.clone());
            Ok(copy.status())
        };
        background::run("copy", store).await
    }

    /// Reserves a name for a filter that is being created.
    pub(super) fn promise(
        &self,
        _naming: &Naming,
        name: FilterName,
    ) -> Result<Promise, EngineError> {
        self.inner.check_new(&name)?;
        self.inner.promised.lock().insert(name.clone());
        let inner = self.inner.clone();
        Ok(Promise { inner, name })
    }
}

impl Inner {
    /// Fails if no filter of this name can be added. The caller holds the lock [`Naming`].
    pub(super) fn check_new(&self, name: &FilterName) -> Result<(), EngineError> {
        self.check_free(name)?;
        // Recovery can add the default filter beyond the limit.
        if self.check_recovered().is_err() {
            return Ok(());
        }
        let filters = self.registry.count() + self.promised.lock().len();
        let limit = self.limits.max_filters;
        match filters < limit {
            true => Ok(()),
            false => Err(EngineError::TooManyFilters { limit }),
        }
    }

    /// Fails if a filter has the name, or the name is reserved. The caller holds the lock
    /// [`Naming`].
    pub(super) fn check_free(&self, name: &FilterName) -> Result<(), EngineError> {
        let is_promised = self.promised.lock().contains(name);
        if is_promised || self.registry.get(name).is_some() {
            return Err(EngineError::NameTaken { name: name.clone() });
        }
        Ok(())
    }
}
