//! The wish of a signal to end: SIGINT, and SIGTERM where there is one.

use std::process;

use tokio::{signal, sync::oneshot};

/// The exit code of a program that a signal ended, as shells have it.
pub(super) const EXIT_CODE: u8 = 130;

/// Resolves at the first signal to end, so that the run can be ended cleanly. At the
/// second the process ends at once: what the run waits for may never come.
pub(super) fn interrupted() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let mut signals = Signals::new();
        signals.next().await;
        // If the run is over already there is nothing to end.
        let _ = sender.send(());
        signals.next().await;
        process::exit(EXIT_CODE.into());
    });
    receiver
}

/// The signals that ask a process to end. While this listens, they do not do it by
/// themselves.
struct Signals {
    #[cfg(unix)]
    terminate: Option<signal::unix::Signal>,
}

impl Signals {
    fn new() -> Self {
        Self {
            // If it can't be listened to, it ends the process as it always did.
            #[cfg(unix)]
            terminate: signal::unix::signal(signal::unix::SignalKind::terminate()).ok(),
        }
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        match &mut self.terminate {
            Some(terminate) => tokio::select! {
                _ = signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            },
            None => drop(signal::ctrl_c().await),
        }
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        drop(signal::ctrl_c().await);
    }
}
