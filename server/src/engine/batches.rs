//! Calls for many keys.

use super::{
    Action, Call, Change, Engine, EngineError, GuardedFilter, Inner, Keys, Unsettled,
    admission::Admission, workers::Threads,
};

impl Engine {
    /// Whether each of the keys has been seen.
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
        let (answer, keys) = Box::pin(self.batch(call, None, keys)).await?;
        if let Err(error) = answer.settled().await {
            let keys = keys.iter().zip(&answer.value);
            let seen = keys.filter(|(_, seen)| **seen).map(|(key, _)| key);
            if !self.inner.is_certain(call.filter, answer.rests_on, seen) {
                return Err(error);
            }
        }
        Ok(answer.value)
    }

    /// Adds the keys: all of them or, if the engine is closed, none. Safe to repeat, with an id
    /// or without; in a filter that counts with an id alone.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub async fn add_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<(), EngineError> {
        let added = self.write_batch(call.into(), Action::Add, keys).await?;
        added.settle().await.map(|_| ())
    }

    /// Takes the keys out that are there, of a filter that counts. Tells of each whether it was
    /// taken out, or has been by a call of the same id.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub async fn remove_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<Vec<bool>, EngineError> {
        let removed = self.write_batch(call.into(), Action::Remove, keys).await?;
        removed.settle().await
    }

    /// Whether each of the keys had been seen before it was added; they are added as by
    /// [`Self::add_batch`]. If a call of the same id has added a key, that does not count.
    ///
    /// # Errors
    ///
    /// As [`Self::query_and_add`].
    pub async fn query_and_add_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<Vec<bool>, EngineError> {
        let answer = self.begin_query_and_add_batch(call, keys).await?;
        answer.settle().await
    }

    /// [`Self::query_and_add_batch`] for callers that go on with the next batch while the answer
    /// to this one waits for the log.
    ///
    /// # Errors
    ///
    /// As [`Self::query_and_add`].
    pub async fn begin_query_and_add_batch(
        &self,
        call: impl Into<Call<'_>>,
        keys: impl Keys,
    ) -> Result<Unsettled<Vec<bool>>, EngineError> {
        self.write_batch(call.into(), Action::QueryAndAdd, keys)
            .await
    }

    async fn write_batch<K: Keys>(
        &self,
        call: Call<'_>,
        action: Action,
        keys: K,
    ) -> Result<Unsettled<Vec<bool>>, EngineError> {
        let (answer, _) = Box::pin(self.batch(call, Some(action), keys)).await?;
        Ok(answer)
    }

    /// Answers a batch at once or, if it is heavy, on a worker: a query, or one that changes the
    /// filter. A light one takes a share in nothing that other cores count the owners of, or they
    /// would contend for the count.
    async fn batch<K: Keys>(
        &self,
        call: Call<'_>,
        action: Option<Action>,
        keys: K,
    ) -> Result<(Unsettled<Vec<bool>>, K), EngineError> {
        let inner = &self.inner;
        let weight = inner.limits.check_batch(&keys)?;
        inner.limits.check_request_id(call.request_id)?;
        let has_profile = || inner.find(call.filter, GuardedFilter::has_profile);
        if weight.is_light() && (weight.is_light_with_profile() || !has_profile()?) {
            match inner.batch(call, action, &keys, Threads::Core).await {
                Err(EngineError::FilterBusy) => {}
                answer => return Ok((answer?, keys)),
            }
        }
        self.on_worker(call, action, keys).await
    }

    /// Runs a batch on a worker. If the caller drops the call first, the batch does not run.
    pub(super) async fn on_worker<K: Keys>(
        &self,
        call: Call<'_>,
        action: Option<Action>,
        keys: K,
    ) -> Result<(Unsettled<Vec<bool>>, K), EngineError> {
        // Before it waits for a worker.
        self.inner.find(call.filter, |_| ())?;
        let inner = self.inner.clone();
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
            // Asked again before anything is changed; queries are dropped only here.
            call.check_deadline()?;
            let answer = inner.batch(call, action, &keys, Threads::Workers).await?;
            Ok((answer, keys))
        };
        self.inner.workers()?.run(keys, work).await
    }
}

impl Inner {
    async fn batch<K: Keys>(
        &self,
        call: Call<'_>,
        action: Option<Action>,
        keys: &K,
        threads: Threads,
    ) -> Result<Unsettled<Vec<bool>>, EngineError> {
        let Some(action) = action else {
            return self.ask(call, |filter| filter.query_batch(keys, call.max_age));
        };
        let count = keys.iter().len();
        let change =
            |filter: &GuardedFilter, change: Change<'_>| filter.write_batch(keys, action, change);
        let follow =
            |heir: &GuardedFilter, change: Change<'_>| heir.follow_batch(keys, action, change);
        if let Some(answer) = self.try_write(call, action, count, threads, change, follow)? {
            return Ok(answer);
        }
        let write = |admission: Admission<'_>| self.write(call, admission, change, follow);
        self.admitted(call, action, count, threads, write).await
    }
}
