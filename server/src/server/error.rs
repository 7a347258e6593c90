//! The error that ends a server: one line that says what to do.

use std::io;

use thiserror::Error;

use crate::{engine::EngineError, store::StoreError};

/// The reason why a server did not start, or did not end well.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; {}{flag}",
        listen_hint(address, source)
    )]
    Listen {
        /// The address of the configuration.
        address: String,
        /// The flag that sets it.
        flag: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The filters cannot be restored, or the default one cannot be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The operating system does not report the size of the memory.
    #[error("cannot read how much memory the machine has: {0}; give --max-memory in bytes")]
    Memory(#[from] sysinfo::Error),
    /// The descriptors of the contract do not decode.
    #[error("cannot serve reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The process can open too few files.
    #[error(
        "the limit of open files is {limit}; the server needs at least {needed}, and one more for \
         each connection: raise it (ulimit -n; systemd: LimitNOFILE=)"
    )]
    OpenFiles {
        /// The limit of the process.
        limit: usize,
        /// The number of files without connections.
        needed: usize,
    },
    /// The tokio runtime cannot start.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The operating system gives no threads to serve calls on.
    #[error("cannot start the threads that serve calls: {0}")]
    Cores(#[source] io::Error),
    /// The process cannot install handlers for signals.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
    /// No task accepts connections any more.
    #[error("the server stopped serving: {0}; start it again")]
    Serving(String),
    /// The last snapshot was not written.
    #[error("not everything was stored at the end: {0}")]
    LastStore(String),
}

/// Returns the advice for an address that cannot be listened on. The caller appends the flag.
fn listen_hint(address: &str, error: &io::Error) -> &'static str {
    let is_socket = address.starts_with("unix:");
    match error.kind() {
        io::ErrorKind::AddrInUse if is_socket => {
            "stop the server that listens there, or choose another "
        }
        io::ErrorKind::AlreadyExists if is_socket => {
            "a file that is no socket is in its place: move it, or choose another "
        }
        io::ErrorKind::NotFound if is_socket => "make its directory, or choose another ",
        io::ErrorKind::PermissionDenied if is_socket => {
            "make its directory writable for the user that runs the server, or choose another "
        }
        io::ErrorKind::AddrInUse => "stop what uses the port, or choose another ",
        io::ErrorKind::AddrNotAvailable => {
            "the machine does not have this address: choose another "
        }
        _ => "choose another ",
    }
}
