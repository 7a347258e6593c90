//! Resets filters: `ResetFilter`. A filter forgets all keys at once: an empty filter with another id
//! takes its place.
//!
//! The reset takes effect when the manifest names the snapshot of the empty filter, which has no
//! shards, under the filter's name. The log and the remembered requests know the old filter by its
//! id. So records that calls in flight still append for it, and keys that its requests have added,
//! belong to no filter afterwards.

use std::sync::Arc;

use super::names::given_name;
use crate::{
    engine::{
        Engine,
        call::barrier::WriteBarrier,
        commit::{Journal, versions::Versions},
        error::EngineError,
        filter::{Filter, FilterStatus, Presence, SnapshotLock},
    },
    store::{DataDirectory, FilterId, StoreError},
};

impl Engine {
    /// Removes all keys of a filter in one step, and returns its status after that. The filter
    /// keeps its spec and its secret. The requests that added its keys are forgotten too. Each call
    /// takes effect before the step or after it. An empty name is not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError`]: no key was removed. [`EngineError::NotDurable`]: the keys can be gone after
    /// a crash, and until this is certain the filter takes no more keys.
    pub async fn reset_filter(&self, name: &str) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let name = given_name("name", name)?;
        let (filter, lock) = self.filter_with_lock(&name).await?;
        self.catalog.check_not_rebuilding(&filter)?;
        let emptied = {
            let filter = filter.clone();
            self.blocking(move |catalog| {
                let id = FilterId(catalog.directory.new_number());
                filter.emptied(id, catalog.data.journal.get())
            })
        };
        let empty = Arc::new(emptied.await?);
        let its_lock = empty.snapshot_lock().await;
        self.blocking(move |catalog| {
            let (directory, barrier) = (&catalog.directory, &catalog.data.barrier);
            let put = || catalog.data.registry.insert(empty.clone());
            match filter.give_place_to(&empty, its_lock, directory, barrier, lock, put)? {
                true => Ok(empty.status()),
                false => Err(EngineError::UnknownFilter { name }),
            }
        })
        .await
    }
}

impl Filter {
    /// Returns an empty filter to take the place of this one, equal to it in everything but the
    /// keys. The budget counts the memory of both only once: the memory of this one is freed when
    /// the last call that uses it ends.
    ///
    /// # Errors
    ///
    /// [`EngineError::OutOfMemory`] if the kernel has no address space left.
    pub fn emptied(&self, id: FilterId, journal: Option<&Journal>) -> Result<Self, EngineError> {
        let (name, spec, memory) = (self.name(), self.spec.clone(), self.memory.clone());
        let clock = &self.clock;
        let emptied = Self::in_memory(id, name, spec, self.secret, self.create_time, memory, clock);
        let mut empty = emptied?;
        let clock_state = self.body.whole().clock_state();
        empty.body.whole_mut().follow(clock_state);
        // A later version, because the content of the name has changed for callers that watch it.
        empty.versions = Versions::behind(self.versions.latest() + 1);
        if let Some(journal) = journal {
            empty.set_log(journal);
        }
        Ok(empty)
    }

    /// Puts an empty filter in the place of this one in the data directory, under the same name.
    /// Returns `false` if this one has been deleted. This one must not be stored again afterwards.
    /// `put` makes the calls find the empty filter. It runs before any other caller gets the lock
    /// of this one.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; this filter then keeps its place. After [`StoreError::InDoubt`], the empty
    /// filter can have the place after a crash, so this one takes no keys until it is stored again.
    pub fn give_place_to(
        &self,
        empty: &Self,
        its_lock: SnapshotLock,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        mut lock: SnapshotLock,
        put: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        if matches!(*lock.presence, Presence::Deleted) {
            return Ok(false);
        }
        let stored = empty.store(directory, barrier, its_lock);
        if let Err(StoreError::InDoubt(_)) = &stored {
            self.doubt_place();
        }
        stored?;
        put();
        *lock.presence = Presence::Deleted;
        Ok(true)
    }
}
