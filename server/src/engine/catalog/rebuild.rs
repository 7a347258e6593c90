//! Rebuilds filters: `StartRebuild` and `FinishRebuild`.
//!
//! A new filter is created beside the filter to rebuild: its mirror. From then on every write to
//! the filter also goes to the mirror, while the client fills the mirror with keys. In the end the
//! mirror takes the name of the filter, in one step.
//!
//! An answer waits until the changes that it depends on are durable for both filters. The mirror's
//! entry on the disk names the filter that it rebuilds, so recovery continues a rebuild.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tokio::runtime::Handle;

use super::{Catalog, names::given_name};
use crate::{
    engine::{
        Engine, background,
        budget::MemoryBudget,
        call::barrier::WriteBarrier,
        commit::{Durability, Journal, Remembered, versions::Versions},
        error::EngineError,
        filter::{Filter, FilterStatus, Presence, SnapshotLock},
        registry::{Entry, Mirror},
    },
    filter::spec::{FilterSpec, SpecRequest},
    store::{DataDirectory, FilterId, FilterName, Renamed, StoreError},
};

impl Engine {
    /// Creates the mirror of a filter, and returns the mirror's status. The mirror has the spec
    /// that is given, or the same spec as the filter. Keys that are added to the filter are added
    /// to the mirror too, until the rebuild is [finished](Self::finish_rebuild) or the mirror is
    /// deleted. Empty names are not `default` here.
    ///
    /// A repeated call succeeds, and changes nothing.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotRebuildable`], [`EngineError::NameTaken`] or another [`EngineError`]: no
    /// filter was created. [`EngineError::NotDurable`]: the mirror can exist after a crash.
    pub async fn start_rebuild(
        &self,
        name: &str,
        new_name: &str,
        request: Option<SpecRequest>,
    ) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let spec = match request.clone() {
            None => None,
            Some(request) => Some(self.queued(move |_| Ok(request.resolve())).await?),
        };
        // While the lock is held, no call resets the filter or merges another one into it.
        let (filter, lock) = self.filter_with_lock(&name).await?;
        let mirror = self.catalog.mirror_of(&name);
        if let Some(mirror) = mirror.filter(|mirror| mirror.filter().name() == new_name) {
            let asked = |request: &SpecRequest| mirror.filter().spec().answers(request);
            if request.as_ref().is_none_or(asked) {
                return self.status_of(mirror.filter().clone()).await;
            }
        }
        let spec = spec.unwrap_or_else(|| Ok(filter.spec().clone()))?;
        self.catalog.check_not_rebuilding(&filter)?;
        filter.check_rebuild(&spec).map_err(|reason| {
            let name = name.clone();
            EngineError::NotRebuildable { name, reason }
        })?;
        let promise = {
            let naming = self.naming().await;
            self.promise(&naming, new_name.clone())?
        };
        let of = filter.clone();
        let make = move |catalog: &Catalog| {
            let id = FilterId(catalog.directory.new_number());
            let (budget, now) = (&catalog.budget, SystemTime::now());
            let mut new = of.mirror(id, new_name, spec, now, budget)?;
            if let Some(journal) = catalog.data.journal.get() {
                new.set_log(journal);
            }
            Ok(Arc::new(new))
        };
        let new = self.blocking(make).await?;
        let its_lock = new.snapshot_lock().await;
        self.blocking(move |catalog| {
            new.store(&catalog.directory, &catalog.data.barrier, its_lock)?;
            new.sample(Instant::now());
            let mirror = Mirror::new(new.clone(), filter);
            catalog.data.registry.set_mirror(&mirror);
            // Writes that began before go to the filter only: waits until they have ended.
            catalog.data.barrier.wait_for_writes();
            drop((promise, lock));
            Ok(catalog.status(&new))
        })
        .await
    }

    /// Gives the place and the name of a filter to its mirror, in one step, and returns the
    /// mirror's status after that. Each call takes effect before the step or after it. Writes to
    /// either filter wait while the remembered requests are written to the disk. The old filter is
    /// deleted. Empty names are not `default` here.
    ///
    /// A repeated call succeeds, and changes nothing.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotRebuilding`] or another [`EngineError`]: both filters are unchanged.
    /// [`EngineError::NotDurable`]: the mirror can have the place after a crash, and until this is
    /// certain the old filter takes no keys.
    pub async fn finish_rebuild(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let (filter, lock) = self.filter_with_lock(&name).await?;
        let mirror = self.catalog.mirror_of(&name);
        let Some(mirror) = mirror.filter(|mirror| mirror.filter().name() == new_name) else {
            if self.catalog.has_been_rebuilt(&filter, &new_name) {
                return self.status_of(filter).await;
            }
            return Err(EngineError::NotRebuilding { name, new_name });
        };
        let its_lock = mirror.filter().snapshot_lock().await;
        let naming = self.naming().await;
        // While this call waited for the lock of the mirror's snapshots, the mirror may have been
        // renamed or deleted.
        let now = self.data.registry.get(&new_name);
        if now.is_none_or(|now| !Arc::ptr_eq(&now, mirror.filter())) {
            return Err(EngineError::NotRebuilding { name, new_name });
        }
        let (catalog, runtime) = (self.catalog.clone(), Handle::current());
        let finish = move || {
            let locks = [lock, its_lock];
            let taken = catalog.have_take_place(&filter, mirror.filter(), locks, &runtime);
            drop(naming);
            match taken? {
                true => Ok(catalog.status(mirror.filter())),
                false => Err(EngineError::NotRebuilding { name, new_name }),
            }
        };
        background::run("rebuild", finish).await
    }
}

impl Catalog {
    /// Returns the status of a filter, with the filter that it rebuilds or is rebuilt as.
    pub(in crate::engine) fn status(&self, filter: &Filter) -> FilterStatus {
        self.with_rebuild(filter, filter.status())
    }

    /// Adds to a status the filter that it rebuilds or is rebuilt as.
    pub(in crate::engine) fn with_rebuild(
        &self,
        filter: &Filter,
        status: FilterStatus,
    ) -> FilterStatus {
        let view = self.data.registry.now();
        let mirror = view.get(status.name.as_str()).and_then(Entry::mirror);
        FilterStatus {
            rebuilt_as: mirror.map(|mirror| mirror.filter().name()),
            rebuilds: view.rebuilt_as(filter).map(|rebuilt| rebuilt.name()),
            ..status
        }
    }

    /// Gives the place of `filter` to its mirror `new`; `false` if either has been deleted. Blocks.
    fn have_take_place(
        &self,
        filter: &Filter,
        new: &Arc<Filter>,
        [mut lock, mut its_lock]: [SnapshotLock; 2],
        runtime: &Handle,
    ) -> Result<bool, EngineError> {
        if !new.prepare_to_take_place(&self.directory, &self.data.barrier, &mut its_lock)? {
            return Ok(false);
        }
        let new_name = new.name();
        loop {
            // Appends most of the requests here, while calls go on. This can wait for room in the
            // log; during the hold it must not, because calls that wait for the end of the hold can
            // own that room.
            self.hand_over_requests(filter, new, |journal, first_added| {
                runtime.block_on(journal.repeat(first_added)).map(|()| true)
            })?;
            let mut step = || {
                if !self.hand_over_requests(filter, new, Journal::try_repeat)? {
                    return Ok(None);
                }
                let locks = (&mut lock, &mut its_lock);
                let taken = new.take_place_of(filter, locks.0, &self.directory, locks.1)?;
                if taken.is_some() {
                    self.data.registry.rename(&new_name, new);
                }
                Ok::<_, EngineError>(Some(taken))
            };
            let taken = {
                let _held = [filter.hold(), new.hold()];
                self.data.barrier.wait_for_writes();
                step()?
            };
            match taken {
                Some(Some(renamed)) => {
                    self.directory.clear_up_renamed(renamed);
                    return Ok(true);
                }
                Some(None) => return Ok(false),
                None => {}
            }
        }
    }

    /// Restores the rebuilds that were in progress when the server ended. Without a log one of the
    /// two filters can contain keys that the other one does not: then the rebuilds are ended.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub(in crate::engine) fn go_on_with_rebuilds(&self) -> Result<(), EngineError> {
        if self.data.durability == Durability::Snapshot {
            return Ok(self.directory.end_rebuilds()?);
        }
        let filters = self.data.registry.list(None, usize::MAX);
        for mirror in &filters {
            let rebuilds = self.directory.rebuilds(&mirror.name());
            let rebuilt = filters.iter().find(|filter| Some(filter.id()) == rebuilds);
            if let Some(rebuilt) = rebuilt {
                let mirror = Mirror::new(mirror.clone(), rebuilt.clone());
                self.data.registry.set_mirror(&mirror);
            }
        }
        Ok(())
    }

    /// Makes the filter that is rebuilt as `as_filter`, if any, refuse keys until it is stored.
    /// After a crash `as_filter` can be back, and would not contain these keys.
    pub(in crate::engine) fn doubt_rebuild(&self, as_filter: &Filter) {
        if let Some(rebuilt) = self.data.registry.now().rebuilt_as(as_filter) {
            rebuilt.doubt_place();
        }
    }

    /// Fails if a filter has a mirror, or is one.
    pub(in crate::engine) fn check_not_rebuilding(
        &self,
        filter: &Filter,
    ) -> Result<(), EngineError> {
        match self.data.registry.now().rebuilt_as(filter) {
            Some(rebuilt) => Err(EngineError::Rebuilding {
                name: filter.name(),
                other: rebuilt.name(),
            }),
            None => self.check_not_rebuilt(filter),
        }
    }

    /// Fails if a filter has a mirror.
    pub(in crate::engine) fn check_not_rebuilt(&self, filter: &Filter) -> Result<(), EngineError> {
        let name = filter.name();
        match self.mirror_of(&name) {
            Some(mirror) => Err(EngineError::Rebuilding {
                name,
                other: mirror.filter().name(),
            }),
            None => Ok(()),
        }
    }

    /// Returns whether a filter has taken the place of another, and had the name `as_name` before,
    /// which no filter has now. If a restart has forgotten the former name, any name fits.
    fn has_been_rebuilt(&self, filter: &Filter, as_name: &FilterName) -> bool {
        let name = filter.name();
        let is_done = self.directory.rebuilds(&name).is_some() && self.mirror_of(&name).is_none();
        let had_name = filter.had_name(as_name) || filter.had_no_name();
        is_done && had_name && self.data.registry.get(as_name).is_none()
    }

    fn mirror_of(&self, name: &FilterName) -> Option<Arc<Mirror>> {
        self.data
            .registry
            .now()
            .get(name.as_str())?
            .mirror()
            .cloned()
    }

    /// Copies the remembered requests of a filter to its mirror: the keys that a request added
    /// first to the filter count as added first to the mirror. They take effect when they are on
    /// stable storage, with all records before them. Returns `false` if `write` could not append
    /// all of them. Blocks.
    fn hand_over_requests(
        &self,
        from: &Filter,
        to: &Filter,
        write: impl Fn(&Journal, &Remembered) -> Result<bool, EngineError>,
    ) -> Result<bool, EngineError> {
        let _shortening = self.shortening.lock();
        let missing = self.data.requests.missing(from.id(), to.id());
        let segment = self.data.journal.get().map_or(0, Journal::segment);
        if let Some(journal) = self.data.journal.get() {
            for first_added in &missing {
                if !write(journal, first_added)? {
                    return Ok(false);
                }
            }
            let flushed = journal.flush();
            flushed.map_err(|error| EngineError::StorageFailed(error.into()))?;
        }
        for first_added in missing {
            self.data.requests.remember(first_added, segment);
        }
        Ok(true)
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
        let counts = spec.body.counts();
        if self.counts() && !counts {
            return Err(
                "spec.counting must be there, as it is of the filter: keys that are removed \
                 meanwhile must be removed from both"
                    .to_owned(),
            );
        }
        Ok(())
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
    /// the renamed filter, whose files the caller must then rename; `None` if either filter has been
    /// deleted. Calls must not change either filter meanwhile. The other filter is not stored again
    /// afterwards.
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
