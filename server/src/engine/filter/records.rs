//! The log records of a call, and the keys that are remembered for its request.

use super::{Filter, pipeline::MAX_KEYS_A_LOCK, stripes::most_stripes};
use crate::{
    engine::{
        call::{Action, requests::RetrySession},
        commit::{FilterLog, Journal},
    },
    filter::{hash::KeyHash, scaling::MAX_LAYERS},
    planted::Bug,
    store::{RecordHead, RequestId},
};

impl Filter {
    /// Connects the filter to a log, which gets all changes from now on. To be called before any
    /// key is added.
    pub fn set_log(&mut self, journal: &Journal) {
        self.log = Some(journal.filter(self.id, &self.versions));
        self.body.whole_mut().begin_log(self.versions.latest());
    }

    /// Returns the log, if an answer that depends on a version has to wait for it.
    #[inline]
    pub fn pending(&self, depends_on: u64) -> Option<FilterLog> {
        let log = self.log.as_ref()?;
        (!log.has_reached(depends_on)).then(|| log.clone())
    }

    /// Returns the key under which a request id is remembered for this filter; `None` if it need
    /// not be. The same id for an addition and for a removal gives two keys.
    #[inline]
    pub fn session_id(&self, id: &str, action: Action) -> Option<RequestId> {
        // Adding keys again changes nothing, except where they are counted.
        let is_idempotent = action == Action::Add && !self.counts();
        if id.is_empty() || is_idempotent {
            return None;
        }
        Some(RequestId(self.request_id(id, action).to_le_bytes()))
    }

    pub fn request_id(&self, id: &str, action: Action) -> u128 {
        // Hashed under a secret, even if the keys are not: nobody can choose ids that collide.
        let KeyHash { low, high } = self.request_hasher.hash(id.as_bytes());
        let id = u128::from(low) | (u128::from(high) << 64);
        match action {
            Action::Remove => !id,
            Action::Add | Action::QueryAndAdd => id,
        }
    }

    /// Returns the greatest number of records that a call with `keys` keys appends to the log,
    /// apart from full records.
    pub fn records_of_a_call(&self, keys: usize) -> usize {
        let record_keys = self.log.as_ref().map(FilterLog::hashes_of_a_record);
        let record_keys = record_keys.unwrap_or(usize::MAX);
        self.body.whole().records_of_a_call(keys, record_keys)
    }

    /// Returns the greatest number of records that a call with `keys` keys appends to the log in
    /// any filter, apart from full records.
    pub fn most_records(keys: usize) -> usize {
        (most_stripes() + full_locks(keys)).max(MAX_LAYERS)
    }

    /// Returns the head of the record for a version: everything but the hashes.
    #[inline]
    pub fn record_head(&self, session: Option<&RetrySession<'_>>, version: u64) -> RecordHead {
        let request = session.map(RetrySession::id);
        RecordHead {
            request: request.filter(|_| !Bug::RequestNotLogged.is_planted()),
            ..RecordHead::added(self.id, version)
        }
    }

    /// Returns whether keys that were found are certainly in the log, although the log cannot be
    /// written at present. `version` is the version of the latest change where the keys were found.
    pub fn is_certain<'a>(&self, version: u64, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        // If keys can be removed, an addition in the log does not say whether the key is there now.
        if self.counts() {
            return false;
        }
        let hashes = keys.into_iter().map(|key| self.hash(key));
        let log = self.log.as_ref();
        log.is_some_and(|log| log.is_certain(version, hashes))
    }
}

/// The number of full lock periods ([`MAX_KEYS_A_LOCK`]) among `keys` keys.
pub fn full_locks(keys: usize) -> usize {
    keys / MAX_KEYS_A_LOCK
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.end();
        }
    }
}
