//! Calls for many keys.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{
    Action, Answer, Call, Change, Engine, EngineError, GuardedFilter, Inner, Keys, Unsettled,
    rebuilding::Rooms,
};

/// What the keys of a batch are for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Ask,
    Change,
}

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
        let ask = |inner: &Inner, call: Call<'_>, keys: &_, _: Rooms<'_>| {
            inner.ask(call, |filter| filter.query_batch(keys, call.max_age))
        };
        let (answer, keys) = self.batch(call, keys, Purpose::Ask, ask).await?;
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
        let change = |inner: &Inner, call: Call<'_>, keys: &_, rooms: Rooms<'_>| {
            inner.change_batch(call, Action::Add, rooms, keys, GuardedFilter::add_batch)
        };
        let (answer, _) = self
            .batch(call.into(), keys, Purpose::Change, change)
            .await?;
        answer.settle().await
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
        let remove = |inner: &Inner, call: Call<'_>, keys: &_, rooms: Rooms<'_>| {
            inner.change_batch(
                call,
                Action::Remove,
                rooms,
                keys,
                GuardedFilter::remove_batch,
            )
        };
        let (answer, _) = self
            .batch(call.into(), keys, Purpose::Change, remove)
            .await?;
        answer.settle().await
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
        let change = |inner: &Inner, call: Call<'_>, keys: &_, rooms: Rooms<'_>| {
            let change = GuardedFilter::query_and_add_batch;
            inner.change_batch(call, Action::QueryAndAdd, rooms, keys, change)
        };
        let (answer, _) = self
            .batch(call.into(), keys, Purpose::Change, change)
            .await?;
        Ok(answer)
    }

    /// Answers a batch at once or, if it is heavy, on a worker. A light one takes a share in
    /// nothing that other cores count the owners of, or they would contend for the count.
    async fn batch<K: Keys, T: Send + 'static>(
        &self,
        call: Call<'_>,
        keys: K,
        purpose: Purpose,
        answer: fn(&Inner, Call<'_>, &K, Rooms<'_>) -> Result<T, EngineError>,
    ) -> Result<(T, K), EngineError> {
        let inner = &self.inner;
        let weight = inner.limits.check_batch(&keys)?;
        inner.limits.check_request_id(call.request_id)?;
        let may_add = match purpose {
            Purpose::Ask => None,
            Purpose::Change => Some(weight.keys),
        };
        let has_profile = || inner.find(call.filter, GuardedFilter::has_profile);
        if weight.is_light() && (weight.is_light_with_profile() || !has_profile()?) {
            let answer = |rooms: Rooms<'_>| answer(inner, call, &keys, rooms);
            return Ok((inner.with_room(call.filter, may_add, answer).await?, keys));
        }
        // Before it waits for a worker.
        inner.find(call.filter, |_| ())?;
        let (inner, runtime) = (inner.clone(), Handle::current());
        let [filter, request_id] = [call.filter, call.request_id].map(str::to_owned);
        let Call {
            max_age, deadline, ..
        } = call;
        // Gone with this future, which is dropped when the caller cancels the call.
        let caller = Arc::new(());
        let waiting = Arc::downgrade(&caller);
        let work = move || {
            let call = Call {
                filter: &filter,
                request_id: &request_id,
                max_age,
                deadline,
            };
            // Asked again before anything is changed; queries are dropped only here.
            call.check_deadline()?;
            if waiting.strong_count() == 0 {
                return Err(EngineError::Cancelled);
            }
            let answer = |rooms: Rooms<'_>| answer(&inner, call, &keys, rooms);
            let answer = runtime.block_on(inner.with_room(&filter, may_add, answer))?;
            Ok((answer, keys))
        };
        let done = self.inner.workers.run(work).await;
        drop(caller);
        done
    }
}

impl Inner {
    /// [`Self::change`] with a batch of keys.
    fn change_batch<K: Keys, T>(
        &self,
        call: Call<'_>,
        action: Action,
        rooms: Rooms<'_>,
        keys: &K,
        change: fn(&GuardedFilter, &K, Change<'_>) -> Result<Answer<T>, EngineError>,
    ) -> Result<Unsettled<T>, EngineError> {
        self.change(
            (call, action),
            rooms,
            |filter, own| change(filter, keys, own),
            |heir, own| heir.follow_batch(keys, action, own),
        )
    }
}
