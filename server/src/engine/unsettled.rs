//! Answers on their way to those who asked.

use super::{EngineError, journal::FilterLog};

/// An answer that may have to wait for the log, and must not be told before.
#[derive(Debug)]
pub struct Unsettled<T> {
    pub(super) value: T,
    pub(super) log: Option<FilterLog>,
    pub(super) rests_on: u64,
}

impl<T> Unsettled<T> {
    /// Whether the answer may be told.
    pub fn is_settled(&self) -> bool {
        let log = self.log.as_ref();
        log.is_none_or(|log| log.has_reached(self.rests_on))
    }

    /// Returns when the answer may be told: when what it rests on is as durable as it is to be.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotDurable`], and neither of those that say that nothing was changed.
    pub async fn settled(&self) -> Result<(), EngineError> {
        match &self.log {
            Some(log) => {
                let reached = log.reached(self.rests_on).await;
                reached.map_err(|error| EngineError::NotDurable(error.into()))
            }
            None => Ok(()),
        }
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
