//! A failed system call, with its name: "Invalid argument" alone says little.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

/// A failed system call. An [`io::Error`] of the disk contains it.
#[derive(Debug, Error)]
#[error("{call}: {source}")]
pub struct FailedCall {
    call: &'static str,
    source: io::Error,
}

/// The call that puts the names in a directory on stable storage.
const SYNC_NAMES: &str = "fsync of the directory";
const LOCK: &str = "flock";

impl FailedCall {
    /// Adds the name of the call to an error, and keeps the kind of the error.
    pub(super) fn named(call: &'static str) -> impl Fn(io::Error) -> io::Error {
        move |source| io::Error::new(source.kind(), Self { call, source })
    }

    pub(super) fn sync_names(source: io::Error) -> io::Error {
        Self::named(SYNC_NAMES)(source)
    }

    pub(super) fn lock(source: io::Error) -> io::Error {
        Self::named(LOCK)(source)
    }

    /// Returns advice on what to do, if the file system does not support the call.
    pub fn advice(error: &io::Error) -> Option<&'static str> {
        let Self { call, source } = error.get_ref()?.downcast_ref()?;
        let errno = Errno::from_io_error(source)?;
        let is_unsupported = [
            Errno::INVAL,
            Errno::NOSYS,
            Errno::OPNOTSUPP,
            Errno::NOTTY,
            Errno::NOLCK,
        ]
        .contains(&errno);
        is_unsupported.then_some(match *call {
            LOCK => {
                "; the file system has no locks, without which two servers in one directory would \
                 destroy it: mount it with locks (NFS: without the option nolock, and with the \
                 server's lock manager running), or choose a --data-dir on a local disk"
            }
            SYNC_NAMES => {
                "; the file system cannot put a directory on stable storage, so a power cut could \
                 take files from it: choose a --data-dir on a local file system, as ext4 or XFS, \
                 not on CIFS or FUSE"
            }
            _ => {
                "; the file system does not support this call: choose a --data-dir on a local one, \
                 as ext4 or XFS"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_a_file_system_does_not_support_are_told_from_failures() {
        let named = |name: fn(io::Error) -> io::Error, errno: Errno| name(errno.into());
        let other = |error| FailedCall::named("fdatasync")(error);
        for (error, text, advice) in [
            (
                named(FailedCall::sync_names, Errno::INVAL),
                "fsync of the directory: Invalid argument (os error 22)",
                Some("cannot put a directory on stable storage"),
            ),
            (
                named(FailedCall::lock, Errno::NOLCK),
                "flock: No locks available (os error 37)",
                Some("has no locks"),
            ),
            (
                named(other, Errno::OPNOTSUPP),
                "fdatasync: Operation not supported (os error 95)",
                Some("does not support this call"),
            ),
            (
                named(FailedCall::sync_names, Errno::IO),
                "fsync of the directory: Input/output error (os error 5)",
                None,
            ),
        ] {
            assert_eq!(error.to_string(), text);
            let found = FailedCall::advice(&error);
            match advice {
                Some(advice) => assert!(found.unwrap().contains(advice), "{found:?}"),
                None => assert_eq!(found, None),
            }
        }
        let full = named(other, Errno::NOSPC);
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert_eq!(FailedCall::advice(&Errno::INVAL.into()), None);
    }
}
