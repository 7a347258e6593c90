//! The mirror of a filter: the new filter of a rebuild, which is to take the place of the other and
//! gets every write as well until then.
//!
//! The other filter answers the calls. Keys that calls add to it are added here too. In a filter
//! that counts, keys that calls remove from it are also removed here. So every change that is
//! acknowledged while both exist is in this filter when it takes the place of the other. This
//! filter never refuses keys. Where keys age, their age counts from now, as it does for the keys
//! that the filter is filled with.
//!
//! Both filters have the same secret and hash alike. So the keys that requests have added first to
//! the other filter can be handed over unchanged.

use std::{sync::Arc, time::SystemTime};

use tokio::sync::Mutex;

use crate::{
    engine::{
        EngineError, Keys,
        budget::MemoryBudget,
        call::{Action, barrier::WriteBarrier},
        commit::{FilterLog, versions::Versions},
        filter::{Filter, Presence, SnapshotLock, WriteContext},
    },
    filter::{
        hash::KeyHash,
        spec::{FilterSpec, Kind},
    },
    store::{DataDirectory, FilterId, FilterName, Renamed, RequestId, StoreError},
};

/// A filter that will take the place of another one.
#[derive(Debug)]
pub struct Mirror {
    filter: Arc<Filter>,
    /// The order lock of a counting filter. The result of removals depends on the order of the
    /// calls, which must be the same in both filters. So the calls run one at a time.
    order: Option<Arc<Mutex<()>>>,
}

impl Mirror {
    /// Creates the mirror of a filter.
    pub fn new(filter: Arc<Filter>, of: &Filter) -> Arc<Self> {
        let order = of.counts().then(Arc::default);
        Arc::new(Self { filter, order })
    }

    /// Returns the filter.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Returns the lock that each write must acquire, if writes run one at a time.
    pub fn order(&self) -> Option<Arc<Mutex<()>>> {
        self.order.clone()
    }
}

impl Filter {
    /// Returns a new filter of a spec, which is to take the place of this one.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn mirror(
        &self,
        id: FilterId,
        name: FilterName,
        spec: FilterSpec,
        create_time: SystemTime,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self, EngineError> {
        let (secret, clock) = (self.secret, &self.clock);
        let mut mirror = Self::new(id, name, spec, secret, create_time, budget, clock)?;
        mirror.rebuilds = Some(self.id);
        // The versions go on from those of the other, for callers that watch the name.
        mirror.versions = Versions::behind(self.versions.latest() + 1);
        Ok(mirror)
    }

    /// Fails with the reason if a filter of a spec cannot take the place of this one.
    pub fn check_rebuild(&self, spec: &FilterSpec) -> Result<(), String> {
        let own = &self.spec;
        if own.hash_function != spec.hash_function || own.key_profile != spec.key_profile {
            return Err(
                "spec.hash_function and spec.key_profile must be those of the filter, or a repeated \
                 call would not be recognised afterwards"
                    .to_owned(),
            );
        }
        let counts = spec.body.kind() == Kind::Counting;
        if self.counts() && !counts {
            return Err(
                "spec.counting must be there, as it is of the filter: keys that are removed \
                 meanwhile must be removed from both"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns the [`Self::session_id`] for a call of the other filter, so that no key is counted
    /// twice. `None` if keys are not counted here, or if `id` is empty.
    ///
    /// The keys that such a call adds first here must not be reported to a call of this filter. So
    /// the id is one that no call of this filter has. [`Action::Add`] is an exception: it returns
    /// nothing about the keys, and a caller can retry it after this filter has taken the place of
    /// the other.
    pub fn following_session_id(&self, id: &str, action: Action) -> Option<RequestId> {
        if id.is_empty() || !self.counts() {
            return None;
        }
        let id = match action {
            Action::Add => self.request_id(id, action),
            Action::QueryAndAdd | Action::Remove => self.request_id(id, action).rotate_left(64),
        };
        Some(RequestId(id.to_le_bytes()))
    }

    /// Applies to a key what a call has done with it in the other filter. Returns the version that
    /// this depends on.
    pub fn mirror_key(&self, key: &[u8], action: Action, context: WriteContext<'_>) -> u64 {
        self.write_again(&[self.hash(key)], self.mirrored(action), context)
    }

    /// [`Self::mirror_key`] for many keys.
    pub fn mirror_batch(&self, keys: &impl Keys, action: Action, context: WriteContext<'_>) -> u64 {
        let hashes: Vec<KeyHash> = keys.iter().map(|key| self.hash(key)).collect();
        self.write_again(&hashes, self.mirrored(action), context)
    }

    /// Returns the action on keys for which the other filter has answered. It adds keys that the
    /// other filter has seen, too: they may be missing here, and their age counts from now.
    fn mirrored(&self, action: Action) -> Action {
        match self.counts() {
            true => action,
            false => Action::Add,
        }
    }

    /// Returns the log and the version that an answer has to wait for; `None` if it need not wait.
    pub fn waits_for(&self, depends_on: u64) -> Option<(FilterLog, u64)> {
        self.pending(depends_on).map(|log| (log, depends_on))
    }

    /// Prepares this filter to take the place of another, so that little is left to be stored then.
    /// Returns `false` if it has been deleted. Blocks.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn prepare_to_take_place(
        &self,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        lock: &mut SnapshotLock,
    ) -> Result<bool, StoreError> {
        let is_there = self.prepare_rename(directory, barrier, lock)?;
        let (version, _) = self.begin_snapshot(barrier);
        self.store_unlogged(directory, lock, version)?;
        Ok(is_there)
    }

    /// Stores the changes of a filter without a log, up to a version. No call up to that version is
    /// in progress.
    fn store_unlogged(
        &self,
        directory: &DataDirectory,
        lock: &mut SnapshotLock,
        version: u64,
    ) -> Result<(), StoreError> {
        let stored = *self.last_store.lock();
        if let Presence::Present { files, .. } = &mut *lock.presence
            && self.log.is_none()
            && self.has_changed()
        {
            self.write_snapshot(directory, files, (version, 0), stored, None)?;
        }
        Ok(())
    }

    /// Takes the name of another filter and its place in the data directory, in one step. Returns
    /// what is left to do with the files; `None` if either filter has been deleted. Calls must not
    /// change either filter meanwhile. The other one is not stored again afterwards.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; both filters are unchanged then. After [`StoreError::InDoubt`], this filter
    /// can have the place after a crash, so the other one takes no keys until it is stored again.
    pub fn take_place_of(
        &self,
        other: &Self,
        its_lock: &mut SnapshotLock,
        directory: &DataDirectory,
        lock: &mut SnapshotLock,
    ) -> Result<Option<Renamed>, StoreError> {
        if matches!(*its_lock.presence, Presence::Deleted) {
            return Ok(None);
        }
        let version = self.versions.seal();
        self.store_unlogged(directory, lock, version)?;
        let taken = self.rename_stored(&other.name(), directory, lock);
        if let Err(StoreError::InDoubt(_)) = &taken {
            other.doubt_place();
        }
        let taken = taken?;
        if taken.is_some() {
            *its_lock.presence = Presence::Deleted;
        }
        Ok(taken)
    }
}
