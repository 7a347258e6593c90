//! Calls for one key whose answers wait for nothing.
//!
//! A filter that is far larger than the caches makes a call for one key wait for memory longer
//! than all else that the call does with the filter. So such a call has two parts: what it is
//! about is [fetched](AtOnce::foresee), and when the caller has done something else meanwhile, it
//! is answered.

use std::sync::Arc;

use super::{Call, Durability, Engine, EngineError, Inner};

/// An engine without a log, so that no answer waits for one.
#[derive(Debug, Clone)]
pub struct AtOnce(Arc<Inner>);

impl Engine {
    /// The engine for calls that wait for nothing, if it has no log.
    pub fn at_once(&self) -> Option<AtOnce> {
        (self.inner.durability == Durability::Snapshot).then(|| AtOnce(self.inner.clone()))
    }
}

impl AtOnce {
    /// Checks a call for a key, and has the processor fetch what is needed for its answer.
    /// Changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Engine::query_and_add`], if the call would be refused now.
    pub fn foresee(&self, call: Call<'_>, key: &str) -> Result<(), EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        inner.find(call.filter, |filter| filter.foresee(key.as_bytes()))
    }

    /// [`Engine::query`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query(&self, filter: &str, key: &str) -> Result<bool, EngineError> {
        Ok(self.0.begin_query(filter, key)?.value)
    }

    /// [`Engine::add`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add(&self, call: Call<'_>, key: &str) -> Result<(), EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        inner.begin_add(call, key, None)?;
        Ok(())
    }

    /// [`Engine::query_and_add`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query_and_add(&self, call: Call<'_>, key: &str) -> Result<bool, EngineError> {
        let Self(inner) = self;
        inner.check(call, key)?;
        Ok(inner.begin_query_and_add(call, key, None)?.value)
    }
}
