//! Filters that forget all keys at once.

use std::sync::Arc;

use super::{Engine, EngineError, FilterStatus, filters::given_name};
use crate::store::FilterId;

impl Engine {
    /// Has a filter forget all keys in one step, and tells how it is then. It keeps its spec and
    /// its secret; which requests have won its keys is forgotten as well. Calls fall before it or
    /// after. An empty name is not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; nothing is then forgotten. [`EngineError::NotDurable`]: the keys may be
    /// forgotten after a crash, and until that is certain the filter takes no others.
    pub async fn reset_filter(&self, name: &str) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        let (filter, turn) = self.filter_in_turn(&name).await?;
        self.inner.check_not_rebuilding(&filter)?;
        let emptied = {
            let filter = filter.clone();
            self.blocking(move |inner| {
                let id = FilterId(inner.directory.new_number());
                filter.emptied(id, inner.journal.get())
            })
        };
        let empty = Arc::new(emptied.await?);
        let its_turn = empty.turn().await;
        self.blocking(move |inner| {
            let (directory, barrier) = (&inner.directory, &inner.barrier);
            let put = || inner.registry.insert(empty.clone());
            match filter.give_place_to(&empty, its_turn, directory, barrier, turn, put)? {
                true => Ok(empty.status()),
                false => Err(EngineError::UnknownFilter { name }),
            }
        })
        .await
    }
}
