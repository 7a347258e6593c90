//! Merges filters: `MergeFilters`.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Engine, EngineError, FilterStatus, background, filter::Filter, filters::given_name};
use crate::store::{FilterReader, StoreError};

impl Engine {
    /// Adds to the target all keys that the source had when the call began, and returns the status
    /// of the target. The source is stored, and not changed. Both filters take calls meanwhile.
    ///
    /// Both filters must have the same spec and the same secret, so one must be a copy of the
    /// other, or both copies of the same filter. In counting filters the counts of both add up. So
    /// a repeated call adds the counts once more; in other filters a call is safe to repeat. Empty
    /// names are not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`], [`EngineError::NoRoomToMerge`] or another [`EngineError`]: no
    /// keys were added. [`EngineError::NotDurable`]: none, a part or all of the keys were added,
    /// and a crash can change which. A repeated call adds all of them.
    pub async fn merge_filters(
        &self,
        source: &str,
        target: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let source = given_name("source", source)?;
        let target = given_name("target", target)?;
        if source == target {
            return Err(EngineError::MergedWithItself { name: source });
        }
        let source = self.filter_named(source)?;
        // Checked before anything is written, and again later: another filter can have the name by
        // then.
        let filter = self.filter_named(target.clone())?;
        filter.check_mergeable(&source)?;
        self.inner.check_not_rebuilt(&filter)?;
        let (stored, source) = self.stored(source).await?;
        let (filter, lock) = self.filter_with_lock(&target).await?;
        filter.check_mergeable(&source)?;
        // Merged keys would not be added to the mirror that will take its place.
        self.inner.check_not_rebuilt(&filter)?;
        let (inner, runtime) = (self.inner.clone(), Handle::current());
        let merge = move || {
            let (directory, barrier) = (&inner.directory, &inner.barrier);
            let reservation = inner.journal.get().map(|journal| journal.reserve(0, 1));
            let reservation = reservation
                .map(|reservation| runtime.block_on(reservation))
                .transpose()?;
            match filter.merge(&stored, directory, barrier, reservation, lock)? {
                true => Ok(inner.status(&filter)),
                false => Err(EngineError::UnknownFilter { name: target }),
            }
        };
        background::run("merge", merge).await
    }

    /// Stores a filter, and returns a reader of its stored files. The reader stays valid if the
    /// filter is deleted or replaced.
    async fn stored(
        &self,
        filter: Arc<Filter>,
    ) -> Result<(FilterReader, Arc<Filter>), EngineError> {
        let lock = filter.snapshot_lock().await;
        let inner = self.inner.clone();
        let store = move || {
            let stored = filter.stored(&inner.directory, &inner.barrier, lock);
            match stored.map_err(not_begun)? {
                Some(stored) => Ok((stored, filter)),
                None => Err(EngineError::UnknownFilter {
                    name: filter.name(),
                }),
            }
        };
        background::run("merge", store).await
    }
}

/// Returns the error for a source that cannot be stored. Even if the snapshot is in doubt, the
/// merge has not begun.
fn not_begun(error: StoreError) -> EngineError {
    match error {
        StoreError::InDoubt(error) => EngineError::from(*error),
        error => error.into(),
    }
}
