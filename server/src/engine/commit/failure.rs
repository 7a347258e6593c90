//! The error that calls get while the log cannot be written.

use std::collections::{BTreeSet, HashMap};

use crate::{
    engine::error::EngineError,
    filter::hash::KeyHash,
    store::{FilterId, StoreError},
};

/// The reason why nothing can be written, and the keys of each filter that may be lost.
#[derive(Debug)]
pub struct Failure {
    is_full: bool,
    error: String,
    doubts: HashMap<FilterId, Doubts>,
}

/// The keys of a filter that may be lost.
#[derive(Debug, Default)]
pub struct Doubts {
    /// Changes up to this version are known to be in the log, or their keys are among `hashes`.
    pub complete_to: u64,
    /// The two halves of the hashes of keys that are in the filter but perhaps not in the log.
    pub hashes: BTreeSet<(u64, u64)>,
}

impl Failure {
    pub fn new(error: &StoreError, doubts: HashMap<FilterId, Doubts>) -> Self {
        Self {
            is_full: error.is_full(),
            error: error.to_string(),
            doubts,
        }
    }

    /// A failure that never ends: the thread that writes the log has ended.
    pub fn ended() -> Self {
        Self {
            is_full: false,
            error: "the thread that writes the log has ended: start the server again".to_owned(),
            doubts: HashMap::new(),
        }
    }

    /// Returns the error for a call.
    pub fn error(&self) -> EngineError {
        let error = self.error.clone().into();
        if self.is_full {
            EngineError::StorageFull(error)
        } else {
            EngineError::StorageFailed(error)
        }
    }

    /// Returns whether the given keys are certainly in the log. The caller has found them in the
    /// filter, where the latest change has the given version.
    pub fn is_certain(
        &self,
        filter: FilterId,
        version: u64,
        mut hashes: impl Iterator<Item = KeyHash>,
    ) -> bool {
        let Some(doubts) = self.doubts.get(&filter) else {
            return false;
        };
        version <= doubts.complete_to
            && !hashes.any(|hash| doubts.hashes.contains(&(hash.low, hash.high)))
    }
}
