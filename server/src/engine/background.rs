//! Background work: runs on threads of its own. Where all cores are busy, these threads get less of
//! a core than the threads that serve calls.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, OnceLock, mpsc},
    thread,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::error::EngineError;
use crate::sync::cores;

/// The increment of the thread's nice value. Where all cores are busy, the thread gets a quarter of
/// one. It is not larger, because calls wait while the thread copies a shard.
const NICE: i32 = 5;

/// A queue of work. At most one piece of work per core runs at a time.
#[derive(Debug)]
pub struct Queue {
    /// The sender of work to the threads, which start with the first work.
    work: OnceLock<mpsc::Sender<Work>>,
}

type Work = Box<dyn FnOnce() + Send>;

impl Queue {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            work: OnceLock::new(),
        }
    }

    /// Runs work in its turn, and returns its result. Does not run work if its caller has gone away
    /// before its turn.
    ///
    /// # Errors
    ///
    /// The error of the work, or [`EngineError::Internal`] if the work could not be run.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move || {
            if !done.is_closed() {
                // An error means that the caller has gone away.
                let _ = done.send(work());
            }
        });
        let sent = self.threads()?.send(work);
        sent.map_err(|_| EngineError::internal("a queue has no threads", "they have ended"))?;
        result
            .await
            .map_err(|error| EngineError::internal("a thread of the engine ended early", error))?
    }

    fn threads(&self) -> Result<&mpsc::Sender<Work>, EngineError> {
        if let Some(threads) = self.work.get() {
            return Ok(threads);
        }
        let (sender, receiver) = mpsc::channel::<Work>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..cores() {
            let receiver = receiver.clone();
            let begun = spawn("queue", move || {
                loop {
                    // The lock is not held while the work runs.
                    let work = receiver.lock().recv();
                    let Ok(work) = work else { break };
                    // After a panic the caller gets an error: its channel is closed.
                    let _ = panic::catch_unwind(AssertUnwindSafe(work));
                }
            });
            begun.map_err(|error| EngineError::internal("the system gives no thread", error))?;
        }
        // If two threads start at once, the threads of the second end: its sender is dropped.
        Ok(self.work.get_or_init(|| sender))
    }
}

/// Runs work to its end, even if the caller goes away, and returns its result.
///
/// # Errors
///
/// The error of the work, or [`EngineError::Internal`] if the work could not be run.
pub async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let (done, result) = oneshot::channel();
    let begun = spawn(name, move || {
        // An error means that the caller has gone away.
        let _ = done.send(work());
    });
    begun.map_err(|error| EngineError::internal("the system gives no thread", error))?;
    result
        .await
        .map_err(|error| EngineError::internal("a thread of the engine ended early", error))?
}

/// Starts work that nobody waits for.
///
/// # Errors
///
/// The kernel's error if it gives no thread.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    let begun = thread.spawn(move || {
        give_way(NICE);
        work();
    });
    begun.map(drop)
}

/// Increases the nice value of this thread. Linux only: elsewhere it would be that of the whole
/// process.
pub fn give_way(nicer: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(nicer) {
        tracing::debug!(%error, "a thread does not give way to calls");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = nicer;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_does_little_at_a_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let queue = Queue::new();
        let (now, most, all) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
        );
        let work = || {
            let (now, most, all) = (now.clone(), most.clone(), all.clone());
            queue.run(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(std::time::Duration::from_millis(2));
                all.fetch_add(1, Ordering::SeqCst);
                Ok(now.fetch_sub(1, Ordering::SeqCst))
            })
        };
        let count = 10 * cores();
        let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(work())).collect();
        for work in &mut waiting {
            assert!(futures_util::FutureExt::now_or_never(work).is_none());
        }
        // Work whose caller goes away before its turn is not done.
        let given_up = waiting.split_off(count - cores());
        drop(given_up);
        let done = futures_util::future::join_all(waiting).await;
        assert!(done.iter().all(Result::is_ok));
        assert_eq!(most.load(Ordering::SeqCst), cores());
        let panicked = queue.run(|| -> Result<(), _> { panic!("as it should") });
        assert!(matches!(panicked.await, Err(EngineError::Internal { .. })));
        queue.run(|| Ok(())).await.unwrap();
        assert_eq!(all.load(Ordering::SeqCst), count - cores());
    }

    #[tokio::test]
    async fn work_gives_way_and_is_done_to_its_end() {
        let nice = || rustix::process::nice(0).unwrap();
        let before = nice();
        let there = run("test", move || Ok(nice())).await.unwrap();
        let expected = if cfg!(target_os = "linux") { 5 } else { 0 };
        assert_eq!(there - before, expected);
        assert_eq!(nice(), before);

        let (sent, received) = std::sync::mpsc::channel();
        let abandoned = run("test", move || {
            thread::sleep(std::time::Duration::from_millis(20));
            sent.send(()).unwrap();
            Ok(())
        });
        drop(futures_util::FutureExt::now_or_never(abandoned));
        received.recv().unwrap();

        let panicked = run("test", || -> Result<(), _> { panic!("as it should") });
        assert!(matches!(panicked.await, Err(EngineError::Internal { .. })));
    }
}
