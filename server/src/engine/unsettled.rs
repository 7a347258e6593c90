//! Answers on their way to those who asked.

use super::{EngineError, journal::FilterLog};

/// An answer that may have to wait for the log, and must not be told before.
#[derive(Debug)]
pub struct Unsettled<T> {
    pub(super) value: T,
    pub(super) log: Option<FilterLog>,
    pub(super) rests_on: u64,
    /// The same of the filter that is to take the place of the one that was asked.
    pub(super) heir: Option<Box<(FilterLog, u64)>>,
}

impl<T> Unsettled<T> {
    /// Whether the answer may be told.
    pub fn is_settled(&self) -> bool {
        self.waits_for()
            .all(|(log, version)| log.has_reached(version))
    }

    /// The answer, if it may be told.
    pub fn told(&self) -> Option<&T> {
        self.is_settled().then_some(&self.value)
    }

    /// What a function makes of the answer, which waits for the same.
    pub(super) fn map<U>(self, make: impl FnOnce(T) -> U) -> Unsettled<U> {
        Unsettled {
            value: make(self.value),
            log: self.log,
            rests_on: self.rests_on,
            heir: self.heir,
        }
    }

    /// Returns when the answer may be told: when what it rests on is as durable as it is to be.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotDurable`], and neither of those that say that nothing was changed.
    pub async fn settled(&self) -> Result<(), EngineError> {
        for (log, version) in self.waits_for() {
            let reached = log.reached(version).await;
            reached.map_err(|error| EngineError::NotDurable(error.into()))?;
        }
        Ok(())
    }

    fn waits_for(&self) -> impl Iterator<Item = (&FilterLog, u64)> {
        let own = self.log.as_ref().map(|log| (log, self.rests_on));
        let heirs = self.heir.as_deref().map(|(log, version)| (log, *version));
        own.into_iter().chain(heirs)
    }

    /// Returns the answer when it may be told.
    ///
    /// # Errors
    ///
    /// As [`Self::settled`].
    pub async fn settle(self) -> Result<T, EngineError> {
        self.settled().await?;
        Ok(self.value)
    }
}
