//! The one place where outcomes of the engine become status codes.

use tonic::{Code, Status};

use crate::{engine::EngineError, store::StoreError};

/// The status that tells a caller of an error.
///
/// Messages of bad requests name the field, the value and the limit. Those of failures name
/// no internals: they are logged here, within the span of the call.
pub fn status(error: EngineError) -> Status {
    let code = code(&error);
    match code {
        Code::Internal => {
            tracing::error!(%error, "call failed");
            Status::internal("internal error; the server's log says more")
        }
        Code::Unavailable | Code::ResourceExhausted if matches!(error, EngineError::Store(_)) => {
            tracing::error!(%error, "the disk failed a call");
            Status::new(code, disk_message(code))
        }
        _ => {
            tracing::debug!(%error, ?code, "call refused");
            Status::new(code, error.to_string())
        }
    }
}

fn code(error: &EngineError) -> Code {
    match error {
        EngineError::Name { .. }
        | EngineError::Spec(_)
        | EngineError::KeyLength { .. }
        | EngineError::BatchLength { .. }
        | EngineError::PageSize { .. } => Code::InvalidArgument,
        EngineError::UnknownFilter { .. } => Code::NotFound,
        EngineError::FilterExists { .. } => Code::AlreadyExists,
        EngineError::OverBudget(_) => Code::ResourceExhausted,
        EngineError::Recovering | EngineError::Stopping => Code::Unavailable,
        EngineError::Store(error) if error.is_full() => Code::ResourceExhausted,
        EngineError::Store(StoreError::Io { .. }) => Code::Unavailable,
        EngineError::Store(
            StoreError::Locked { .. } | StoreError::Damaged { .. } | StoreError::NewerFormat { .. },
        )
        | EngineError::Internal { .. } => Code::Internal,
    }
}

fn disk_message(code: Code) -> &'static str {
    match code {
        Code::ResourceExhausted => {
            "the server's disk is full, and the call was not carried out; make room and try again"
        }
        _ => {
            "the server's disk failed, and the call was not carried out; the server's log says more"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn store_error(kind: io::ErrorKind) -> EngineError {
        EngineError::Store(StoreError::Io {
            action: "write",
            path: "/secret/place".into(),
            source: kind.into(),
        })
    }

    #[test]
    fn disks_are_told_apart_and_paths_are_not_told() {
        let full = status(store_error(io::ErrorKind::StorageFull));
        let broken = status(store_error(io::ErrorKind::Other));
        let internal = status(EngineError::Internal {
            what: "x",
            detail: "/secret".into(),
        });
        assert_eq!(full.code(), Code::ResourceExhausted);
        assert_eq!(broken.code(), Code::Unavailable);
        assert_eq!(internal.code(), Code::Internal);
        for status in [full, broken, internal] {
            assert!(!status.message().contains("secret"), "{status}");
        }
    }
}
