//! Names of filters, and renames.
//!
//! Calls, the log and the remembered requests know a filter by its id. So after a rename, calls
//! that found the filter under its old name go on, and everything that was written about it stays
//! valid.

use super::{
    Filter,
    snapshot_lock::{Presence, SnapshotLock},
};
use crate::{
    engine::barrier::WriteBarrier,
    store::{DataDirectory, FilterName, Renamed, ShardState, StoreError},
};

/// The name of a filter, and its previous name.
#[derive(Debug)]
pub(super) struct Names {
    now: FilterName,
    before: Option<FilterName>,
}

impl Names {
    pub fn new(now: FilterName) -> Self {
        Self { now, before: None }
    }
}

impl Filter {
    /// Returns the filter's name.
    pub fn name(&self) -> FilterName {
        self.names.lock().now.clone()
    }

    /// Returns whether `name` is the filter's previous name.
    pub fn had_name(&self, name: &FilterName) -> bool {
        self.names.lock().before.as_ref() == Some(name)
    }

    /// Returns whether no previous name is known.
    pub fn had_no_name(&self) -> bool {
        self.names.lock().before.is_none()
    }

    /// Sets the previous name of a restored filter.
    pub(super) fn set_name_before(&mut self, before: Option<FilterName>) {
        self.names.get_mut().before = before;
    }

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
    pub(super) fn prepare_rename(
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
    pub(super) fn rename_stored(
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
