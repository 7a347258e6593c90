//! The signals that ask the program to end: SIGINT, and SIGTERM where it exists.

use std::process;

use tokio::{signal, sync::oneshot};

/// The exit code of a program that a signal ended, as in shells.
pub(super) const EXIT_CODE: u8 = 130;

/// Returns a receiver that resolves at the first signal, so that the run can end cleanly. At the
/// second signal the process ends at once, because the run may wait for something that never comes.
pub(super) fn interrupted() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let mut signals = Signals::new();
        signals.next().await;
        // If the run is already over, there is nothing to end.
        let _ = sender.send(());
        signals.next().await;
        process::exit(EXIT_CODE.into());
    });
    receiver
}

/// The signals that ask a process to end. While this listens, they do not end it by themselves.
struct Signals {
    #[cfg(unix)]
    terminate: Option<signal::unix::Signal>,
}

impl Signals {
    fn new() -> Self {
        Self {
            // If the program cannot listen to it, the signal ends the process as by default.
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
