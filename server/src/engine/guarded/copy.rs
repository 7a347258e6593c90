//! A filter that begins with all that another has.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::SystemTime,
};

use super::GuardedFilter;
use crate::{
    engine::{EngineError, budget::MemoryBudget, gate::Gate, journal::Journal},
    store::{FilterId, FilterName},
};

impl GuardedFilter {
    /// A filter of the same spec and secret and with the same content, in memory of its own, which
    /// is counted against the budget before any is mapped. It holds every change that was made
    /// before this was called, and of those that are made meanwhile whatever has reached a shard
    /// when that was copied: of each key all or nothing, for all its bits lie in one. All that
    /// it holds is on stable storage as far as there is a log, so it is never ahead of this one.
    ///
    /// Locks one shard (and its neighbours behind the same lock) at a time, for the copy alone and
    /// against writers alone. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::new`]; [`EngineError::Stopping`] soon after the gate was closed; what keeps the
    /// log from being written.
    pub fn copy(
        &self,
        id: FilterId,
        name: FilterName,
        budget: &Arc<MemoryBudget>,
        gate: &Gate,
        journal: Option<&Journal>,
    ) -> Result<Self, EngineError> {
        let (spec, now) = (self.spec.clone(), SystemTime::now());
        let mut copy = Self::new(id, name, spec, self.secret, now, budget, &self.clock)?;
        // Between calls: of each up to this version all is there to be copied.
        let mut latest = gate.between_calls(|| self.version.load(Ordering::Acquire));
        // Of the new memory each page is made when it is first written to: not under the lock.
        let mut words = vec![0; self.shape.shard_words()];
        for index in 0..self.shape.shard_count() {
            gate.pass()?;
            let state = {
                let shard = self.shards.read(index);
                if shard.state.bits_set > 0 {
                    words.copy_from_slice(&shard.words);
                }
                shard.state
            };
            latest = latest.max(state.version);
            let shard = copy.shards.get_mut(index);
            shard.state = state;
            if state.bits_set > 0 {
                shard.words.copy_from_slice(&words);
                if let Some(counting) = &copy.counting {
                    counting.add_saturated(copy.shape.saturated(&words));
                }
            }
            thread::yield_now();
        }
        // After the last stamp has been copied.
        copy.follow(self);
        if let Some(log) = &self.log {
            let logged = log.flush(latest);
            logged.map_err(|error| EngineError::StorageFailed(error.into()))?;
        }
        *copy.version.get_mut() = latest;
        if let Some(journal) = journal {
            copy.set_log(journal);
        }
        Ok(copy)
    }
}
