//! What is logged of a call, and remembered of its request.

use super::{GuardedFilter, batch::MAX_KEYS_A_LOCK, counting::Action, shards::Shards};
use crate::{
    engine::{
        journal::{FilterLog, Journal, Room},
        requests::Turn,
    },
    filter::{hash::KeyHash, scaling::MAX_LAYERS},
    planted::Bug,
    store::{RecordHead, RequestId},
};

impl GuardedFilter {
    /// Has what is added from now on go to a log. To be called before anything is.
    pub fn set_log(&mut self, journal: &Journal) {
        self.log = Some(journal.filter(self.id, &self.versions));
        if let Some(counting) = &mut self.counting {
            counting.since = self.versions.latest();
        }
    }

    /// The log, if an answer that rests on a version has to wait for it.
    #[inline]
    pub fn unsettled(&self, rests_on: u64) -> Option<FilterLog> {
        let log = self.log.as_ref()?;
        (!log.has_reached(rests_on)).then(|| log.clone())
    }

    /// The key under which a request id is remembered for this filter; `None` if it need not be. The
    /// same id for an addition and for a removal gives two keys.
    #[inline]
    pub fn session_id(&self, id: &str, action: Action) -> Option<RequestId> {
        // To add keys again changes nothing, but where they are counted.
        let is_idempotent = action == Action::Add && !self.counts();
        if id.is_empty() || is_idempotent {
            return None;
        }
        Some(RequestId(self.request_id(id, action).to_le_bytes()))
    }

    pub(super) fn request_id(&self, id: &str, action: Action) -> u128 {
        // Under a secret, also where keys are not: nobody can choose ids that meet.
        let KeyHash { low, high } = self.request_hasher.hash(id.as_bytes());
        let id = u128::from(low) | (u128::from(high) << 64);
        match action {
            Action::Remove => !id,
            Action::Add | Action::QueryAndAdd => id,
        }
    }

    /// Hands so many hashes over to the log, and to the memory of the request.
    #[inline]
    pub(super) fn log_change(
        &self,
        room: Option<Room<'_>>,
        turn: Option<&Turn<'_>>,
        version: u64,
        count: usize,
        hashes: impl Iterator<Item = KeyHash> + Clone,
    ) {
        self.remember(turn, hashes.clone());
        if let (Some(log), Some(mut room)) = (&self.log, room) {
            let head = self.record_head(turn, version);
            log.append(&mut room, &head, count, hashes);
        }
    }

    /// Hands hashes over to the memory of the request, if there is one.
    #[inline]
    pub(super) fn remember(&self, turn: Option<&Turn<'_>>, hashes: impl Iterator<Item = KeyHash>) {
        if let Some(turn) = turn {
            let segment = self.log.as_ref().map_or(0, FilterLog::segment);
            turn.win(hashes.collect(), segment);
        }
    }

    /// The most records that a call with so many keys brings to the log, beside those that are full.
    /// Where keys are counted, one for each lock that is taken for them, and more where they are more than
    /// a record has; where they age, one for what is new and one for what is not; in layers, one for
    /// each of those.
    pub fn records_of_a_call(&self, keys: usize) -> usize {
        if let Some(layered) = &self.layered {
            let layers = layered.partitions.layers().layers();
            return keys.min(layers.len());
        }
        if !self.counts() {
            return if self.aging.is_some() { 2 } else { 1 };
        }
        let record = self.log.as_ref().map(FilterLog::hashes_of_a_record);
        let full = record.map_or(0, |hashes| keys / hashes);
        keys.min(self.shards.stripes().len() + full_locks(keys) + full)
    }

    /// No filter brings more of them to the log in one call of so many keys, beside those that are
    /// full.
    pub fn most_records(keys: usize) -> usize {
        (Shards::most_stripes() + full_locks(keys)).max(MAX_LAYERS)
    }

    /// What is logged of a version, beside the hashes.
    #[inline]
    pub(super) fn record_head(&self, turn: Option<&Turn<'_>>, version: u64) -> RecordHead {
        let request = turn.map(Turn::id);
        RecordHead {
            request: request.filter(|_| !Bug::RequestNotLogged.is_planted()),
            ..RecordHead::added(self.id, version)
        }
    }

    /// Whether keys that were found where the latest change is of a version are in the log for
    /// certain, although that cannot be written at present.
    pub fn is_certain<'a>(&self, version: u64, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        // Where keys are removed, that one was added says nothing of how it is now.
        if self.counts() {
            return false;
        }
        let hashes = keys.into_iter().map(|key| self.hash(key));
        let log = self.log.as_ref();
        log.is_some_and(|log| log.is_certain(version, hashes))
    }
}

/// The number of full lock periods ([`MAX_KEYS_A_LOCK`]) among `keys` keys.
fn full_locks(keys: usize) -> usize {
    keys / MAX_KEYS_A_LOCK
}

impl Drop for GuardedFilter {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.end();
        }
    }
}
