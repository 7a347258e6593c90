//! A filter that forgets all keys at once: an empty one of another id takes its place.
//!
//! The step is the one in which the manifest names the snapshot of the empty filter, of no shards,
//! under the name. Of the one before it all is known by its id: what calls in flight still log of
//! it, and what its requests have won, is nobody's then.

use std::sync::atomic::Ordering;

use super::{
    GuardedFilter,
    snapshots::{Presence, Turn},
};
use crate::{
    engine::{EngineError, barrier::WriteBarrier, journal::Journal, versions::Versions},
    store::{DataDirectory, FilterId, StoreError},
};

impl GuardedFilter {
    /// An empty filter to take the place of this one, with all that is this one's but the keys. In
    /// the same memory, as the budget counts it: this one's goes when the last call with it ends.
    ///
    /// # Errors
    ///
    /// [`EngineError::OutOfMemory`] if the system has no address space left.
    pub fn emptied(&self, id: FilterId, journal: Option<&Journal>) -> Result<Self, EngineError> {
        let (name, spec, memory) = (self.name(), self.spec.clone(), self.memory.clone());
        let clock = &self.clock;
        let emptied = Self::in_memory(id, name, spec, self.secret, self.create_time, memory, clock);
        let mut empty = emptied?;
        empty.follow(self);
        // It has changed, for whoever watches the name.
        empty.versions = Versions::behind(self.versions.latest() + 1);
        if let Some(journal) = journal {
            empty.set_log(journal);
        }
        Ok(empty)
    }

    /// Has an empty filter take the place of this one in the data directory, under its name;
    /// `false` if this one has been deleted. It must not be stored again then: `put` is for the
    /// caller to have the calls find the other one, before anybody else gets this one's turn.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; this one then keeps its place. [`StoreError::InDoubt`]: the other one may
    /// have it after a crash, and so this one takes no keys until it is stored again.
    pub fn give_place_to(
        &self,
        empty: &Self,
        its_turn: Turn,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        mut turn: Turn,
        put: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        if matches!(*turn.presence, Presence::Deleted) {
            return Ok(false);
        }
        let stored = empty.store(directory, barrier, its_turn);
        if let Err(StoreError::InDoubt(_)) = &stored {
            self.doubt_place();
        }
        stored?;
        put();
        *turn.presence = Presence::Deleted;
        Ok(true)
    }

    /// Notes that another filter may be in the place of this one after a crash, or about to be.
    pub fn doubt_place(&self) {
        self.place_in_doubt.store(true, Ordering::Release);
    }

    /// Whether another filter may be in the place of this one after a crash.
    pub(super) fn is_place_in_doubt(&self) -> bool {
        self.place_in_doubt.load(Ordering::Acquire)
    }

    /// Notes that this one has its place for certain.
    pub(super) fn settle_place(&self) {
        self.place_in_doubt.store(false, Ordering::Release);
    }

    /// Lets calls through that change keys. Those of a filter that may be another after a crash
    /// would be lost with it.
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
