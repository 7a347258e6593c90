//! A filter that is to take the place of another, and gets the keys of that until then.
//!
//! The other one answers the calls. What they add to it comes here as well, and in a filter that
//! counts what they remove is taken out here: so whatever is acknowledged while both are there is
//! found when this one is asked in the place of the other. It is never refused. Where keys age it
//! counts from now, as what it is filled with does.
//!
//! Both have one secret, and hash alike: what requests have won of the other one can be handed over
//! as it is.

use std::{sync::Arc, time::SystemTime};

use super::{
    Change, GuardedFilter,
    batch::Place,
    counting::Action,
    layered::WhenFull,
    snapshots::{Presence, Turn as StoreTurn},
};
use crate::{
    engine::{
        EngineError, Keys, barrier::WriteBarrier, budget::MemoryBudget, journal::FilterLog,
        versions::Versions,
    },
    filter::spec::{FilterSpec, Kind},
    store::{DataDirectory, FilterId, FilterName, Renamed, RequestId, StoreError},
};

impl GuardedFilter {
    /// A new filter of a spec that is to take the place of this one.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn heir(
        &self,
        id: FilterId,
        name: FilterName,
        spec: FilterSpec,
        create_time: SystemTime,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Self, EngineError> {
        let (secret, clock) = (self.secret, &self.clock);
        let mut heir = Self::new(id, name, spec, secret, create_time, budget, clock)?;
        heir.rebuilds = Some(self.id);
        // It goes on from there, for whoever watches the name.
        heir.versions = Versions::behind(self.versions.latest() + 1);
        Ok(heir)
    }

    /// Why a filter of a spec cannot take the place of this one, if it cannot.
    pub fn check_rebuild(&self, spec: &FilterSpec) -> Result<(), String> {
        let own = &self.spec;
        if own.hash_function != spec.hash_function || own.key_profile != spec.key_profile {
            return Err(
                "spec.hash_function and spec.key_profile must be those of the filter, or a repeated \
                 call would not be recognised afterwards"
                    .to_owned(),
            );
        }
        let counts = spec.kind == Kind::Counting;
        if self.counts() && !counts {
            return Err(
                "spec.counting must be there, as it is of the filter: keys that are removed \
                 meanwhile must be removed from both"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// [`Self::session_id`] for a call of the other filter, where keys are counted: they must not be
    /// counted twice. What such a call wins here is nobody's, so it has an id that no call of this
    /// filter has; but for one that adds, which is told nothing, and may be repeated when this
    /// filter has the place of the other.
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

    /// Does with a key what a call has done with it in the other filter, and returns the version that
    /// this rests on.
    pub fn follow_key(&self, key: &[u8], action: Action, change: Change<'_>) -> u64 {
        self.follow_places(vec![self.place(0, self.hash(key))], action, change)
    }

    /// [`Self::follow_key`] for many keys.
    pub fn follow_batch(&self, keys: &impl Keys, action: Action, change: Change<'_>) -> u64 {
        self.follow_places(self.places(keys), action, change)
    }

    fn follow_places(&self, places: Vec<Place>, action: Action, change: Change<'_>) -> u64 {
        let answer = match (&self.counting, &self.aging, &self.layered, &self.array) {
            (Some(counting), ..) => self.count_places(counting, places, action, change),
            (_, Some(aging), ..) => self.stamp_places(aging, places, Action::Add, change),
            (_, _, Some(layered), _) => {
                // It refuses none.
                let added = self.add_to_layers(layered, places, change, WhenFull::Add);
                return added.map_or(0, |answer| answer.rests_on);
            }
            (.., Some(array)) => self.insert_all_in_array(array, &places, change),
            (None, None, None, None) => self.insert_places(places, change),
        };
        answer.rests_on
    }

    /// The log, and the version of it, if an answer has to wait for that.
    pub fn waits_for(&self, rests_on: u64) -> Option<(FilterLog, u64)> {
        self.unsettled(rests_on).map(|log| (log, rests_on))
    }

    /// Sees to it that this filter can take the place of another, and that little is left to be
    /// stored then; `false` if it has been deleted. Blocks.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn prepare_to_take_place(
        &self,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        turn: &mut StoreTurn,
    ) -> Result<bool, StoreError> {
        let is_there = self.prepare_rename(directory, barrier, turn)?;
        let (version, _) = self.begin_snapshot(barrier);
        self.store_unlogged(directory, turn, version)?;
        Ok(is_there)
    }

    /// Stores what is in no log, up to a version that no call has under way.
    fn store_unlogged(
        &self,
        directory: &DataDirectory,
        turn: &mut StoreTurn,
        version: u64,
    ) -> Result<(), StoreError> {
        let stored = *self.last_store.lock();
        if let Presence::Present { files, .. } = &mut *turn.presence
            && self.log.is_none()
            && self.has_changed()
        {
            self.write_snapshot(directory, files, (version, 0), stored, None)?;
        }
        Ok(())
    }

    /// Takes the name of another filter, and its place in the data directory, in one step, but for
    /// what is left to do with the files; `None` if either has been deleted. No call must change
    /// either meanwhile. The other one is not stored again then.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; both are then what they were. [`StoreError::InDoubt`]: this one may have the
    /// place after a crash, and so the other one takes no keys until it is stored again.
    pub fn take_place_of(
        &self,
        other: &Self,
        its_turn: &mut StoreTurn,
        directory: &DataDirectory,
        turn: &mut StoreTurn,
    ) -> Result<Option<Renamed>, StoreError> {
        if matches!(*its_turn.presence, Presence::Deleted) {
            return Ok(None);
        }
        let version = self.versions.settle();
        self.store_unlogged(directory, turn, version)?;
        let taken = self.rename_stored(&other.name(), directory, turn);
        if let Err(StoreError::InDoubt(_)) = &taken {
            other.doubt_place();
        }
        let taken = taken?;
        if taken.is_some() {
            *its_turn.presence = Presence::Deleted;
        }
        Ok(taken)
    }
}
