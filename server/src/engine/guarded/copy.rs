//! A filter that begins with all that another has.

use std::{sync::Arc, thread, time::SystemTime};

use super::GuardedFilter;
use crate::{
    engine::{
        EngineError, Full, barrier::WriteBarrier, budget::MemoryBudget, journal::Journal,
        versions::Versions,
    },
    store::{FilterId, FilterName},
};

impl GuardedFilter {
    /// A filter of the same spec and secret and with the same content, in memory of its own, which
    /// is counted against the budget before any is mapped. It holds every change that was made
    /// before this was called, and of those that are made meanwhile whatever has reached a shard
    /// when that was copied: of each key all or nothing, if all its bits lie in one. All that
    /// it holds is on stable storage as far as there is a log, so it is never ahead of this one.
    ///
    /// Locks one shard (and its neighbours behind the same lock) at a time, for the copy alone and
    /// against writers alone. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; [`EngineError::Stopping`] soon after the barrier was closed; what keeps the
    /// log from being written.
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
        // Of each call with a version up to this one all is there to be copied.
        let mut latest = self.versions.latest();
        barrier.wait_for_writes();
        // Of the new memory each page is made when it is first written to: not under the lock.
        let (division, mut words) = (self.division(), Vec::new());
        let numbers = self.shard_numbers();
        if let (Some(from), Some(to)) = (&self.layered, &copy.layered) {
            to.map(from.partitions.mapped()).map_err(|why| match why {
                Full::OverBudget(over) => EngineError::OverBudget(over),
                why => EngineError::FilterFull {
                    name: self.name(),
                    why,
                },
            })?;
        }
        for index in numbers {
            barrier.pass()?;
            words.resize(division.shape(index).shard_words(), 0);
            let state = {
                let Some(shard) = self.read_shard(index) else {
                    continue;
                };
                if shard.state.bits_set > 0 {
                    words.copy_from_slice(&shard.words);
                }
                shard.state
            };
            latest = latest.max(state.version);
            let Some(shard) = copy.shard_mut(index) else {
                continue;
            };
            shard.state = state;
            if state.bits_set > 0 {
                shard.words.copy_from_slice(&words);
                if let Some(counting) = &copy.counting {
                    counting.add_saturated(copy.shape.saturated(&words));
                }
            }
            thread::yield_now();
        }
        if let Some(layered) = &mut copy.layered {
            layered.count();
        }
        // After the last stamp has been copied.
        copy.follow(self);
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
