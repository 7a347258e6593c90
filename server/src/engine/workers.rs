//! Where the work of a heavy batch is done: on a thread beside the one that serves calls, which
//! it would keep for too long.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::EngineError;
use crate::sync::cores;

/// The most keys, and bytes of keys, that a batch may have to be answered at once. Either
/// takes some tenths of a millisecond: many times what it costs to change the thread.
const LIGHT_KEYS: usize = 2048;
const LIGHT_BYTES: usize = 256 << 10;

/// How many times as much work a key is that is brought into a canonical form before.
const PROFILE_WORK: usize = 8;

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
    /// The sum of their lengths, or somewhat more.
    pub bytes: usize,
}

impl Weight {
    /// Whether the work is little enough to be done at once.
    pub fn is_light(self) -> bool {
        self.keys <= LIGHT_KEYS && self.bytes <= LIGHT_BYTES
    }

    /// The same if the filter has a key profile.
    pub fn is_light_with_profile(self) -> bool {
        let [keys, bytes] = [self.keys, self.bytes].map(|work| PROFILE_WORK * work);
        Self { keys, bytes }.is_light()
    }
}

impl Workers {
    /// Workers for this machine.
    pub fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(cores())),
        }
    }

    /// Does work when its turn comes, and returns what it returns. Once begun it is done to its
    /// end, even if the caller goes away.
    ///
    /// # Errors
    ///
    /// What the work returns, or [`EngineError::Internal`] if it could not be done.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
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

    /// Keeps all workers from taking work.
    #[cfg(test)]
    pub async fn take_all(&self) -> impl Drop {
        let all = self.free.clone().acquire_many_owned(cores() as u32);
        all.await.unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn work_leaves_the_thread() {
        let worker = Workers::new().run(|| Ok(thread::current().id())).await;
        assert_ne!(worker.unwrap(), thread::current().id());
    }

    #[test]
    fn many_keys_are_heavy_and_so_are_long_ones() {
        let limits = Weight {
            keys: LIGHT_KEYS,
            bytes: LIGHT_BYTES,
        };
        let (keys, bytes) = (LIGHT_KEYS + 1, LIGHT_BYTES + 1);
        assert!(limits.is_light());
        assert!(!Weight { keys, ..limits }.is_light());
        assert!(!Weight { bytes, ..limits }.is_light());
        assert!(!limits.is_light_with_profile());
        let [keys, bytes] = [LIGHT_KEYS, LIGHT_BYTES].map(|most| most / PROFILE_WORK);
        assert!(Weight { keys, bytes }.is_light_with_profile());
    }
}
