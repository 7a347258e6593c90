//! Work that is to give way to calls: on a thread of its own, which gets less of a core than
//! those that serve them, where there is no core to spare.

use std::{io, thread};

use tokio::sync::oneshot;

use super::EngineError;

/// What the thread is nicer by: where all cores are taken, it gets a quarter of one. Not far
/// nicer, for while it copies a shard, calls wait for it.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Does work to its end, even if the caller goes away, and returns what it returns.
///
/// # Errors
///
/// What the work returns, or [`EngineError::Internal`] if it could not be done.
pub async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let (done, result) = oneshot::channel();
    let begun = spawn(name, move || {
        // An error says that nobody wants to know any more.
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
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    let begun = thread.spawn(move || {
        give_way();
        work();
    });
    begun.map(drop)
}

/// Makes this thread nicer. Elsewhere it would be the whole process.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "storing does not give way to calls");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
