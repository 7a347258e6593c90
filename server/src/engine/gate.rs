//! The gate that calls pass which add keys.
//!
//! It is held open by each of them until it has added all of its keys. So it can be closed for
//! good, with nothing half done behind it, and for a moment, to see the filters between calls.

use std::sync::PoisonError;

use crate::{
    engine::EngineError,
    sync::{ShardedLock, ShardedLockReadGuard},
};

/// A gate. Sharded, so that calls do not contend for it.
#[derive(Debug)]
pub struct Gate {
    is_closed: ShardedLock<bool>,
}

/// Keeps a gate open.
#[derive(Debug)]
pub struct Pass<'a> {
    _open: ShardedLockReadGuard<'a, bool>,
}

impl Gate {
    /// An open gate.
    pub fn new() -> Self {
        Self {
            is_closed: ShardedLock::new(false),
        }
    }

    /// Keeps the gate open for as long as a call adds keys.
    ///
    /// # Errors
    ///
    /// [`EngineError::Stopping`] if it has been closed.
    #[inline]
    pub fn pass(&self) -> Result<Pass<'_>, EngineError> {
        let closed = self
            .is_closed
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if *closed {
            Err(EngineError::Stopping)
        } else {
            Ok(Pass { _open: closed })
        }
    }

    /// Closes the gate for good, when the calls that are adding keys have added them.
    pub fn close(&self) {
        *self
            .is_closed
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Looks at something while no call is adding keys. Waits for those that are, which is no
    /// more than one batch of each thread, and has others wait meanwhile.
    pub fn between_calls<T>(&self, look: impl FnOnce() -> T) -> T {
        let _nobody = self
            .is_closed
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        look()
    }
}
