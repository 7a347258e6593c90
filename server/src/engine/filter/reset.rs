//! Reset: a filter forgets all keys at once. An empty filter with another id takes its place.
//!
//! The reset takes effect when the manifest names the snapshot of the empty filter, which has no
//! shards, under the filter's name. The log and the remembered requests know the old filter by its
//! id. So records that calls in flight still append for it, and keys that its requests have added,
//! belong to no filter afterwards.

use std::sync::atomic::Ordering;

use super::{
    Filter,
    snapshot_lock::{Presence, SnapshotLock},
};
use crate::{
    engine::{EngineError, barrier::WriteBarrier, journal::Journal, versions::Versions},
    store::{DataDirectory, FilterId, StoreError},
};

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

    /// Records that after a crash another filter can have the place of this one, or that this is
    /// about to be possible.
    pub fn doubt_place(&self) {
        self.place_in_doubt.store(true, Ordering::Release);
    }

    /// Returns whether after a crash another filter can have the place of this one.
    pub(super) fn is_place_in_doubt(&self) -> bool {
        self.place_in_doubt.load(Ordering::Acquire)
    }

    /// Records that this filter certainly has its place.
    pub(super) fn confirm_place(&self) {
        self.place_in_doubt.store(false, Ordering::Release);
    }

    /// Fails if the place of the filter is in doubt, so that it takes no keys. If another filter
    /// has the place after a crash, keys of this one would be lost.
    #[inline]
    pub fn check_takes_keys(&self) -> Result<(), EngineError> {
        if !self.is_place_in_doubt() {
            return Ok(());
        }
        let reason = format!(
            "whether the filter {} has been reset, or another has taken its place, is not known: \
             it takes no keys until it is stored, or that is done for certain",
            self.name()
        );
        Err(EngineError::StorageFailed(reason.into()))
    }
}
