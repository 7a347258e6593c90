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
    #[error(
        "the connection to {endpoint} broke during {call}: {reason}; {}",
        doubt(*.may_be_applied)
    )]
    Broken {
        /// The rpc.
        call: &'static str,
        /// Where to.
        endpoint: Arc<str>,
        /// The innermost cause.
        reason: String,
        /// Whether the call, in any attempt, was sent and not refused.
        may_be_applied: bool,
        /// All of it.
        #[source]
        status: Box<Status>,
    },
    /// The answer did not come in time.
    #[error(
        "no answer to {call} from {endpoint} within {deadline:?}; {}",
        doubt(*.may_be_applied)
    )]
    Deadline {
        /// The rpc.
        call: &'static str,
        /// Where to.
        endpoint: Arc<str>,
        /// How long was waited, all attempts together.
        deadline: Duration,
        /// Whether the call, in any attempt, was sent and not refused.
        may_be_applied: bool,
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
            Self::Broken { may_be_applied, .. } | Self::Deadline { may_be_applied, .. } => {
                !may_be_applied
            }
            Self::Mismatch { .. } => false,
            Self::Refused { status, .. } => is_unapplied(status),
        }
    }

    /// The error of a call that failed like this and that, in an attempt before, may have been
    /// applied: the last attempt says nothing of the one before.
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

    /// The error of a call that was not sent, and ended with another that failed like this.
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

    /// Sorts a status that ended a call, of which is known whether it was `sent`.
    pub(crate) fn from_status(
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

/// What errors say of a call that was not answered.
fn doubt(may_be_applied: bool) -> &'static str {
    match may_be_applied {
        true => "it may have been applied",
        false => "it was not sent, or not taken",
    }
}

/// The trailer of a status that refuses a call before it changes anything.
const APPLIED: &str = "seenset-applied";

/// Whether a status with which a server answered is that of a call that changed nothing.
pub(crate) fn is_unapplied(status: &Status) -> bool {
    if status.metadata().get(APPLIED).is_some_and(|it| it == "no") {
        return true;
    }
    // A call that is refused for what it asks changes nothing, by contract. The other codes tell of
    // trouble on the way, at any point of it.
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
