//! What goes wrong with files: which one, what was expected, what was found, what to do.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why durable state could not be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The system refused an operation on a file.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process works in the data directory.
    #[error(
        "the data directory {} is in use by another seenset-server{}: stop that one, or \
         choose another --data-dir",
        path.display(),
        owner.as_ref().map_or_else(String::new, |id| format!(" (process {id})"))
    )]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// The id of the process that holds the lock, if it can be read.
        owner: Option<String>,
    },
    /// A file holds what no seenset wrote.
    #[error(
        "{} is damaged: {what}: expected {expected}, found {found}; put back a good copy of \
         the file, or move all files of its filter out of the data directory to start without it \
         and its keys",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: String,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file was written by a newer seenset.
    #[error(
        "{} has format {found}, and this seenset-server reads format {expected}: start a \
         newer one",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format that this program knows.
        expected: u32,
        /// The format of the file.
        found: u32,
    },
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source,
        }
    }

    /// Whether the disk (or the user's share of it) is full, as opposed to failing.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}

/// What to do, where the kind of the error tells.
fn hint(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => {
            "; make it writable for the user that runs the server, or choose another --data-dir"
        }
        io::ErrorKind::AlreadyExists => {
            "; there is a file in its place: move it, or choose another --data-dir"
        }
        NotADirectory | NotFound => "; choose another --data-dir",
        StorageFull | QuotaExceeded => "; make room on the disk",
        _ => "",
    }
}
