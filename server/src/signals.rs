//! The signals that ask the server to stop, and those that must not end it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the server handles.
///
/// SIGTERM, SIGINT and SIGQUIT stop the server. SIGHUP, SIGUSR1 and SIGUSR2 are logged and ignored,
/// because each would end the process without a last snapshot. A terminal that is closed and
/// `systemctl reload` send SIGHUP; log rotation sends one of the others. SIGXFSZ is ignored too: a
/// file that would exceed its size limit is then an error of the call that writes it.
///
/// One value lives as long as the process: it keeps a signal that arrives while nothing waits.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user: [Signal; 2],
    _file_size: Signal,
}

impl StopSignals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn new() -> io::Result<Self> {
        let file_size = rustix::process::Signal::XFSZ.as_raw();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::user_defined2())?,
            ],
            _file_size: signal(SignalKind::from_raw(file_size))?,
        })
    }

    /// Waits for a signal that stops the server.
    pub async fn next(&mut self) {
        let [user1, user2] = &mut self.user;
        loop {
            let ignored = tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.quit.recv() => return,
                _ = self.hangup.recv() => "SIGHUP",
                _ = user1.recv() => "SIGUSR1",
                _ = user2.recv() => "SIGUSR2",
            };
            tracing::warn!(
                signal = ignored,
                "a signal is ignored: the configuration is read at the start alone; SIGTERM stops \
                 the server"
            );
        }
    }
}
