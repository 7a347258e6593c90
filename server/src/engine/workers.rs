//! Where the work of a batch is done: at once, or, if it would keep the thread that serves
//! other calls for too long, on a thread beside it.

use std::{num::NonZero, sync::Arc, thread};

use tokio::sync::Semaphore;

use super::EngineError;

/// The most keys, and bytes of keys, that a batch may have to be answered at once. Either
/// takes some tenths of a millisecond: many times what it costs to change the thread.
const LIGHT_KEYS: usize = 2048;
const LIGHT_BYTES: usize = 256 << 10;

/// Threads for heavy batches: as many as there are processors, for more would only take turns.
#[derive(Debug)]
pub struct Workers {
    free: Arc<Semaphore>,
}

/// How much work a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// The number of keys.
    pub keys: usize,
    /// The sum of their lengths.
    pub bytes: usize,
}

impl Weight {
    fn is_light(self) -> bool {
        self.keys <= LIGHT_KEYS && self.bytes <= LIGHT_BYTES
    }
}

impl Workers {
    /// Workers for this machine.
    pub fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            free: Arc::new(Semaphore::new(threads)),
        }
    }

    /// Does work, and returns what it returns. Work that is heavy waits for its turn, and once
    /// begun is done to its end even if the caller goes away.
    ///
    /// # Errors
    ///
    /// What the work returns, or [`EngineError::Internal`] if it could not be done.
    pub async fn run<T: Send + 'static>(
        &self,
        weight: Weight,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        if weight.is_light() {
            return work();
        }
        let ended = |error| EngineError::internal("a worker of the engine ended early", error);
        let turn = self.free.clone().acquire_owned().await;
        let turn = turn.map_err(|closed| ended(closed.to_string()))?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        })
        .await
        .map_err(|error| ended(error.to_string()))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn heavy_work_leaves_the_thread_and_light_work_stays() {
        let workers = Workers::new();
        let here = thread::current().id();
        let limits = Weight {
            keys: LIGHT_KEYS,
            bytes: LIGHT_BYTES,
        };
        let (keys, bytes) = (LIGHT_KEYS + 1, LIGHT_BYTES + 1);
        for (weight, stays) in [
            (limits, true),
            (Weight { keys, ..limits }, false),
            (Weight { bytes, ..limits }, false),
        ] {
            let there = workers.run(weight, || Ok(thread::current().id())).await;
            assert_eq!(there.unwrap() == here, stays, "{weight:?}");
        }
    }
}
