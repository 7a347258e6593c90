//! Filters that are merged.

use super::{Engine, EngineError, FilterStatus, background, filters::given_name};

impl Engine {
    /// Has a filter, the target, take all keys that another one, the source, had when the call
    /// began, and tells how it is then. The source stays as it is; both go on meanwhile. Both have
    /// to be plain, of the same spec and the same secret: copies of one filter, at some time. Empty
    /// names are not `default` here. To be repeated at will.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`] or another [`EngineError`]; nothing has been taken then.
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
        // Before it waits for the turn, and again: another may have the name then.
        self.filter_named(target.clone())?
            .check_mergeable(&source)?;
        let (filter, turn) = self.filter_in_turn(&target).await?;
        filter.check_mergeable(&source)?;
        // What came to it would not come to the one that is to take its place.
        self.inner.check_not_rebuilt(&filter)?;
        let inner = self.inner.clone();
        let merge = move || match filter.merge(&source, &inner.directory, &inner.gate, turn)? {
            true => Ok(inner.status(&filter)),
            false => Err(EngineError::UnknownFilter { name: target }),
        };
        background::run("merge", merge).await
    }
}
