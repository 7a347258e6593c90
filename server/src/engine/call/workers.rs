//! Workers: threads that run heavy batches, which would occupy the threads that serve calls for too
//! long.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Runtime},
    task::AbortHandle,
};

use crate::{
    engine::{background::give_way, error::EngineError},
    sync::cores,
};
#[cfg(test)]
use std::sync::{Barrier, mpsc};

/// The most keys, and the most bytes of keys, of a batch that is answered at once. Either takes
/// some tenths of a millisecond: many times the cost of a change of thread.
const LIGHT_KEYS: usize = 2048;
const LIGHT_BYTES: usize = 256 << 10;

/// The work of a key that is brought into a canonical form first, as a multiple of the work of
/// another key.
const PROFILE_WORK: usize = 8;

/// The nice value of the threads, so that threads that serve connections run first.
const NICE: i32 = 10;

/// The threads that a call runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The threads that serve connections, one for each core. A call must not block there.
    Core,
    /// The workers. A call may block there.
    Workers,
}

/// A runtime for heavy batches, with one thread for each core. Waits of a batch are asynchronous,
/// so a batch that waits occupies no thread.
#[derive(Debug)]
pub struct Workers {
    /// `None` when it has been shut down.
    runtime: Option<Runtime>,
}

/// The caller of a task. Dropping it before the task runs drops the input at once; the runtime
/// would keep it until the task is scheduled.
struct Caller<I> {
    input: Arc<Mutex<Option<I>>>,
    work: AbortHandle,
}

impl<I> Drop for Caller<I> {
    fn drop(&mut self) {
        self.work.abort();
        drop(self.input.lock().take());
    }
}

/// The amount of work of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// The number of keys.
    pub keys: usize,
    /// The sum of their lengths, or somewhat more.
    pub bytes: usize,
}

impl Weight {
    /// Returns whether the work is little enough to be done at once.
    pub fn is_light(self) -> bool {
        self.keys <= LIGHT_KEYS && self.bytes <= LIGHT_BYTES
    }

    /// Returns whether the work is little enough if the filter has a key profile.
    pub fn is_light_with_profile(self) -> bool {
        let [keys, bytes] = [self.keys, self.bytes].map(|work| PROFILE_WORK * work);
        Self { keys, bytes }.is_light()
    }
}

impl Workers {
    /// Starts the workers for this machine.
    ///
    /// # Errors
    ///
    /// The kernel's error if it gives no threads.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores())
            .thread_name("worker")
            .on_thread_start(|| give_way(NICE))
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Runs `work` on the input as a task, and returns its result. Dropping the future aborts the
    /// task at its next await.
    ///
    /// # Errors
    ///
    /// The error of the work, or [`EngineError::Internal`] if the work could not be run.
    pub async fn run<I, T, F>(
        &self,
        input: I,
        work: impl FnOnce(I) -> F + Send + 'static,
    ) -> Result<T, EngineError>
    where
        I: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let ended = |error| EngineError::internal("a worker of the engine ended early", error);
        let Some(runtime) = &self.runtime else {
            return Err(EngineError::Stopping);
        };
        let input = Arc::new(Mutex::new(Some(input)));
        let task = {
            let input = input.clone();
            runtime.spawn(async move {
                let taken = input.lock().take();
                drop(input);
                work(taken.ok_or(EngineError::Cancelled)?).await
            })
        };
        let _caller = Caller {
            input,
            work: task.abort_handle(),
        };
        task.await.map_err(|error| ended(error.to_string()))?
    }

    /// Keeps all workers busy until the returned sender is dropped.
    #[cfg(test)]
    pub async fn take_all(&self) -> mpsc::Sender<()> {
        let all = Arc::new(Barrier::new(cores() + 1));
        let (free, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..cores() {
            let (all, wait) = (all.clone(), wait.clone());
            let work = async move {
                all.wait();
                // Waits until the channel is closed.
                let _ = wait.lock().recv();
            };
            self.runtime.as_ref().unwrap().spawn(work);
        }
        all.wait();
        free
    }
}

impl Drop for Workers {
    /// Does not wait for the threads: that would panic on a thread of a runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures_util::{FutureExt, future::join_all};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_leaves_the_thread() {
        let workers = Workers::new().unwrap();
        let id = |()| async { Ok(thread::current().id()) };
        let worker = workers.run((), id).await;
        assert_ne!(worker.unwrap(), thread::current().id());
    }

    /// Even if the work would have waited long for its turn.
    #[tokio::test]
    async fn what_work_is_about_goes_with_its_caller() {
        let workers = Workers::new().unwrap();
        let all_busy = workers.take_all().await;
        let input = Arc::new(());
        let work = |_: Arc<()>| async { Ok(()) };
        let mut waiting = Box::pin(workers.run(input.clone(), work));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(Arc::strong_count(&input), 2);
        drop(waiting);
        assert_eq!(Arc::strong_count(&input), 1);
        drop(all_busy);
    }

    /// Even for many tasks.
    #[tokio::test]
    async fn what_work_waits_for_it_waits_for_without_a_worker() {
        let workers = Workers::new().unwrap();
        let (told, waiting): (Vec<_>, Vec<_>) = (0..100).map(|_| oneshot::channel()).unzip();
        let waiting = waiting.into_iter().map(|told: oneshot::Receiver<()>| {
            workers.run(told, |told| async {
                told.await.map_err(|_| EngineError::Cancelled)
            })
        });
        let mut waiting = Box::pin(join_all(waiting));
        assert!(waiting.as_mut().now_or_never().is_none());
        workers.run((), |()| async { Ok(()) }).await.unwrap();
        drop(told);
        let ended = waiting.await;
        assert!(ended.iter().all(Result::is_err) && ended.len() == 100);
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
