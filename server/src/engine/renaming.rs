//! Renames filters: `RenameFilter`.

use super::{Engine, EngineError, FilterStatus, filters::given_name};

impl Engine {
    /// Renames a filter, and returns its status after that. Calls that have found the filter under
    /// the old name go on. An empty name is not `default` here.
    ///
    /// A repeated call succeeds: if the filter with the new name had the old name just before, and
    /// no other filter has the old name, nothing is changed.
    ///
    /// # Errors
    ///
    /// [`EngineError::UnknownFilter`], [`EngineError::NameTaken`] or another [`EngineError`]: the
    /// filter has its old name. [`EngineError::NotDurable`]: the filter has its old name, and can
    /// have the new name after a crash, until it is stored or the call is repeated.
    pub async fn rename_filter(
        &self,
        name: &str,
        new_name: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.inner.check_recovered()?;
        let name = given_name("name", name)?;
        let new_name = given_name("new_name", new_name)?;
        let found = self.filter_with_lock(&name).await;
        if let Err(EngineError::UnknownFilter { .. }) = &found
            && let Some(filter) = self.inner.registry.get(&new_name)
            && filter.had_name(&name)
        {
            return self.blocking(move |inner| Ok(inner.status(&filter))).await;
        }
        let (filter, lock) = found?;
        if name == new_name {
            return self.blocking(move |inner| Ok(inner.status(&filter))).await;
        }
        let naming = self.naming().await;
        self.inner.check_free(&new_name)?;
        self.blocking(move |inner| {
            let put = || inner.registry.rename(&name, &filter);
            let renamed = filter.rename(&new_name, &inner.directory, &inner.barrier, lock, put);
            drop(naming);
            match renamed? {
                true => Ok(inner.status(&filter)),
                false => Err(EngineError::UnknownFilter { name }),
            }
        })
        .await
    }
}
