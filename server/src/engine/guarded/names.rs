//! The name of a filter, which it may change.
//!
//! Calls, the log and the requests that are remembered know a filter by its id. So a call that has
//! found it under its old name goes on, and so does what was written of it.

use super::{
    GuardedFilter,
    snapshots::{Presence, Turn},
};
use crate::{
    engine::barrier::WriteBarrier,
    store::{DataDirectory, FilterName, Renamed, ShardState, StoreError},
};

/// The name that a filter has, and the one that it had before.
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

impl GuardedFilter {
    /// The filter's name.
    pub fn name(&self) -> FilterName {
        self.names.lock().now.clone()
    }

    /// Whether the filter had a name before the one that it has.
    pub fn had_name(&self, name: &FilterName) -> bool {
        self.names.lock().before.as_ref() == Some(name)
    }

    /// Whether nothing is known of a name before the one that it has.
    pub fn had_no_name(&self) -> bool {
        self.names.lock().before.is_none()
    }

    /// Notes the name that a restored filter had before.
    pub(super) fn set_name_before(&mut self, before: Option<FilterName>) {
        self.names.get_mut().before = before;
    }

    /// Gives the filter another name, which no other has nor gets meanwhile; `false` if it has
    /// been deleted. Blocks until that is on stable storage. Writes a snapshot of no shards, which
    /// tells the name; all of the filter if there is no snapshot that it could go with. `put` is for
    /// the caller to have the calls find it there, before anybody else gets its turn: they would
    /// take it for the one of the old name.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the filter then has the name that it had. [`StoreError::InDoubt`]: after a
    /// crash it may have the other one.
    pub fn rename(
        &self,
        new_name: &FilterName,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        mut turn: Turn,
        put: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        if !self.prepare_rename(directory, barrier, &mut turn)? {
            return Ok(false);
        }
        let renamed = self.rename_stored(new_name, directory, &mut turn)?;
        let Some(renamed) = renamed else {
            return Ok(false);
        };
        put();
        directory.clear_up_renamed(renamed);
        Ok(true)
    }

    /// Sees to it that there are snapshots that the filter can be renamed with; `false` if it has
    /// been deleted. Blocks.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub(super) fn prepare_rename(
        &self,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        turn: &mut Turn,
    ) -> Result<bool, StoreError> {
        let Presence::Present { files, .. } = &mut *turn.presence else {
            return Ok(false);
        };
        // Files of format 1 are known by their names alone.
        if self.last_store.lock().is_none() || files.has_format1() {
            self.write_snapshot(directory, files, self.begin_snapshot(barrier), None, None)?;
        }
        Ok(true)
    }

    /// [`Self::rename`] of a filter whose snapshots it can be renamed with, but for what is left to
    /// do with the files; `None` if it has been deleted. One that has the name loses its place.
    pub(super) fn rename_stored(
        &self,
        new_name: &FilterName,
        directory: &DataDirectory,
        turn: &mut Turn,
    ) -> Result<Option<Renamed>, StoreError> {
        let Presence::Present { files, last } = &mut *turn.presence else {
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
        self.settle_place();
        // It has the old name.
        *last = None;
        *self.names.lock() = Names {
            now: new_name.clone(),
            before: Some(name),
        };
        Ok(Some(left))
    }
}
