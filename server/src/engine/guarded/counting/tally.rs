//! The tally of one call: the keys that it counts, key by key and lock by lock.

use super::Counting;
use crate::{
    engine::{
        call::Action,
        guarded::{Answer, GuardedFilter, hashed_key::set, shard::Shard},
        journal::FilterLog,
        requests::RetrySession,
    },
    filter::{
        counting::{CountEffect, Step, Stepper},
        hash::KeyHash,
    },
};

/// The results of a call for its keys so far.
pub struct Tally<'a, 'b> {
    filter: &'a GuardedFilter,
    counting: &'a Counting,
    action: Action,
    pub session: Option<RetrySession<'b>>,
    /// The result for each key: whether it was there, or, for a removal, whether it was removed.
    /// The values mean nothing for an addition.
    told: Vec<bool>,
    depends_on: u64,
    /// The keys that the call has counted, if they are to be logged or remembered.
    pub counted: Vec<KeyHash>,
    keeps_hashes: bool,
    groups: Vec<Group>,
    /// The greatest number of keys in a group: as many as a record can have.
    max_group_keys: usize,
    /// Whether there is a log, which has a record for each group.
    is_logged: bool,
    /// Whether the next counted key can have the version of the last group. If there is a log, the
    /// key must be behind the same lock as that group.
    has_version: bool,
}

/// The keys that a call has counted with one version: under one lock, if there is a log.
struct Group {
    version: u64,
    /// The index of its first key among the keys that the call has counted.
    begin: usize,
}

impl<'a, 'b> Tally<'a, 'b> {
    /// Returns the tally of a call with `keys` keys.
    pub fn new(
        filter: &'a GuardedFilter,
        counting: &'a Counting,
        action: Action,
        session: Option<RetrySession<'b>>,
        keys: usize,
    ) -> Self {
        let log = filter.log.as_ref();
        Self {
            filter,
            counting,
            action,
            told: vec![false; keys],
            depends_on: 0,
            counted: Vec::new(),
            keeps_hashes: log.is_some() || session.is_some(),
            groups: Vec::new(),
            max_group_keys: log.map_or(usize::MAX, FilterLog::hashes_of_a_record),
            is_logged: log.is_some(),
            has_version: false,
            session,
        }
    }

    /// Begins a new lock. To be called before the lock is taken for more keys.
    pub fn begin_lock(&mut self) {
        self.has_version &= !self.is_logged;
    }

    /// Returns the version of the next counted key, under the lock that is held.
    #[inline(always)]
    fn version(&mut self) -> u64 {
        let counted = self.counted.len();
        match self.groups.last() {
            Some(last) if self.has_version && counted - last.begin < self.max_group_keys => {
                last.version
            }
            _ => {
                let versions = &self.filter.versions;
                let version = match self.is_logged {
                    true => versions.next_in_order(),
                    false => versions.next(),
                };
                let begin = counted;
                self.groups.push(Group { version, begin });
                self.has_version = true;
                version
            }
        }
    }

    /// Returns whether the request has counted the key before. A key that is in its batch twice was
    /// counted twice.
    fn is_done(&self, hash: KeyHash) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.has_ever_won(hash))
    }

    /// Returns the keys that were counted under each lock, with their version: one record each.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[KeyHash])> {
        let ends = self.groups.iter().skip(1).map(|next| next.begin);
        let ends = ends.chain([self.counted.len()]);
        self.groups.iter().zip(ends).map(|(group, end)| {
            let hashes = self.counted.get(group.begin..end);
            (group.version, hashes.unwrap_or_default())
        })
    }

    /// Returns the answer for the caller.
    pub fn answer(self) -> Answer<Vec<bool>> {
        let own = self.groups.last().map_or(0, |last| last.version);
        Answer {
            value: self.told,
            depends_on: own.max(self.depends_on),
        }
    }
}

impl Stepper<Shard> for Tally<'_, '_> {
    #[inline(always)]
    fn step(&self, hash: KeyHash) -> Step {
        match self.action {
            Action::QueryAndAdd => Step::AddNew,
            // The key is there then, unless it was removed meanwhile.
            Action::Add if self.is_done(hash) => Step::AddNew,
            Action::Add => Step::Add,
            Action::Remove if self.is_done(hash) => Step::Leave,
            Action::Remove => Step::Remove,
        }
    }

    #[inline(always)]
    fn done(&mut self, key: usize, hash: KeyHash, shard: &mut Shard, change: Option<CountEffect>) {
        self.depends_on = shard.state.version.max(self.depends_on);
        let told = match self.action {
            Action::QueryAndAdd => {
                let has_first_added = self
                    .session
                    .as_mut()
                    .map(|session| session.has_first_added(hash));
                change.is_none() && has_first_added != Some(true)
            }
            Action::Add => false,
            Action::Remove => change.is_some() || self.is_done(hash),
        };
        set(&mut self.told, key, told);
        let Some(change) = change else { return };
        let version = self.version();
        if self.keeps_hashes {
            self.counted.push(hash);
        }
        let direction = self.action.direction();
        self.counting.note(shard, direction, change, version);
    }
}
