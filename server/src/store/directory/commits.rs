//! Group commit of the manifest: one write and one fsync for all changes that were made while the
//! write before was in progress.

use std::{collections::BTreeMap, io};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::DataDirectory;
use crate::{
    planted::Bug,
    store::{
        FilterName, StoreError, log,
        manifest::{Manifest, NotWritten, StoredFilter},
        names,
    },
};

/// The durable manifest, and the staged changes.
#[derive(Debug, Default)]
pub struct Commits {
    /// Never locked during a disk call.
    state: Mutex<State>,
    /// Locked by the caller that writes.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The manifest of the last write that succeeded, without filters whose removal is in doubt.
    durable: Manifest,
    /// The durable manifest with all changes since.
    staged: Manifest,
    /// The number of the last change.
    changes: u64,
    /// The number of the last change that was written, or has failed.
    decided: u64,
    /// The errors of failed changes whose callers have not returned yet.
    failed: BTreeMap<u64, StoreError>,
    /// The filters that undecided changes remove.
    removals: BTreeMap<u64, FilterName>,
    /// Whether the manifest on the disk may still name a removed filter.
    is_removal_in_doubt: bool,
}

impl Commits {
    /// Locks and returns the durable manifest.
    pub fn lock(&self) -> MappedMutexGuard<'_, Manifest> {
        MutexGuard::map(self.state.lock(), |state| &mut state.durable)
    }

    /// Sets the manifest that was read at the start.
    pub fn set(&self, manifest: Manifest) {
        self.change_both(|own| own.clone_from(&manifest));
    }

    /// Changes both manifests in memory.
    pub fn change_both(&self, change: impl Fn(&mut Manifest)) {
        let mut state = self.state.lock();
        let State {
            durable, staged, ..
        } = &mut *state;
        change(durable);
        change(staged);
    }

    /// Whether the manifest on the disk may still name a removed filter.
    pub fn is_removal_in_doubt(&self) -> bool {
        self.state.lock().is_removal_in_doubt
    }

    /// Returns a number that has not been given before.
    pub fn new_number(&self) -> u64 {
        let mut state = self.state.lock();
        let number = state.staged.next_number;
        state.staged.next_number += 1;
        number
    }
}

#[cfg(test)]
impl Commits {
    /// Blocks all writes of the manifest until the returned guard is dropped.
    pub fn hold_writes(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Returns the number of changes made so far.
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }
}

impl State {
    /// Returns the manifest to write. It lists the files that it drops, until they are removed.
    fn next(&mut self) -> Manifest {
        let named = self.staged.files();
        let staged = &mut self.staged;
        staged.removed.extend(self.durable.files());
        // Number 0 is shared by many files.
        let is_dropped = |number: &u64| *number > 0 && !named.contains(number);
        staged.removed.retain(is_dropped);
        staged.clone()
    }

    /// Rolls back all changes that are not written, and stores the error for their callers, except
    /// that of change `number`. If `may_stand`, the changes up to `tried` are in doubt.
    fn fail(&mut self, number: u64, tried: u64, error: &StoreError, may_stand: bool) -> Manifest {
        for other in self.decided + 1..=self.changes {
            if other != number {
                let copy = error.copy();
                let failed = match may_stand && other <= tried {
                    true => StoreError::InDoubt(copy.into()),
                    false => copy,
                };
                self.failed.insert(other, failed);
            }
        }
        self.decided = self.changes;
        if may_stand {
            // A filter whose removal is in doubt must not take keys: if the manifest without it
            // stands, they would be lost.
            for name in self.removals.range(..=tried).map(|(_, name)| name) {
                self.durable.remove(name);
                self.is_removal_in_doubt = true;
            }
        }
        self.removals.clear();
        let durable = Manifest {
            next_number: self.staged.next_number,
            ..self.durable.clone()
        };
        let dropped = std::mem::replace(&mut self.staged, durable);
        // The new files are garbage: the next start removes those that are left.
        self.staged.removed.extend(dropped.files());
        dropped
    }
}

impl DataDirectory {
    /// Changes the manifest, and returns when the change is on stable storage. Removes the files
    /// that the manifest no longer names. If the manifest cannot be changed, removes the files that
    /// it was to name instead.
    pub(super) fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), StoreError> {
        self.change_removing(None, change)
    }

    /// [`Self::change`] that removes a filter. The filter is gone even if the removal is in doubt.
    pub(super) fn change_removing(
        &self,
        removed: Option<&FilterName>,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<(), StoreError> {
        // `None` if another caller wrote this change: that caller clears up.
        if let Some(before) = self.commit(removed, change)? {
            self.clear(&before);
        }
        Ok(())
    }

    /// Changes the manifest, and returns the one before for [`Self::clear`]; `None` if another
    /// caller wrote this change together with its own.
    pub(super) fn commit(
        &self,
        removed: Option<&FilterName>,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Option<Manifest>, StoreError> {
        let Commits { state, writing } = &self.manifest;
        let number = {
            let mut state = state.lock();
            change(&mut state.staged);
            state.changes += 1;
            let number = state.changes;
            if let Some(name) = removed {
                state.removals.insert(number, name.clone());
            }
            number
        };
        let _writing = writing.lock();
        let (next, tried) = {
            let mut state = state.lock();
            if state.decided >= number {
                return match state.failed.remove(&number) {
                    Some(error) => Err(error),
                    None => Ok(None),
                };
            }
            (state.next(), state.changes)
        };
        if Bug::RemovedTooEarly.is_planted() {
            let durable = state.lock().durable.clone();
            self.remove_snapshots(&durable, &next);
        }
        let written = next.write(&*self.disk);
        let mut state = state.lock();
        if let Err(NotWritten { error, may_stand }) = written {
            let dropped = state.fail(number, tried, &error, may_stand);
            let durable = state.durable.clone();
            drop(state);
            if may_stand {
                return Err(StoreError::InDoubt(error.into()));
            }
            self.forget(&self.remove_snapshots(&dropped, &durable));
            return Err(error);
        }
        state.decided = tried;
        // The manifest on the disk does not name them now.
        state.is_removal_in_doubt = false;
        state.removals.retain(|number, _| *number > tried);
        Ok(Some(std::mem::replace(&mut state.durable, next)))
    }

    /// Removes the files that a manifest names and the present one does not.
    pub(super) fn clear(&self, before: &Manifest) {
        let now = self.manifest.lock().clone();
        if let (Some(first), Some(now)) = (before.log_from(), now.log_from()) {
            // Looks only at segments that exist: the range between two numbers of a manifest can be
            // huge.
            let files = match first < now {
                true => self.disk.names().unwrap_or_default(),
                false => Vec::new(),
            };
            let sequences = files.iter().filter_map(|file| log::segment_of(file));
            for sequence in sequences.filter(|sequence| (first..now).contains(sequence)) {
                // A failed removal only wastes disk space: the next start removes the file too.
                let _ = self.disk.remove(&log::segment_file(sequence));
            }
        }
        self.forget(&self.remove_snapshots(before, &now));
    }

    /// Drops files that are gone from the list of files to remove.
    fn forget(&self, removed: &[u64]) {
        self.manifest.change_both(|manifest| {
            manifest.removed.retain(|file| !removed.contains(file));
        });
    }

    /// Removes the snapshots that one manifest names and another does not, and returns the numbers
    /// of those that are gone.
    fn remove_snapshots(&self, of: &Manifest, without: &Manifest) -> Vec<u64> {
        // Compares numbers, because a filter can have another name now. Number 0 is shared by many
        // files.
        let kept = without.files();
        let mut removed = Vec::new();
        let is_kept = |name, file: &u64| match file {
            0 => without
                .filters
                .get(name)
                .is_some_and(|stored: &StoredFilter| stored.files.contains(file)),
            _ => kept.contains(file),
        };
        for (name, stored) in &of.filters {
            for file in stored.files.iter().filter(|file| !is_kept(name, file)) {
                // A failed removal only wastes disk space: the next start removes the file too.
                if self.disk.remove(&names::snapshot(name, *file)).is_ok() {
                    removed.push(*file);
                }
            }
        }
        removed
    }
}

impl StoreError {
    /// Returns a copy of the error, for another caller.
    fn copy(&self) -> Self {
        match self {
            Self::Io {
                action,
                path,
                source,
            } => Self::io(
                action,
                path.clone(),
                io::Error::new(source.kind(), source.to_string()),
            ),
            other => Self::io("write", Manifest::FILE, io::Error::other(other.to_string())),
        }
    }
}
