//! Calls for many keys.

use super::{DataPath, Pending, admission::Admission};
use crate::engine::{
    Engine,
    call::{Action, Call, Keys, Op, workers::Threads},
    error::EngineError,
    filter::{Filter, WriteContext},
};

impl Engine {
    /// Returns for each key whether it has been seen.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn query_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<Vec<bool>, EngineError> {
        let call = call.into();
        // Boxed, here and below: the future of a call that still waits for its message stays small.
        let (answer, keys) = Box::pin(self.batch(call, Op::Query, keys)).await?;
        if let Err(error) = answer.wait().await {
            let keys = keys.iter().zip(&answer.value);
            let seen = keys.filter(|(_, seen)| **seen).map(|(key, _)| key);
            if !self.data.is_certain(call.filter, answer.depends_on, seen) {
                return Err(error);
            }
        }
        Ok(answer.value)
    }

    /// Adds the keys: all of them or, if the engine is closed, none. Safe to repeat, with or
    /// without an id. Exception: in a counting filter it is safe to repeat only with an id.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub async fn add_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<(), EngineError> {
        let added = self.begin_write_batch(call, Action::Add, keys).await?;
        added.durable().await.map(|_| ())
    }

    /// Removes the keys that are in a counting filter. Returns for each key whether it was removed,
    /// now or by a call of the same id.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub async fn remove_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<Vec<bool>, EngineError> {
        let removed = self.begin_write_batch(call, Action::Remove, keys).await?;
        removed.durable().await
    }

    /// Adds the keys as [`Self::add_batch`] does, and returns for each key whether it had been seen
    /// before. A key that a call of the same id has added counts as not seen.
    ///
    /// # Errors
    ///
    /// As [`Self::query_and_add`].
    pub async fn query_and_add_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<Vec<bool>, EngineError> {
        let seen = self.begin_write_batch(call, Action::QueryAndAdd, keys);
        seen.await?.durable().await
    }

    /// Applies an action to the keys, for callers that go on with the next batch while the answer to
    /// this one waits for the log. The answer is that of the method of the action; empty for
    /// [`Action::Add`].
    ///
    /// # Errors
    ///
    /// As the method of the action.
    pub async fn begin_write_batch(
        &self,
        call: impl Into<Call<'_>>,
        action: Action,
        keys: impl Keys,
    ) -> Result<Pending<Vec<bool>>, EngineError> {
        let batch = self.batch(call.into(), Op::Write(action), keys);
        let (answer, _) = Box::pin(batch).await?;
        Ok(answer)
    }

    /// Answers a batch at once or, if it is heavy, on a worker. A light batch clones no shared `Arc`,
    /// because cores would contend for its count.
    async fn batch<K: Keys>(
        &self,
        call: Call<'_>,
        op: Op,
        keys: K,
    ) -> Result<(Pending<Vec<bool>>, K), EngineError> {
        let data = &self.data;
        let weight = data.limits.check_batch(&keys)?;
        data.limits.check_request_id(call.request_id)?;
        if weight.is_light() {
            let is_too_heavy =
                |filter: &Filter| filter.has_profile() && !weight.is_light_with_profile();
            match data
                .batch(call, op, &keys, Threads::Core, is_too_heavy)
                .await
            {
                Err(EngineError::FilterBusy) => {}
                answer => return Ok((answer?, keys)),
            }
        }
        self.on_worker(call, op, keys).await
    }

    /// Runs a batch on a worker, which looks its filter up when it begins. If the caller drops the
    /// call first, the batch does not run.
    pub(in crate::engine) async fn on_worker<K: Keys>(
        &self,
        call: Call<'_>,
        op: Op,
        keys: K,
    ) -> Result<(Pending<Vec<bool>>, K), EngineError> {
        // Fails for an unknown filter before the batch waits for a worker.
        self.data.find(call.filter, |_| ())?;
        let data = self.data.clone();
        let [filter, request_id] = [call.filter, call.request_id].map(str::to_owned);
        let Call {
            max_age, deadline, ..
        } = call;
        let work = move |keys: K| async move {
            let call = Call {
                filter: &filter,
                request_id: &request_id,
                max_age,
                deadline,
            };
            // Writes check the deadline again before they change anything. Queries check it only
            // here.
            call.check_deadline()?;
            let answer = data
                .batch(call, op, &keys, Threads::Workers, |_| false)
                .await?;
            Ok((answer, keys))
        };
        self.data.workers()?.run(keys, work).await
    }
}

impl DataPath {
    /// Answers a batch on these threads. Fails with [`EngineError::FilterBusy`] if it is too heavy
    /// for them.
    async fn batch<K: Keys>(
        &self,
        call: Call<'_>,
        op: Op,
        keys: &K,
        threads: Threads,
        is_too_heavy: impl Fn(&Filter) -> bool,
    ) -> Result<Pending<Vec<bool>>, EngineError> {
        let check_weight = |filter: &Filter| match is_too_heavy(filter) {
            true => Err(EngineError::FilterBusy),
            false => Ok(()),
        };
        let Op::Write(action) = op else {
            return self.ask(call, |filter| {
                check_weight(filter)?;
                Ok(filter.query_batch(keys, call.max_age))
            });
        };
        let count = keys.iter().len();
        let change = |filter: &Filter, context: WriteContext<'_>| {
            check_weight(filter)?;
            filter.write_batch(keys, action, context)
        };
        if let Some(answer) = self.try_write(call, action, count, threads, change)? {
            return Ok(answer);
        }
        let write =
            |admission: Admission<'_>| self.write(call, admission, change, action, keys.iter());
        self.admitted(call, action, count, threads, write).await
    }
}
