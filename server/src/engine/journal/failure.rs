//! What is told to calls while the log cannot be written.

use std::collections::{BTreeSet, HashMap};

use crate::{
    engine::EngineError,
    filter::hash::KeyHash,
    store::{FilterId, StoreError},
};

/// Why nothing can be written, and what of the filters may be lost for it.
#[derive(Debug)]
pub struct Failure {
    is_full: bool,
    error: String,
    doubts: HashMap<FilterId, Doubts>,
}

/// Which keys of a filter may be lost.
#[derive(Debug, Default)]
pub struct Doubts {
    /// Changes up to this version are among those known to be in the log, or among `hashes`.
    pub complete_to: u64,
    /// The two halves of the hashes of keys that are in the filter and perhaps not in the log.
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

    /// That nothing will ever be written again.
    pub fn ended() -> Self {
        Self {
            is_full: false,
            error: "the thread that writes the log has ended: start the server again".to_owned(),
            doubts: HashMap::new(),
        }
    }

    /// What a call is told.
    pub fn error(&self) -> EngineError {
        let error = self.error.clone().into();
        if self.is_full {
            EngineError::StorageFull(error)
        } else {
            EngineError::StorageFailed(error)
        }
    }

    /// Whether keys are in the log for certain, that were found where the latest change is of
    /// a version.
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
