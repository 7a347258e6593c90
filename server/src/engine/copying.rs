//! Filters that are copied.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::{Mutex, OwnedMutexGuard};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Engine, EngineError, FilterStatus, Inner, background, filter_name,
    filters::{Naming, given_name},
};
use crate::store::{FilterId, FilterName};

/// That a name is for a filter which is being made. Until this is dropped no other gets it.
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

/// The names of filters that are being made, for longer than anybody has the right to names.
pub(super) type Promised = parking_lot::Mutex<BTreeSet<FilterName>>;

/// Locks that serialise `CreateFilter` calls of the same name.
#[derive(Debug, Default)]
pub(super) struct Creating([Arc<Mutex<()>>; 32]);

impl Creating {
    /// Acquires the lock of a name. Some other names share it.
    pub async fn lock(&self, name: &FilterName) -> OwnedMutexGuard<()> {
        let Self(locks) = self;
        let hash = xxh3_64(name.as_str().as_bytes()) as usize;
        let [first, ..] = locks;
        let lock = locks.get(hash % locks.len()).unwrap_or(first);
        lock.clone().lock_owned().await
    }
}

impl Engine {
    /// Makes a filter of the same spec, secret and content as another, which goes on meanwhile, and
    /// tells how it is. It has all that was acknowledged before the call began. The requests
    /// that the other one remembers are not remembered of it. An empty name is `default`, an empty
    /// new one is not.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], [`EngineError::NameTaken`], [`EngineError::OverBudget`] or
    /// another [`EngineError`]; there is then no copy. [`EngineError::NotDurable`]: there may be
    /// one after a crash.
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
        let turn = copy.turn().await;
        let store = move || {
            let inner = &promise.inner;
            copy.store(&inner.directory, &inner.barrier, turn)?;
            inner.registry.insert(copy.clone());
            Ok(copy.status())
        };
        background::run("copy", store).await
    }

    /// Keeps a name for a filter that is being made.
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
    /// Checks that a filter of this name may be added. The caller holds the right to names.
    pub(super) fn check_new(&self, name: &FilterName) -> Result<(), EngineError> {
        self.check_free(name)?;
        // Recovery may add the default filter beyond the limit.
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

    /// Lets a name through that no filter has nor is about to have. To be asked by whoever has the
    /// right to names.
    pub(super) fn check_free(&self, name: &FilterName) -> Result<(), EngineError> {
        let is_promised = self.promised.lock().contains(name);
        if is_promised || self.registry.get(name).is_some() {
            return Err(EngineError::NameTaken { name: name.clone() });
        }
        Ok(())
    }
}
