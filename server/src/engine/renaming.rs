//! Filters that get another name.

use super::{Engine, EngineError, FilterStatus, filters::given_name};

impl Engine {
    /// Gives a filter another name, and tells how it is then. Calls that have found it under the
    /// old one go on. An empty name is not `default` here.
    ///
    /// Whoever repeats a call whose answer was lost is told that it is done: a filter that has the
    /// new name and had the old one just before is left as it is, if no other has the old one.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], [`EngineError::NameTaken`] or another [`EngineError`]; the
    /// filter then has its old name. [`EngineError::NotDurable`]; it has its old name, and may
    /// have the new one after a crash, until it is stored or the call repeated.
    pub async fn rename_filter(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let found = self.filter_in_turn(&name).await;
        if let Err(EngineError::UnknownFilter { .. }) = &found
            && let Some(filter) = self.inner.registry.get(&new_name)
            && filter.had_name(&name)
        {
            return self.blocking(move |inner| Ok(inner.status(&filter))).await;
        }
        let (filter, turn) = found?;
        if name == new_name {
            return self.blocking(move |inner| Ok(inner.status(&filter))).await;
        }
        let naming = self.naming().await;
        self.inner.check_free(&new_name)?;
        self.blocking(move |inner| {
            let put = || inner.registry.rename(&name, &filter);
            let renamed = filter.rename(&new_name, &inner.directory, &inner.barrier, turn, put);
            drop(naming);
            match renamed? {
                true => Ok(inner.status(&filter)),
                false => Err(EngineError::UnknownFilter { name }),
            }
        })
        .await
    }
}
