//! Calls for one key.
//!
//! A filter that is far larger than the caches makes such a call wait for memory longer than all
//! else that it does with the filter. So where no answer waits for a log, a call has two parts as
//! well: what it is about is [fetched](AtOnce::foresee), and when the caller has done something
//! else meanwhile, it is answered.

use std::sync::Arc;

use super::{
    Action, Answer, Call, Change, Durability, Engine, EngineError, GuardedFilter, Inner, Unsettled,
    rebuilding::Rooms,
};

/// An engine without a log, so that no answer waits for one.
#[derive(Debug, Clone)]
pub struct AtOnce(Arc<Inner>);

impl Engine {
    /// The engine for calls that wait for nothing, if it has no log.
    pub fn at_once(&self) -> Option<AtOnce> {
        (self.inner.durability == Durability::Snapshot).then(|| AtOnce(self.inner.clone()))
    }

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
        let answer = inner.begin_query(call, key)?;
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
        let (inner, call, key) = (&self.inner, call.into(), key.as_ref());
        inner.check(call, key)?;
        let add = |rooms: Rooms<'_>| inner.begin_add(call, key, rooms);
        let answer = inner.with_room(call.filter, Some(1), add).await?;
        answer.settle().await
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
        let (inner, call, key) = (&self.inner, call.into(), key.as_ref());
        inner.check(call, key)?;
        let add = |rooms: Rooms<'_>| inner.begin_query_and_add(call, key, rooms);
        let answer = inner.with_room(call.filter, Some(1), add).await?;
        answer.settle().await
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
        let (inner, call, key) = (&self.inner, call.into(), key.as_ref());
        inner.check(call, key)?;
        let remove = |rooms: Rooms<'_>| inner.begin_remove(call, key, rooms);
        let answer = inner.with_room(call.filter, Some(1), remove).await?;
        answer.settle().await
    }
}

impl AtOnce {
    /// Checks a call for a key, and has the processor fetch what is needed for its answer.
    /// Changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Engine::query_and_add`], if the call would be refused now.
    pub fn foresee(&self, call: Call<'_>, key: &[u8]) -> Result<(), EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        inner.find(call.filter, |filter| filter.foresee(key))
    }

    /// [`Engine::query`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query(&self, call: Call<'_>, key: &[u8]) -> Result<bool, EngineError> {
        Ok(self.0.begin_query(call, key)?.value)
    }

    /// [`Engine::add`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add(&self, call: Call<'_>, key: &[u8]) -> Result<(), EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        inner.begin_add(call, key, Rooms::default())?;
        Ok(())
    }

    /// [`Engine::query_and_add`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query_and_add(&self, call: Call<'_>, key: &[u8]) -> Result<bool, EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        Ok(inner
            .begin_query_and_add(call, key, Rooms::default())?
            .value)
    }

    /// [`Engine::remove`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn remove(&self, call: Call<'_>, key: &[u8]) -> Result<bool, EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        Ok(inner.begin_remove(call, key, Rooms::default())?.value)
    }
}

impl Inner {
    /// Checks what a call for one key brings.
    fn check(&self, call: Call<'_>, key: &[u8]) -> Result<(), EngineError> {
        self.limits.check_key(key)?;
        self.limits.check_request_id(call.request_id)
    }

    /// [`Self::change`] with one key.
    fn change_key<T>(
        &self,
        call: Call<'_>,
        action: Action,
        rooms: Rooms<'_>,
        key: &[u8],
        change: impl FnOnce(&GuardedFilter, &[u8], Change<'_>) -> Result<Answer<T>, EngineError>,
    ) -> Result<Unsettled<T>, EngineError> {
        self.change(
            (call, action),
            rooms,
            |filter, own| change(filter, key, own),
            |heir, own| heir.follow_key(key, action, own),
        )
    }

    fn begin_query(&self, call: Call<'_>, key: &[u8]) -> Result<Unsettled<bool>, EngineError> {
        self.limits.check_key(key)?;
        self.ask(call, |filter| filter.query(key, call.max_age))
    }

    /// Of a call that has been [checked](Self::check).
    fn begin_add(
        &self,
        call: Call<'_>,
        key: &[u8],
        rooms: Rooms<'_>,
    ) -> Result<Unsettled<()>, EngineError> {
        self.change_key(call, Action::Add, rooms, key, GuardedFilter::add)
    }

    /// Of a call that has been [checked](Self::check).
    fn begin_query_and_add(
        &self,
        call: Call<'_>,
        key: &[u8],
        rooms: Rooms<'_>,
    ) -> Result<Unsettled<bool>, EngineError> {
        self.change_key(
            call,
            Action::QueryAndAdd,
            rooms,
            key,
            GuardedFilter::query_and_add,
        )
    }

    /// Of a call that has been [checked](Self::check).
    fn begin_remove(
        &self,
        call: Call<'_>,
        key: &[u8],
        rooms: Rooms<'_>,
    ) -> Result<Unsettled<bool>, EngineError> {
        self.change_key(call, Action::Remove, rooms, key, GuardedFilter::remove)
    }
}
