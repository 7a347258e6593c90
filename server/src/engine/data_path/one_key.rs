//! Calls for one key.

use super::{Pending, admission::Admission};
use crate::engine::{
    Engine,
    call::{Action, Call, Op, workers::Threads},
    error::EngineError,
    filter::{Filter, WriteContext},
};

impl Engine {
    /// Returns whether a key has been seen.
    ///
    /// # Errors
    ///
    /// Errors of this and the other methods for keys: [`EngineError::Recovering`],
    /// [`EngineError::Name`], [`EngineError::UnknownFilter`], [`EngineError::KeyLength`],
    /// [`EngineError::BatchLength`], [`EngineError::NotAging`] or [`EngineError::MaxAge`]. The call
    /// has then changed nothing.
    pub async fn query(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool, EngineError> {
        self.answer(call.into(), Op::Query, key.as_ref()).await
    }

    /// Adds a key. Safe to repeat, with or without an id. Exception: in a counting filter it is
    /// safe to repeat only with an id.
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
        let added = self.answer(call.into(), Op::Write(Action::Add), key.as_ref());
        added.await.map(|_| ())
    }

    /// Adds a key, and returns whether it had been seen before this call. A key that a call of the
    /// same id has added counts as not seen.
    ///
    /// # Errors
    ///
    /// As [`Self::add`], and [`EngineError::RequestReused`].
    pub async fn query_and_add(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool, EngineError> {
        self.answer(call.into(), Op::Write(Action::QueryAndAdd), key.as_ref())
            .await
    }

    /// Removes a key from a counting filter, if it is there. Returns whether it was removed, now or
    /// by a call of the same id.
    ///
    /// # Errors
    ///
    /// As [`Self::query_and_add`], and [`EngineError::NotCounting`].
    pub async fn remove(
        &self,
        call: impl Into<Call<'_>>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool, EngineError> {
        self.answer(call.into(), Op::Write(Action::Remove), key.as_ref())
            .await
    }

    /// Answers a call for one key. Returns false for [`Action::Add`].
    ///
    /// # Errors
    ///
    /// As the method of the operation.
    pub async fn answer(&self, call: Call<'_>, op: Op, key: &[u8]) -> Result<bool, EngineError> {
        let answer = match op {
            Op::Query => self.ask_key(call, key)?,
            Op::Write(action) => match self.try_write_key(call, action, key)? {
                Some(answer) => answer,
                // Boxed, so that the futures of calls that do not wait stay small.
                None => Box::pin(self.write_key(call, action, key)).await?,
            },
        };
        self.finish(call, op, key, answer).await
    }

    /// Answers a call for one key if it has nothing to wait for first. Returns `None` otherwise.
    /// The answer may still have to wait for the log.
    ///
    /// # Errors
    ///
    /// As the method of the operation.
    pub fn try_answer(
        &self,
        call: Call<'_>,
        op: Op,
        key: &[u8],
    ) -> Result<Option<Pending<bool>>, EngineError> {
        match op {
            Op::Query => self.ask_key(call, key).map(Some),
            Op::Write(action) => self.try_write_key(call, action, key),
        }
    }

    /// Waits until the answer of [`Self::try_answer`] can be sent, and returns it.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotDurable`].
    pub async fn finish(
        &self,
        call: Call<'_>,
        op: Op,
        key: &[u8],
        answer: Pending<bool>,
    ) -> Result<bool, EngineError> {
        let is_certain = || self.data.is_certain(call.filter, answer.depends_on, [key]);
        match answer.wait().await {
            Err(_) if op == Op::Query && is_certain() => {}
            waited => waited?,
        }
        Ok(answer.value)
    }

    fn ask_key(&self, call: Call<'_>, key: &[u8]) -> Result<Pending<bool>, EngineError> {
        self.data.limits.check_key(key)?;
        self.data
            .ask(call, |filter| Ok(filter.query(key, call.max_age)))
    }

    /// Writes a key if nothing has to be waited for first. Returns `None` otherwise.
    fn try_write_key(
        &self,
        call: Call<'_>,
        action: Action,
        key: &[u8],
    ) -> Result<Option<Pending<bool>>, EngineError> {
        let data = &self.data;
        data.limits.check_key(key)?;
        data.limits.check_request_id(call.request_id)?;
        let change = |filter: &Filter, change: WriteContext<'_>| filter.write(key, action, change);
        match data.try_write(call, action, 1, Threads::Core, change) {
            Err(EngineError::FilterBusy) => Ok(None),
            answer => answer,
        }
    }

    /// Writes a key, after waiting for everything that the write needs. `try_write_key` has checked
    /// the key.
    async fn write_key(
        &self,
        call: Call<'_>,
        action: Action,
        key: &[u8],
    ) -> Result<Pending<bool>, EngineError> {
        let write = |admission: Admission<'_>| {
            self.data.write(
                call,
                admission,
                |filter, context| filter.write(key, action, context),
                action,
                [key].into_iter(),
            )
        };
        let admitted = self.data.admitted(call, action, 1, Threads::Core, write);
        match admitted.await {
            // The call runs again on a worker, as a batch of one key.
            Err(EngineError::FilterBusy) => {
                let keys = vec![key.to_vec()];
                let (answer, _) = self.on_worker(call, Op::Write(action), keys).await?;
                Ok(answer.map(|seen| seen.first() == Some(&true)))
            }
            answer => answer,
        }
    }
}
