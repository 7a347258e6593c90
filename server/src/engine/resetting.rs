//! Resets filters: `ResetFilter`.

use std::sync::Arc;

use super::{Engine, EngineError, FilterStatus, filters::given_name};
use crate::store::FilterId;

impl Engine {
    /// Removes all keys of a filter in one step, and returns its status after that. The filter
    /// keeps its spec and its secret. The requests that added its keys are forgotten too. Each call
    /// takes effect before the step or after it. An empty name is not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError`]: no key was removed. [`EngineError::NotDurable`]: the keys can be gone after
    /// a crash, and until this is certain the filter takes no more keys.
    pub async fn reset_filter(&self, name: &str) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        let (filter, lock) = self.filter_with_lock(&name).await?;
        self.inner.check_not_rebuilding(&filter)?;
        let emptied = {
            let filter = filter.clone();
            self.blocking(move |inner| {
                let id = FilterId(inner.directory.new_number());
                filter.emptied(id, inner.journal.get())
            })
        };
        let empty = Arc::new(emptied.await?);
        let its_lock = empty.snapshot_lock().await;
        self.blocking(move |inner| {
            let (directory, barrier) = (&inner.directory, &inner.barrier);
            let put = || inner.registry.insert(empty.clone());
            match filter.give_place_to(&empty, its_lock, directory, barrier, lock, put)? {
                true => Ok(empty.status()),
                false => Err(EngineError::UnknownFilter { name }),
            }
        })
        .await
    }
}
