//! Calls for one key.

use super::{
    Action, Call, Engine, EngineError, Inner, Unsettled, admission::Admission, workers::Threads,
};

impl Engine {
    /// Whether a key has been seen.
    ///
    /// # Errors
    ///
    /// Here and in the methods like this one: [`EngineError::Recovering`], [`EngineError::Name`],
    /// [`EngineError::UnknownFilter`], [`EngineError::KeyLength`], [`EngineError::BatchLength`],
    /// [`EngineError::NotAging`] or [`EngineError::MaxAge`]. The call has then changed nothing.
    pub async fn query(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool, EngineError> {
        let (inner, call, key) = (&self.inner, call.into(), key.as_ref());
        inner.limits.check_key(key)?;
        let answer = inner.ask(call, |filter| filter.query(key, call.max_age))?;
        match answer.settled().await {
            Err(_) if inner.is_certain(call.filter, answer.rests_on, [key]) => {}
            settled => settled?,
        }
        Ok(answer.value)
    }

    /// Adds a key. Safe to repeat, with an id or without; in a filter that counts with an id alone.
    ///
    /// # Errors
    ///
    /// As [`Self::query`], and [`EngineError::RequestId`]; [`EngineError::StorageFull`] or
    /// [`EngineError::StorageFailed`] if it cannot be logged.
    pub async fn add(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<(), EngineError> {
        let added = self.write_key(call.into(), Action::Add, key.as_ref());
        added.await.map(|_| ())
    }

    /// Whether a key had been seen before this call, which adds it. If a call of the same id has
    /// added it, that does not count.
    ///
    /// # Errors
    ///
    /// As [`Self::add`], and [`EngineError::RequestReused`].
    pub async fn query_and_add(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool, EngineError> {
        self.write_key(call.into(), Action::QueryAndAdd, key.as_ref())
            .await
    }

    /// Takes a key out, if it is there, of a filter that counts. Tells whether it was taken out,
    /// or has been by a call of the same id.
    ///
    /// # Errors
    ///
    /// As [`Self::query_and_add`], and [`EngineError::NotCounting`].
    pub async fn remove(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool, EngineError> {
        self.write_key(call.into(), Action::Remove, key.as_ref())
            .await
    }

    async fn write_key(
        &self,
        call: Call<'_>,
        action: Action,
        key: &[u8],
    ) -> Result<bool, EngineError> {
        let inner = &self.inner;
        inner.limits.check_key(key)?;
        inner.limits.check_request_id(call.request_id)?;
        let write = |admission: Admission<'_>| inner.write_key(call, action, key, admission);
        match inner.admitted(call, action, 1, Threads::Core, write).await {
            // Of a batch of one key.
            Err(EngineError::FilterBusy) => {
                let keys = vec![key.to_vec()];
                let (answer, _) = self.on_worker(call, Some(action), keys).await?;
                Ok(answer.settle().await?.first() == Some(&true))
            }
            answer => answer?.settle().await,
        }
    }
}

impl Inner {
    fn write_key(
        &self,
        call: Call<'_>,
        action: Action,
        key: &[u8],
        admission: Admission<'_>,
    ) -> Result<Unsettled<bool>, EngineError> {
        self.write(
            call,
            admission,
            |filter, change| filter.write(key, action, change),
            |heir, change| heir.follow_key(key, action, change),
        )
    }
}
