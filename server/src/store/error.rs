//! Errors about files: which file, what was expected, what was found, what to do.

use std::{
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{disk::FailedCall, format};

/// A callback for damage that is found. If it returns an error, the reading ends with that error.
/// If it returns `Ok`, the reading continues after the damage. `&mut Err` reads all or nothing.
pub type OnDamage<'a> = &'a mut dyn FnMut(StoreError) -> Result<(), StoreError>;

/// The reason why durable state could not be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The kernel refused an operation on a file.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// The action that was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// The last step of a change failed, and whether the change is done is not known.
    #[error("{0}")]
    InDoubt(Box<StoreError>),
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
    /// A file holds bytes that no seenset wrote.
    #[error(
        "{}; put back a good copy of the file, or see what else is wrong: seenset-server verify {}",
        damage(path, what, expected, found),
        path.parent().unwrap_or(path).display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: String,
        /// The value that should be there.
        expected: String,
        /// The value that is there.
        found: String,
    },
    /// A file was written by a newer seenset.
    #[error(
        "{} has format {found}, and this seenset-server reads format {}: start a newer \
         seenset-server",
        path.display(),
        format::shown(known)
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The formats that this program reads.
        known: RangeInclusive<u32>,
        /// The format of the file.
        found: u32,
    },
    /// A file was written by a seenset that is too old.
    #[error(
        "{} has format {found}, and this seenset-server reads format {}: start an older \
         seenset-server that reads both, and store all filters with it",
        path.display(),
        format::shown(known)
    )]
    OlderFormat {
        /// The file.
        path: PathBuf,
        /// The formats that this program reads.
        known: RangeInclusive<u32>,
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

    /// Returns the message without the advice on what to do.
    pub fn without_advice(&self) -> String {
        match self {
            Self::Damaged {
                path,
                what,
                expected,
                found,
            } => damage(path, what, expected, found),
            other => other.to_string(),
        }
    }

    /// Passes the error to `on_damage` if it says that a file cannot be read or is damaged. Returns
    /// any other error. A file of another format is not damaged.
    pub(super) fn handle(self, on_damage: OnDamage<'_>) -> Result<(), Self> {
        match self {
            Self::Damaged { .. } | Self::Io { .. } => on_damage(self),
            Self::NewerFormat { .. }
            | Self::OlderFormat { .. }
            | Self::Locked { .. }
            | Self::InDoubt(_) => Err(self),
        }
    }

    /// Returns whether the disk (or the user's share of it) is full, as opposed to failing.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => {
                matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
            }
            Self::InDoubt(error) => error.is_full(),
            Self::Locked { .. }
            | Self::Damaged { .. }
            | Self::NewerFormat { .. }
            | Self::OlderFormat { .. } => false,
        }
    }
}

#[cfg(test)]
impl StoreError {
    /// Asserts that the error refuses a file of the format after `known`, and names both formats.
    pub(super) fn assert_is_of_newer_format(&self, file: &Path, known: u32) {
        let Self::NewerFormat {
            path,
            known: formats,
            found,
        } = self
        else {
            panic!("{self}");
        };
        let expected = (file, &(1..=known), known + 1);
        assert_eq!((&**path, formats, *found), expected);
    }
}

fn damage(path: &Path, what: &str, expected: &str, found: &str) -> String {
    let path = path.display();
    format!("{path} is damaged: {what}: expected {expected}, found {found}")
}

/// Returns advice on what to do, if the kind of the error allows any.
fn hint(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        NotADirectory, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
    };
    if let Some(advice) = FailedCall::advice(error) {
        return advice;
    }
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
