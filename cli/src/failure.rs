//! The end of a command that fails: a message and an exit code.

use std::{
    io::{self, ErrorKind},
    path::Path,
    process::ExitCode,
};

use super::{file_name::is_stdin, interrupt, notes::note};
use seenset_client::Error;

/// The outcome of a command that did not succeed.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The arguments make no sense: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
    /// The command failed, and the message is already printed: exit code 1.
    Reported,
    /// A signal ended it early: exit code 130.
    Interrupted(String),
    /// The reader has closed the output pipe, as in `seenset filter list | head`. The user wanted
    /// that, so there is no message, and exit code 0.
    BrokenPipe,
    /// The reader has closed the output pipe, and lines that were marked as seen cannot be written.
    /// There is no message. The exit code is that of a program that the signal of a broken pipe
    /// ended: 141.
    Unread,
}

impl Failure {
    /// Returns the failure for a file that cannot be opened.
    pub(super) fn cannot_open(file: &Path, error: &io::Error) -> Self {
        let name = match is_stdin(file) {
            true => Path::new("stdin"),
            false => file,
        };
        Self::Failed(format!("cannot open {}: {error}", name.display()))
    }

    /// Prints the message and returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        let (code, message) = match self {
            Self::Usage(message) => (2, message),
            Self::Failed(message) => (1, message),
            Self::Interrupted(message) => (interrupt::EXIT_CODE, message),
            Self::Reported => return ExitCode::from(1),
            Self::BrokenPipe => return ExitCode::SUCCESS,
            Self::Unread => return ExitCode::from(141),
        };
        note(&format!("seenset: {message}"));
        ExitCode::from(code)
    }

    /// Adds to the message what was done before the failure.
    pub(super) fn after(self, done: &str) -> Self {
        let separator = match self {
            Self::Interrupted(_) => ' ',
            _ => '\n',
        };
        self.map(|message| format!("{message}{separator}{done}"))
    }

    /// Changes the message.
    pub(super) fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Failed(message) => Self::Failed(change(message)),
            Self::Interrupted(message) => Self::Interrupted(change(message)),
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Endpoint { .. } => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Failed(format!("cannot write the output: {error}")),
        }
    }
}
