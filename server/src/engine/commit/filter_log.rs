//! The log of one filter.

use std::sync::Arc;

use super::{WalReservation, failure::Failure, log_state::LogState, watermark::Watermark};
use crate::{
    engine::error::EngineError,
    filter::hash::KeyHash,
    store::{FilterId, RecordHead},
};

/// The log of one filter.
#[derive(Debug, Clone)]
pub struct FilterLog {
    pub(super) shared: Arc<LogState>,
    pub(super) filter: FilterId,
    pub(super) watermark: Arc<Watermark>,
}

impl FilterLog {
    /// Appends the `count` hashes that a call with one version has changed, into space that was
    /// reserved for them. A version without hashes gets a record too.
    pub fn append(
        &self,
        reservation: &mut WalReservation<'_>,
        head: &RecordHead,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        self.shared.queues.append(reservation, head, count, hashes);
        self.shared.wake();
    }

    /// [`Self::append`] for a version whose hashes need records with different heads.
    pub fn append_parts<H: Iterator<Item = KeyHash>>(
        &self,
        reservation: &mut WalReservation<'_>,
        parts: impl Iterator<Item = (RecordHead, usize, H)>,
    ) {
        self.shared.queues.append_parts(reservation, parts);
        self.shared.wake();
    }

    /// Returns the most hashes of a record. A call with more hashes has several records.
    pub fn hashes_of_a_record(&self) -> usize {
        self.shared.queues.hashes_of_a_record()
    }

    /// As [`Journal::segment`].
    pub fn segment(&self) -> u64 {
        self.shared.segment()
    }

    /// Returns whether a version and all before it are as durable as configured.
    #[inline]
    pub fn has_reached(&self, version: u64) -> bool {
        self.watermark.has_reached(version)
    }

    /// Waits until a version and all before it are as durable as configured.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be written. It is not known then whether the change survives a
    /// crash.
    pub async fn reached(&self, version: u64) -> Result<(), EngineError> {
        self.watermark
            .reached(version, || self.shared.check())
            .await
    }

    /// Waits until a version and all before it are on stable storage, whatever durability is
    /// configured. Blocks.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be written.
    pub fn flush(&self, version: u64) -> Result<(), String> {
        self.shared.flush(Some((self.filter, version)))
    }

    /// While the log cannot be written: returns whether keys are certainly in it. `version` is that
    /// of the latest change where the keys were found.
    pub fn is_certain(&self, version: u64, hashes: impl Iterator<Item = KeyHash>) -> bool {
        let failure = self.shared.failure.lock();
        let certain = |failure: &Failure| failure.is_certain(self.filter, version, hashes);
        failure.as_ref().is_some_and(certain)
    }

    /// Ends the log of a filter that has been deleted or replaced: no call waits for it any more.
    pub fn end(&self) {
        self.shared.trackers.lock().end(self.filter);
    }
}
