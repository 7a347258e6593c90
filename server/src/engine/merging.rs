//! Filters that are merged.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{
    Engine, EngineError, FilterStatus, background, filters::given_name, guarded::GuardedFilter,
};
use crate::store::{FilterReader, StoreError};

impl Engine {
    /// Has a filter, the target, take all keys that another one, the source, had when the call
    /// began, and tells how it is then. The source is stored, and stays as it is; both go on
    /// meanwhile. Both have to be of the same spec and the same secret: copies of one filter, at
    /// some time. Where keys are counted, the counts of both add up, of a call that is repeated once
    /// more; elsewhere it may be repeated at will. Empty names are not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`], [`EngineError::NoRoomToMerge`] or another [`EngineError`];
    /// nothing has been taken then.
    /// [`EngineError::NotDurable`]: nothing, a part or all has been, which a crash may change. A
    /// call that is repeated makes it all.
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
        // Before anything is written, and again: another may have the name then.
        let filter = self.filter_named(target.clone())?;
        filter.check_mergeable(&source)?;
        self.inner.check_not_rebuilt(&filter)?;
        let (stored, source) = self.stored(source).await?;
        let (filter, turn) = self.filter_in_turn(&target).await?;
        filter.check_mergeable(&source)?;
        // What came to it would not come to the one that is to take its place.
        self.inner.check_not_rebuilt(&filter)?;
        let (inner, runtime) = (self.inner.clone(), Handle::current());
        let merge = move || {
            let (directory, barrier) = (&inner.directory, &inner.barrier);
            let room = inner.journal.get().map(|journal| journal.reserve(0, 1));
            let room = room.map(|room| runtime.block_on(room)).transpose()?;
            match filter.merge(&stored, directory, barrier, room, turn)? {
                true => Ok(inner.status(&filter)),
                false => Err(EngineError::UnknownFilter { name: target }),
            }
        };
        background::run("merge", merge).await
    }

    /// Stores a filter, and has what is stored of it be read, whatever becomes of it.
    async fn stored(
        &self,
        filter: Arc<GuardedFilter>,
    ) -> Result<(FilterReader, Arc<GuardedFilter>), EngineError> {
        let turn = filter.turn().await;
        let inner = self.inner.clone();
        let store = move || {
            let stored = filter.stored(&inner.directory, &inner.barrier, turn);
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

/// Why a filter that is to be merged cannot be stored. Whatever is in doubt then, the merge is not.
fn not_begun(error: StoreError) -> EngineError {
    match error {
        StoreError::InDoubt(error) => EngineError::from(*error),
        error => error.into(),
    }
}
