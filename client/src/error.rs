//! What can go wrong with a call, told apart by what the caller can do about it.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use thiserror::Error;
use tonic::{Code, ConnectError, Status, TimeoutExpired};

/// Why a call failed.
///
/// Whether the call may have been applied all the same is told by
/// [`changed_nothing`](Error::changed_nothing).
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The address can't be one of a server.
    #[error("{endpoint:?} is no address of a server: {reason}; give host:port or http://host:port")]
    Endpoint {
        /// The address as it was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection came about, in any attempt.
    #[error("cannot connect to {endpoint}: {reason}; is seenset-server listening there?")]
    Connect {
        /// Where to.
        endpoint: Arc<str>,
        /// The innermost cause.
        reason: String,
        /// All of it.
        #[source]
        status: Box<Status>,
    },
    /// The server answered that it won't.
    #[error("{call} was refused: {} ({code:?})", status.message())]
    Refused {
        /// The rpc.
        call: &'static str,
        /// The status code of the contract.
        code: Code,
        /// All of the answer.
        #[source]
        status: Box<Status>,
    },
    /// The connection broke before the answer came.
    #[error("the connection to {endpoint} broke during {call}: {reason}; it may have been applied")]
    Broken {
        /// The rpc.
        call: &'static str,
        /// Where to.
        endpoint: Arc<str>,
        /// The innermost cause.
        reason: String,
        /// All of it.
        #[source]
        status: Box<Status>,
    },
    /// The answer did not come in time.
    #[error("no answer to {call} from {endpoint} within {deadline:?}; it may have been applied")]
    Deadline {
        /// The rpc.
        call: &'static str,
        /// Where to.
        endpoint: Arc<str>,
        /// How long was waited, all attempts together.
        deadline: Duration,
    },
    /// The answer does not fit the question: a server of another kind, or a fault in it.
    #[error("{call} sent {expected} keys and got {actual} answers: this is no seenset-server")]
    Mismatch {
        /// The rpc.
        call: &'static str,
        /// The number of keys asked.
        expected: usize,
        /// The number of answers that came.
        actual: usize,
    },
    /// The file of an export is not as long as the server said.
    #[error(
        "ExportFilter announced {expected_bytes} bytes and {actual_bytes} came: what has come is of \
         no use"
    )]
    Incomplete {
        /// The length that was announced.
        expected_bytes: u64,
        /// What came.
        actual_bytes: u64,
    },
    /// The file of an import cannot be read.
    #[error("cannot read the file: {reason}; nothing was imported")]
    File {
        /// Why not.
        reason: String,
    },
    /// The batch would not fit a message of the contract. It was not sent.
    #[error("the batch takes {encoded_bytes} bytes and a message holds {limit_bytes}: split it")]
    TooLarge {
        /// The size of the message it would be.
        encoded_bytes: usize,
        /// The most that a message may have.
        limit_bytes: usize,
    },
    /// The stream has ended, and the batch was not sent. Its receiving half knows why.
    #[error("the stream has ended, this batch was not sent")]
    StreamClosed,
}

impl Error {
    /// The status code that the server answered with, if it did answer.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether it is certain that the call changed nothing. If not, a key may be marked
    /// though nobody was told that it was new.
    pub fn changed_nothing(&self) -> bool {
        match self {
            Self::Endpoint { .. }
            | Self::Connect { .. }
            | Self::TooLarge { .. }
            | Self::Incomplete { .. }
            | Self::File { .. }
            | Self::StreamClosed => true,
            Self::Broken { .. } | Self::Deadline { .. } | Self::Mismatch { .. } => false,
            // A call that is refused for what it asks changes nothing, by contract. The
            // other codes tell of trouble on the way, at any point of it.
            Self::Refused { code, .. } => matches!(
                code,
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::PermissionDenied
                    | Code::ResourceExhausted
                    | Code::FailedPrecondition
                    | Code::Unimplemented
                    | Code::Unauthenticated
            ),
        }
    }

    /// The same for a call of which an attempt before may have been applied: that the last one was
    /// not sent, or was refused, says nothing of that one.
    pub(crate) fn after_a_break(self, endpoint: &Arc<str>, call: &'static str) -> Self {
        if !self.changed_nothing() {
            return self;
        }
        let (reason, status) = match self {
            Self::Connect { reason, status, .. } => (reason, status),
            Self::Refused { code, status, .. } => {
                let message = status.message();
                (
                    format!("repeated, it was refused: {message} ({code:?})"),
                    status,
                )
            }
            other => return other,
        };
        Self::Broken {
            call,
            endpoint: Arc::clone(endpoint),
            reason,
            status,
        }
    }

    /// Sorts a status that ended a call.
    pub(crate) fn from_status(
        call: &'static str,
        endpoint: &Arc<str>,
        deadline: Duration,
        status: Status,
    ) -> Self {
        let endpoint = Arc::clone(endpoint);
        match Cause::of(&status) {
            Cause::NeverConnected => Self::Connect {
                endpoint,
                reason: innermost(&status),
                status: Box::new(status),
            },
            Cause::Broke => Self::Broken {
                call,
                endpoint,
                reason: innermost(&status),
                status: Box::new(status),
            },
            Cause::Expired => Self::Deadline {
                call,
                endpoint,
                deadline,
            },
            Cause::Answered => Self::Refused {
                call,
                code: status.code(),
                status: Box::new(status),
            },
        }
    }
}

/// Where a status comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There was no connection to send the call on, so it was not sent.
    NeverConnected,
    /// The transport failed, and the call may have been sent.
    Broke,
    /// The deadline passed, here or on the server.
    Expired,
    /// The server said so.
    Answered,
}

impl Cause {
    /// Only the transport gives a status a source: one that came over the wire has none.
    pub(crate) fn of(status: &Status) -> Self {
        let mut source = status.source();
        if source.is_none() {
            // What servers answer when the `grpc-timeout` of the call is over, tonic's in their own
            // way.
            let expired = status.code() == Code::DeadlineExceeded
                || status.code() == Code::Cancelled && status.message() == "Timeout expired";
            return if expired {
                Self::Expired
            } else {
                Self::Answered
            };
        }
        while let Some(error) = source {
            if error.is::<ConnectError>() {
                return Self::NeverConnected;
            }
            if error.is::<TimeoutExpired>() {
                return Self::Expired;
            }
            source = error.source();
        }
        Self::Broke
    }
}

/// The last cause in the chain: the one that says "connection refused", while those
/// around it say "transport error".
fn innermost(status: &Status) -> String {
    let mut error: &dyn StdError = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
