//! Renames filters: `RenameFilter`.
//!
//! Calls, the log and the remembered requests know a filter by its id. So after a rename, calls
//! that found the filter under its old name go on, and everything that was written about it stays
//! valid.

use super::names::given_name;
use crate::{
    engine::{
        Engine,
        call::barrier::WriteBarrier,
        error::EngineError,
        filter::{Filter, FilterStatus, Names, Presence, SnapshotLock},
    },
    store::{DataDirectory, FilterName, Renamed, ShardState, StoreError},
};

impl Engine {
    /// Renames a filter, and returns its status after that. Calls that have found the filter under
    /// the old name go on. An empty name is not `default` here.
    ///
    /// A repeated call succeeds: if the filter with the new name had the old name just before, and
    /// no other filter has the old name, nothing is changed.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], [`EngineError::NameTaken`] or another [`EngineError`]: the
    /// filter has its old name. [`EngineError::NotDurable`]: the filter has its old name, and can
    /// have the new name after a crash, until it is stored or the call is repeated.
    pub async fn rename_filter(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let found = self.filter_with_lock(&name).await;
        if let Err(EngineError::UnknownFilter { .. }) = &found
            && let Some(filter) = self.data.registry.get(&new_name)
            && filter.had_name(&name)
        {
            return self.status_of(filter).await;
        }
        let (filter, lock) = found?;
        if name == new_name {
            return self.status_of(filter).await;
        }
        let naming = self.naming().await;
        self.catalog.check_free(&new_name)?;
        self.blocking(move |catalog| {
            let put = || catalog.data.registry.rename(&name, &filter);
            let renamed = filter.rename(
                &new_name,
                &catalog.directory,
                &catalog.data.barrier,
                lock,
                put,
            );
            drop(naming);
            match renamed? {
                true => Ok(catalog.status(&filter)),
                false => Err(EngineError::UnknownFilter { name }),
            }
        })
        .await
    }
}

impl Filter {
    /// Renames the filter. Returns `false` if it has been deleted. The new name must be free, and
    /// must stay free meanwhile. Blocks until the new name is on stable storage.
    ///
    /// Writes a snapshot without shards, which contains the new name. If there is no snapshot that
    /// this can follow, writes the whole filter. `put` makes the calls find the filter under the
    /// new name. It runs before any other caller gets the lock, because that caller would take the
    /// filter for the one of the old name.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the filter then keeps its name. After [`StoreError::InDoubt`], it can have
    /// the new name after a crash.
    pub fn rename(
        &self,
        new_name: &FilterName,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        mut lock: SnapshotLock,
        put: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        if !self.prepare_rename(directory, barrier, &mut lock)? {
            return Ok(false);
        }
        let renamed = self.rename_stored(new_name, directory, &mut lock)?;
        let Some(renamed) = renamed else {
            return Ok(false);
        };
        put();
        directory.clear_up_renamed(renamed);
        Ok(true)
    }

    /// Makes sure that there are snapshots with which the filter can be renamed. Returns `false` if
    /// it has been deleted. Blocks.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn prepare_rename(
        &self,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        lock: &mut SnapshotLock,
    ) -> Result<bool, StoreError> {
        let Presence::Present { files, .. } = &mut *lock.presence else {
            return Ok(false);
        };
        if self.last_store.lock().is_none() {
            self.write_snapshot(directory, files, self.begin_snapshot(barrier), None, None)?;
        }
        Ok(true)
    }

    /// The second part of [`Self::rename`], after [`Self::prepare_rename`]. Returns what is left to
    /// do with the files; `None` if the filter has been deleted. Another filter that has the new
    /// name loses its place.
    pub fn rename_stored(
        &self,
        new_name: &FilterName,
        directory: &DataDirectory,
        lock: &mut SnapshotLock,
    ) -> Result<Option<Renamed>, StoreError> {
        let Presence::Present { files, last } = &mut *lock.presence else {
            return Ok(None);
        };
        let stored = *self.last_store.lock();
        let Some(stored) = stored else {
            return Ok(None);
        };
        let name = self.name();
        let header = self.header(directory.new_number(), new_name.clone(), stored);
        let written = directory.write_snapshot(&header, &[], |_, _| Ok(ShardState::default()))?;
        let renamed = files.with(&written);
        let left = directory.rename_filter(&name, new_name, &renamed)?;
        *files = renamed;
        self.confirm_place();
        // The last report has the old name.
        *last = None;
        *self.names.lock() = Names {
            now: new_name.clone(),
            before: Some(name),
        };
        Ok(Some(left))
    }
}
