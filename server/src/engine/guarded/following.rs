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
        EngineError, Keys,
        budget::MemoryBudget,
        journal::FilterLog,
        requests::{Requests, Turn},
    },
    filter::spec::{FilterSpec, Kind},
    store::{DataDirectory, FilterId, FilterName, RequestId, StoreError},
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

    /// [`Self::begin`] for a call of the other filter. Here it is an other call than one of the same
    /// id that was made of this filter, and what it wins is nobody's: what counts is that keys are
    /// not counted twice.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn begin_following<'a>(
        &self,
        requests: &'a Requests,
        id: &str,
        action: Action,
    ) -> Result<Option<Turn<'a>>, EngineError> {
        self.check_takes_keys()?;
        if id.is_empty() || !self.counts() {
            return Ok(None);
        }
        // None that a call of this filter has.
        let id = self.request_id(id, action).rotate_left(64);
        requests.begin(self.id, RequestId(id.to_le_bytes()))
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

    /// Takes the name of another filter, and its place in the data directory, in one step; `false`
    /// if either has been deleted. No call must change the other one meanwhile. It must not be
    /// stored again then: `put` is for the caller to have the calls find this one.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; both are then what they were. [`StoreError::InDoubt`]: this one may have the
    /// place after a crash, and so the other one takes no keys until it is stored again.
    pub fn take_place_of(
        &self,
        other: &Self,
        mut its_turn: StoreTurn,
        directory: &DataDirectory,
        turn: StoreTurn,
        put: impl FnOnce(),
    ) -> Result<bool, StoreError> {
        if matches!(*its_turn.presence, Presence::Deleted) {
            return Ok(false);
        }
        let taken = self.rename_stored(&other.name(), directory, turn, put);
        if let Err(StoreError::InDoubt(_)) = &taken {
            other.doubt_place();
        }
        let taken = taken?;
        if taken {
            *its_turn.presence = Presence::Deleted;
        }
        Ok(taken)
    }
}
