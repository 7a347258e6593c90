//! The one place that converts results of the engine to status codes.

use tonic::{Code, Status, metadata::MetadataValue};

use crate::engine::EngineError;
use crate::grpc::wire::memory::MemoryError;

/// The retry delay for a call that was refused for lack of memory. gRPC clients that retry read it:
/// <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>
const PUSHBACK: (&str, &str) = ("grpc-retry-pushback-ms", "250");

/// Returns UNAVAILABLE for a call that has changed nothing: clients can repeat it whatever it does.
pub fn unapplied(message: impl Into<String>) -> Status {
    unapplied_as(Code::Unavailable, message)
}

fn unapplied_as(code: Code, message: impl Into<String>) -> Status {
    let mut status = Status::new(code, message);
    let no = MetadataValue::from_static("no");
    status.metadata_mut().insert("seenset-applied", no);
    status
}

/// Returns RESOURCE_EXHAUSTED for a call that has changed nothing, with a retry delay.
pub fn out_of_memory(error: MemoryError) -> Status {
    let mut status = unapplied_as(Code::ResourceExhausted, error.to_string());
    let (name, milliseconds) = PUSHBACK;
    let milliseconds = MetadataValue::from_static(milliseconds);
    status.metadata_mut().insert(name, milliseconds);
    status
}

/// Returns UNAVAILABLE for a call that may have been carried out, and whose answer is not sent for
/// lack of memory.
pub fn unanswered(error: MemoryError) -> Status {
    Status::unavailable(format!(
        "the call may have been carried out, and its answer was not sent; repeat it, with the same \
         request_id if it has one: {error}"
    ))
}

/// Returns the status for an error of the engine.
///
/// The messages of bad requests name the field, the value and the limit. The messages of failures
/// name no internals: the details are logged here, within the span of the call.
pub fn status(error: EngineError) -> Status {
    let is_unapplied = matches!(
        error,
        EngineError::DeadlineOver
            | EngineError::Cancelled
            | EngineError::Recovering
            | EngineError::Stopping
            | EngineError::FilterReplaced
            | EngineError::FilterBusy
            | EngineError::StorageFailed(_)
    );
    let (code, message) = match error {
        EngineError::Name { .. }
        | EngineError::Spec(_)
        | EngineError::KeyLength { .. }
        | EngineError::RequestId { .. }
        | EngineError::RequestReused { .. }
        | EngineError::BatchLength { .. }
        | EngineError::MergedWithItself { .. }
        | EngineError::PageSize { .. }
        | EngineError::Import(_)
        | EngineError::LongImport { .. }
        | EngineError::MaxAge { .. } => (Code::InvalidArgument, None),
        EngineError::DeadlineOver => (Code::DeadlineExceeded, None),
        EngineError::Cancelled => (Code::Cancelled, None),
        EngineError::UnknownFilter { .. } => (Code::NotFound, None),
        EngineError::NotCounting { .. }
        | EngineError::NotAging { .. }
        | EngineError::NotMergeable { .. }
        | EngineError::NotRebuildable { .. }
        | EngineError::Rebuilding { .. }
        | EngineError::NotRebuilding { .. }
        | EngineError::NotExportable { .. } => (Code::FailedPrecondition, None),
        EngineError::ExportEnded { .. } => (Code::Aborted, None),
        EngineError::FilterExists { .. } | EngineError::NameTaken { .. } => {
            (Code::AlreadyExists, None)
        }
        EngineError::OverBudget(_)
        | EngineError::TooManyImports
        | EngineError::TooManyFilters { .. }
        | EngineError::OutOfMemory { .. }
        | EngineError::FilterFull { .. }
        | EngineError::NoRoomToMerge { .. } => (Code::ResourceExhausted, None),
        EngineError::Recovering
        | EngineError::Stopping
        | EngineError::FilterReplaced
        | EngineError::FilterBusy => (Code::Unavailable, None),
        EngineError::StorageFull(_) => (Code::ResourceExhausted, Some(STORAGE_FULL)),
        EngineError::StorageFailed(_) => (Code::Unavailable, Some(STORAGE_FAILED)),
        EngineError::NotDurable(_) => (Code::Unavailable, Some(NOT_DURABLE)),
        EngineError::RestoreOverBudget { .. }
        | EngineError::NoRoomToRestore { .. }
        | EngineError::Snapshot(_)
        | EngineError::Internal { .. } => (Code::Internal, Some(INTERNAL)),
    };
    match message {
        Some(message) => {
            tracing::error!(%error, ?code, "call failed");
            match is_unapplied {
                true => unapplied_as(code, message),
                false => Status::new(code, message),
            }
        }
        None => {
            tracing::debug!(%error, ?code, "call refused");
            match is_unapplied {
                true => unapplied_as(code, error.to_string()),
                false => Status::new(code, error.to_string()),
            }
        }
    }
}

const STORAGE_FULL: &str =
    "the server's disk is full, and the call was not carried out; make room and try again";
const STORAGE_FAILED: &str =
    "the server's disk failed, and the call was not carried out; the server's log says more";
const NOT_DURABLE: &str = "the server's disk is full or failed, and whether the call was carried \
                           out is not known; repeat it, with the same request_id if it has one";
const INTERNAL: &str = "internal error; the server's log says more";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_and_internals_are_not_told() {
        let secret = "cannot write /secret/place";
        for (error, code) in [
            (
                EngineError::StorageFull(secret.into()),
                Code::ResourceExhausted,
            ),
            (EngineError::StorageFailed(secret.into()), Code::Unavailable),
            (EngineError::NotDurable(secret.into()), Code::Unavailable),
            (EngineError::Snapshot(secret.into()), Code::Internal),
            (
                EngineError::Internal {
                    what: "x",
                    detail: secret.to_owned(),
                },
                Code::Internal,
            ),
        ] {
            let status = status(error);
            assert_eq!(status.code(), code, "{status}");
            assert!(!status.message().contains("secret"), "{status}");
        }
    }

    #[test]
    fn what_changed_nothing_says_so() {
        for (error, expected) in [
            (EngineError::Recovering, true),
            (EngineError::Stopping, true),
            (EngineError::StorageFailed("x".into()), true),
            (EngineError::NotDurable("x".into()), false),
        ] {
            let status = status(error);
            assert_eq!(status.code(), Code::Unavailable);
            let says_so = status.metadata().get("seenset-applied");
            assert_eq!(says_so.is_some_and(|it| it == "no"), expected, "{status}");
        }
    }
}
