//! The signals that ask the server to stop, and those that must not end it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGQUIT stop the server. SIGHUP, SIGUSR1 and SIGUSR2, each of which would
/// end the process without a last snapshot, are logged and ignored: a terminal that is closed and
/// `systemctl reload` send SIGHUP, rotation of logs one of the others. SIGXFSZ is ignored as well:
/// a file that may not become larger is then an error of the call that writes it.
///
/// One value for the whole life of the process: a signal that comes while nothing waits for it is
/// kept.
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
    /// Begins to listen for them.
    ///
    /// # Errors
    ///
    /// What the system says.
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

    /// Waits for one that stops the server.
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
