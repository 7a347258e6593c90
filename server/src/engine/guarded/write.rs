//! Writes: calls that add or remove keys, one or many.

use super::{
    Answer, GuardedFilter, WriteContext, batch::trues, body::Body, hashed_key::HashedKey,
    layered::WhenFull,
};
use crate::engine::{
    EngineError, Keys,
    call::{Action, check_deadline},
};

impl GuardedFilter {
    /// Applies an action to a key. Returns whether the key was there, or was removed; false for
    /// [`Action::Add`].
    ///
    /// # Errors
    ///
    /// [`EngineError::FilterFull`], [`EngineError::NotCounting`], or [`EngineError::FilterBusy`]
    /// for a call that must not wait; nothing has been changed.
    #[inline]
    pub fn write(
        &self,
        key: &[u8],
        action: Action,
        change: WriteContext<'_>,
    ) -> Result<Answer<bool>, EngineError> {
        self.check_action(action)?;
        let hash = self.hash(key);
        let answer = match &self.body {
            // Without the lists of a batch.
            Body::Plain(plain) => self.insert(plain, hash, change),
            Body::Foreign(foreign) => self.insert_in_foreign(foreign, hash, change),
            Body::Counting(_) | Body::Aging(_) | Body::Layered(_) => {
                let places = vec![self.place(0, hash)];
                let answer = self.apply(places, action, change, WhenFull::Refuse)?;
                answer.map(|told| told.first() == Some(&true))
            }
        };
        self.count_call(action, 1, usize::from(answer.value));
        Ok(answer.map(|told| told && action != Action::Add))
    }

    /// [`Self::write`] for the keys of a batch, in their order. A key that is in the batch twice is
    /// seen the second time. Returns nothing for [`Action::Add`].
    ///
    /// # Errors
    ///
    /// As [`Self::write`], and [`EngineError::DeadlineOver`]; nothing has been changed.
    pub fn write_batch(
        &self,
        keys: &impl Keys,
        action: Action,
        change: WriteContext<'_>,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        self.check_action(action)?;
        let places = self.places(keys);
        check_deadline(change.deadline)?;
        let answer = self.apply(places, action, change, WhenFull::Refuse)?;
        self.count_call(action, answer.value.len(), trues(&answer.value));
        Ok(match action {
            Action::Add => answer.map(|_| Vec::new()),
            Action::QueryAndAdd | Action::Remove => answer,
        })
    }

    /// Applies an action that the filter supports to hashed keys, one after the other. Returns for
    /// each key whether it was there, or was removed. Where keys are counted, the values for
    /// [`Action::Add`] mean nothing.
    ///
    /// # Errors
    ///
    /// [`EngineError::FilterFull`], or [`EngineError::FilterBusy`] for a call that must not wait;
    /// nothing has been changed. No error with [`WhenFull::Add`] for a call that may wait.
    pub(super) fn apply(
        &self,
        places: Vec<HashedKey>,
        action: Action,
        change: WriteContext<'_>,
        when_full: WhenFull,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        debug_assert!(self.check_action(action).is_ok(), "{action:?}");
        Ok(match &self.body {
            Body::Plain(plain) => self.insert_places(plain, places, change),
            Body::Counting(counting) => self.count_places(counting, places, action, change),
            Body::Aging(aging) => self.stamp_places(aging, places, action, change),
            Body::Layered(layered) => {
                return self.add_to_layers(layered, places, change, when_full);
            }
            Body::Foreign(foreign) => self.insert_all_in_foreign(foreign, &places, change),
        })
    }

    /// Fails if the filter does not support an action.
    fn check_action(&self, action: Action) -> Result<(), EngineError> {
        match (action, &self.body) {
            (Action::QueryAndAdd | Action::Add, _) | (Action::Remove, Body::Counting(_)) => Ok(()),
            (Action::Remove, _) => Err(EngineError::NotCounting { name: self.name() }),
        }
    }

    /// Counts a call with `keys` keys, of which `there` were there.
    fn count_call(&self, action: Action, keys: usize, there: usize) {
        if action == Action::QueryAndAdd {
            self.counters.count(keys, there);
        }
        if action != Action::Remove {
            self.note_new(keys - there);
        }
    }
}
