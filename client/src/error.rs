//! The errors of a call, divided by what the caller can do about them.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use thiserror::Error;
use tonic::{Code, ConnectError, Status, TimeoutExpired};

/// The reason why a call failed.
///
/// [`changed_nothing`](Error::changed_nothing) returns whether the call can have been applied in
/// spite of the error.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not a valid address of a server.
    #[error("{endpoint:?} is no address of a server: {reason}; give host:port or http://host:port")]
    Endpoint {
        /// The address as given.
        endpoint: String,
        /// The reason why it is not valid.
        reason: String,
    },
    /// No attempt could connect to the server.
    #[error("cannot connect to {endpoint}: {reason}; is seenset-server listening there?")]
    Connect {
        /// The address of the server.
        endpoint: Arc<str>,
        /// The innermost cause.
        reason: String,
        /// The full status.
        #[source]
        status: Box<Status>,
    },
    /// The server refused the call.
    #[error("{call} was refused: {} ({code:?})", status.message())]
    Refused {
        /// The name of the rpc.
        call: &'static str,
        /// The status code, as in the contract.
        code: Code,
        /// The full answer.
        #[source]
        status: Box<Status>,
    },
    /// The connection broke before the answer came.
    #[error(
        "the connection to {endpoint} broke during {call}: {reason}; {}",
        doubt(*.may_be_applied)
    )]
    Broken {
        /// The name of the rpc.
        call: &'static str,
        /// The address of the server.
        endpoint: Arc<str>,
        /// The innermost cause.
        reason: String,
        /// Whether any attempt of the call was sent and not refused.
        may_be_applied: bool,
        /// The full status.
        #[source]
        status: Box<Status>,
    },
    /// The answer did not come in time.
    #[error(
        "no answer to {call} from {endpoint} within {deadline:?}; {}",
        doubt(*.may_be_applied)
    )]
    Deadline {
        /// The name of the rpc.
        call: &'static str,
        /// The address of the server.
        endpoint: Arc<str>,
        /// The time waited, over all attempts.
        deadline: Duration,
        /// Whether any attempt of the call was sent and not refused.
        may_be_applied: bool,
    },
    /// The answer does not match the request. The server is not a seenset-server, or has a bug.
    #[error("{call} sent {expected} keys and got {actual} answers: this is no seenset-server")]
    Mismatch {
        /// The name of the rpc.
        call: &'static str,
        /// The number of keys in the request.
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
        /// The announced length in bytes.
        expected_bytes: u64,
        /// The number of bytes that came.
        actual_bytes: u64,
    },
    /// The file of an import cannot be read.
    #[error("cannot read the file: {reason}; nothing was imported")]
    File {
        /// The reason.
        reason: String,
    },
    /// The batch does not fit in a message of the contract. It was not sent.
    #[error("the batch takes {encoded_bytes} bytes and a message holds {limit_bytes}: split it")]
    TooLarge {
        /// The size that the message would have, in bytes.
        encoded_bytes: usize,
        /// The maximum size of a message, in bytes.
        limit_bytes: usize,
    },
    /// The stream has ended, and the batch was not sent. The receiving half gets the reason.
    #[error("the stream has ended, this batch was not sent")]
    StreamClosed,
}

impl Error {
    /// Returns the status code with which the server refused the call; `None` for all other errors.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns whether it is certain that the call changed nothing. If false, a key may be marked
    /// although no caller got the answer that it was new.
    pub fn changed_nothing(&self) -> bool {
        match self {
            Self::Endpoint { .. }
            | Self::Connect { .. }
            | Self::TooLarge { .. }
            | Self::Incomplete { .. }
            | Self::File { .. }
            | Self::StreamClosed => true,
            Self::Broken { may_be_applied, .. } | Self::Deadline { may_be_applied, .. } => {
                !may_be_applied
            }
            Self::Mismatch { .. } => false,
            Self::Refused { status, .. } => is_unapplied(status),
        }
    }

    /// Returns the error of a call that ended with `self`, after an earlier attempt that may have
    /// been applied. The last attempt says nothing about the earlier one.
    pub(crate) fn after_a_break(self, endpoint: &Arc<str>, call: &'static str) -> Self {
        if !self.changed_nothing() {
            return self;
        }
        let (reason, status) = match self {
            Self::Broken { reason, status, .. } | Self::Connect { reason, status, .. } => {
                (reason, status)
            }
            Self::Deadline {
                call,
                endpoint,
                deadline,
                ..
            } => {
                return Self::Deadline {
                    call,
                    endpoint,
                    deadline,
                    may_be_applied: true,
                };
            }
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
            may_be_applied: true,
            status,
        }
    }

    /// Returns this error for a call that was not sent and that failed together with another call.
    pub(crate) fn of_an_unsent_call(&self) -> Self {
        let mut error = self.clone();
        match &mut error {
            Self::Broken { may_be_applied, .. } | Self::Deadline { may_be_applied, .. } => {
                *may_be_applied = false;
            }
            _ => {}
        }
        error
    }

    /// Makes an error of the status that ended a call of the generated client.
    ///
    /// `call` is the name of the rpc and `endpoint` the address of the server: the error prints
    /// both. `deadline` is the time limit that the call had. `sent` says whether the request may
    /// have reached the server; if the caller does not know, it is true.
    pub fn from_status(
        call: &'static str,
        endpoint: &Arc<str>,
        deadline: Duration,
        status: Status,
        sent: bool,
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
                may_be_applied: sent,
                status: Box::new(status),
            },
            Cause::Expired => Self::Deadline {
                call,
                endpoint,
                deadline,
                may_be_applied: sent && !is_unapplied(&status),
            },
            Cause::Answered => Self::Refused {
                call,
                code: status.code(),
                status: Box::new(status),
            },
        }
    }
}

/// Returns the part of an error message that says whether an unanswered call may be applied.
fn doubt(may_be_applied: bool) -> &'static str {
    match may_be_applied {
        true => "it may have been applied",
        false => "it was not sent, or not taken",
    }
}

/// The trailer of a status that refuses a call before it changes anything.
const APPLIED: &str = "seenset-applied";

/// Returns whether `status`, an answer of a server, means that the call changed nothing.
pub(crate) fn is_unapplied(status: &Status) -> bool {
    if status.metadata().get(APPLIED).is_some_and(|it| it == "no") {
        return true;
    }
    // By contract, a call that is refused because of its request changes nothing. The other codes
    // report a failure, which can occur at any point of the call.
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::Unauthenticated
    )
}

/// The origin of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There was no connection to send the call on, so it was not sent.
    NeverConnected,
    /// The transport failed, and the call may have been sent.
    Broke,
    /// The deadline passed, here or on the server.
    Expired,
    /// The server answered with it.
    Answered,
}

impl Cause {
    /// Returns the origin of `status`. Only the transport gives a status a source: a status that
    /// came over the wire has none.
    pub(crate) fn of(status: &Status) -> Self {
        let mut source = status.source();
        if source.is_none() {
            // Servers answer with these when the `grpc-timeout` of the call is over. Servers of
            // tonic use the second form.
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

/// Returns the last cause in the chain. It says "connection refused", while the causes around it
/// say "transport error".
fn innermost(status: &Status) -> String {
    let mut error: &dyn StdError = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
