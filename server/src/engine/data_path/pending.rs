//! Answers that wait for the log before they are sent.

use std::sync::Arc;

use crate::engine::{commit::FilterLog, error::EngineError, filter::CapacityWarning};

/// An answer that may have to wait for the log, and must not be sent before.
#[derive(Debug)]
pub struct Pending<T> {
    pub(in crate::engine) value: T,
    pub(in crate::engine) log: Option<FilterLog>,
    pub(in crate::engine) depends_on: u64,
    /// The log and version that the answer waits for in the mirror of the filter.
    pub(in crate::engine) mirror: Option<Box<(FilterLog, u64)>>,
    pub(in crate::engine) capacity_warning: Option<Arc<CapacityWarning>>,
}

impl<T> Pending<T> {
    /// Returns whether the answer can be sent.
    pub fn is_durable(&self) -> bool {
        self.waits_for()
            .all(|(log, version)| log.has_reached(version))
    }

    /// Returns the answer, if it can be sent.
    pub fn value_if_durable(&self) -> Option<&T> {
        self.is_durable().then_some(&self.value)
    }

    /// Returns the capacity warning for a caller that has added keys, if the filter is nearly at its
    /// capacity or beyond it.
    pub fn capacity_warning(&self) -> Option<&CapacityWarning> {
        self.capacity_warning.as_deref()
    }

    /// Applies a function to the answer. The result waits for the same versions.
    pub(in crate::engine) fn map<U>(self, make: impl FnOnce(T) -> U) -> Pending<U> {
        Pending {
            value: make(self.value),
            log: self.log,
            depends_on: self.depends_on,
            mirror: self.mirror,
            capacity_warning: self.capacity_warning,
        }
    }

    /// Waits until the answer can be sent: until the changes that it depends on are as durable as
    /// configured.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotDurable`]. It does not return the errors that mean that nothing was
    /// changed.
    pub async fn wait(&self) -> Result<(), EngineError> {
        for (log, version) in self.waits_for() {
            let reached = log.reached(version).await;
            reached.map_err(|error| EngineError::NotDurable(error.into()))?;
        }
        Ok(())
    }

    fn waits_for(&self) -> impl Iterator<Item = (&FilterLog, u64)> {
        let own = self.log.as_ref().map(|log| (log, self.depends_on));
        let mirrors = self.mirror.as_deref().map(|(log, version)| (log, *version));
        own.into_iter().chain(mirrors)
    }

    /// Waits until the answer can be sent, and returns it.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`].
    pub async fn durable(self) -> Result<T, EngineError> {
        self.wait().await?;
        Ok(self.value)
    }
}
