//! Copies filters: `CopyFilter`.

use std::{sync::Arc, thread, time::SystemTime};

use super::names::given_name;
use crate::{
    engine::{
        Engine, background,
        budget::MemoryBudget,
        call::{barrier::WriteBarrier, filter_name},
        commit::{Journal, versions::Versions},
        error::{EngineError, Full},
        filter::{Filter, FilterStatus},
    },
    store::{FilterId, FilterName},
};

impl Engine {
    /// Creates a copy of a filter, and returns its status. The copy has the same spec, secret and
    /// content. It contains every key that was acknowledged before the call began; the source takes
    /// calls meanwhile. The copy does not remember the requests that the source remembers.
    ///
    /// An empty `name` means `default`; an empty `new_name` is refused.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], [`EngineError::NameTaken`], [`EngineError::OverBudget`] or
    /// another [`EngineError`]: there is no copy. [`EngineError::NotDurable`]: the copy can exist
    /// after a crash.
    pub async fn copy_filter(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let name = filter_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let source = self.filter_named(name)?;
        let promise = {
            let naming = self.naming().await;
            self.promise(&naming, new_name.clone())?
        };
        let catalog = self.catalog.clone();
        let copy = move || {
            let id = FilterId(catalog.directory.new_number());
            let (barrier, journal) = (&catalog.data.barrier, catalog.data.journal.get());
            let copied = source.copy(id, new_name, &catalog.budget, barrier, journal)?;
            Ok(Arc::new(copied))
        };
        let copy = background::run("copy", copy).await?;
        let lock = copy.snapshot_lock().await;
        let store = move || {
            let catalog = &promise.catalog;
            copy.store(&catalog.directory, &catalog.data.barrier, lock)?;
            catalog.data.registry.insert(copy.clone());
            Ok(copy.status())
        };
        background::run("copy", store).await
    }
}

impl Filter {
    /// Returns a filter with the same spec, secret and content, in memory of its own. The budget
    /// counts this memory before any of it is mapped.
    ///
    /// The copy holds every change that was made before this call. Of the changes that are made
    /// during this call, it holds those that had reached a shard when that shard was copied. If all
    /// bits of a key lie in one shard, the copy has either all of them or none. If there is a log,
    /// everything in the copy is on stable storage, so the copy is never ahead of this filter.
    ///
    /// Locks one shard at a time (with its neighbours behind the same lock), only while it copies
    /// the shard, and only against writers. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; [`EngineError::Stopping`] soon after the barrier was closed;
    /// [`EngineError::StorageFailed`] if the log cannot be written.
    pub fn copy(
        &self,
        id: FilterId,
        name: FilterName,
        budget: &Arc<MemoryBudget>,
        barrier: &WriteBarrier,
        journal: Option<&Journal>,
    ) -> Result<Self, EngineError> {
        let (spec, now) = (self.spec.clone(), SystemTime::now());
        let mut copy = Self::new(id, name, spec, self.secret, now, budget, &self.clock)?;
        // After the wait, all changes of calls with a version up to this one are in the shards.
        let mut latest = self.versions.latest();
        barrier.wait_for_writes();
        // The kernel allocates a page of the new memory at the first write to it. The words are
        // copied twice, so that this does not happen under the lock.
        let (shard_map, mut words) = (self.shard_map(), Vec::new());
        let numbers = self.body.whole().numbers();
        if let Some(last) = numbers.clone().last() {
            let reserved = copy.body.whole().reserve(last);
            reserved.map_err(|why| match why {
                Full::OverBudget(over) => EngineError::OverBudget(over),
                why => EngineError::FilterFull {
                    name: self.name(),
                    why,
                },
            })?;
        }
        for index in numbers {
            barrier.pass()?;
            words.resize(shard_map.shape(index).shard_words(), 0);
            let state = {
                let Some(shard) = self.body.whole().read(index) else {
                    continue;
                };
                if shard.state.bits_set > 0 {
                    words.copy_from_slice(&shard.words);
                }
                shard.state
            };
            latest = latest.max(state.version);
            let Some(shard) = copy.body.whole_mut().get_mut(index) else {
                continue;
            };
            shard.state = state;
            if state.bits_set > 0 {
                shard.words.copy_from_slice(&words);
                if let Some(shard) = copy.body.whole().read(index) {
                    copy.body.whole().note_filled(&shard);
                }
            }
            thread::yield_now();
        }
        let clock_state = self.body.whole().clock_state();
        let body = copy.body.whole_mut();
        body.recount();
        // After the last stamp has been copied.
        body.follow(clock_state);
        if let Some(log) = &self.log {
            let logged = log.flush(latest);
            logged.map_err(|error| EngineError::StorageFailed(error.into()))?;
        }
        copy.versions = Versions::behind(latest);
        if let Some(journal) = journal {
            copy.set_log(journal);
        }
        Ok(copy)
    }
}
