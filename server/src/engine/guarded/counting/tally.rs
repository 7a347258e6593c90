//! What a call counts, key by key and lock by lock.

use super::{Action, Counting};
use crate::{
    engine::{
        guarded::{Answer, GuardedFilter, batch::set, shards::Shard},
        journal::FilterLog,
        requests::Turn,
    },
    filter::{
        counting::{Change, Step, Stepper},
        hash::KeyHash,
    },
};

/// What a call has done with its keys so far.
pub struct Tally<'a, 'b> {
    filter: &'a GuardedFilter,
    counting: &'a Counting,
    action: Action,
    pub turn: Option<Turn<'b>>,
    /// Of each key, whether it was there or, of those to be removed, whether it was taken out; of
    /// those to be added nothing.
    told: Vec<bool>,
    rests_on: u64,
    /// The keys that it has counted, if anybody has a use for them: they are logged or remembered.
    pub counted: Vec<KeyHash>,
    keeps_hashes: bool,
    groups: Vec<Group>,
    /// The most keys of a group: those of a record.
    max_group_keys: usize,
    /// Whether there is a log, which has a record for each group.
    is_logged: bool,
    /// Whether what is counted next has a version already: it is behind the same lock as the last
    /// group, if that matters.
    has_version: bool,
}

/// What a call has counted as one version of the filter: under one lock, if there is a log.
struct Group {
    version: u64,
    /// Where its keys begin among those that the call has counted.
    begin: usize,
}

impl<'a, 'b> Tally<'a, 'b> {
    /// That of a call with so many keys.
    pub fn new(
        filter: &'a GuardedFilter,
        counting: &'a Counting,
        action: Action,
        turn: Option<Turn<'b>>,
        keys: usize,
    ) -> Self {
        let log = filter.log.as_ref();
        Self {
            filter,
            counting,
            action,
            told: vec![false; keys],
            rests_on: 0,
            counted: Vec::new(),
            keeps_hashes: log.is_some() || turn.is_some(),
            groups: Vec::new(),
            max_group_keys: log.map_or(usize::MAX, FilterLog::hashes_of_a_record),
            is_logged: log.is_some(),
            has_version: false,
            turn,
        }
    }

    /// To be called before a lock is taken for more keys.
    pub fn begin_lock(&mut self) {
        self.has_version &= !self.is_logged;
    }

    /// The version of what is counted next, under the lock that is held.
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

    /// What a request has done before is done. A key that stands in its batch twice was counted
    /// twice.
    fn is_done(&self, hash: KeyHash) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.has_ever_won(hash))
    }

    /// What was counted under each lock, with its version: a record each.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[KeyHash])> {
        let ends = self.groups.iter().skip(1).map(|next| next.begin);
        let ends = ends.chain([self.counted.len()]);
        self.groups.iter().zip(ends).map(|(group, end)| {
            let hashes = self.counted.get(group.begin..end);
            (group.version, hashes.unwrap_or_default())
        })
    }

    /// What the caller is told.
    pub fn answer(self) -> Answer<Vec<bool>> {
        let own = self.groups.last().map_or(0, |last| last.version);
        Answer {
            value: self.told,
            rests_on: own.max(self.rests_on),
        }
    }
}

impl Stepper<Shard> for Tally<'_, '_> {
    #[inline(always)]
    fn step(&self, hash: KeyHash) -> Step {
        match self.action {
            Action::QueryAndAdd => Step::AddNew,
            // It is there then, but for one that was removed meanwhile.
            Action::Add if self.is_done(hash) => Step::AddNew,
            Action::Add => Step::Add,
            Action::Remove if self.is_done(hash) => Step::Leave,
            Action::Remove => Step::Remove,
        }
    }

    #[inline(always)]
    fn done(&mut self, key: usize, hash: KeyHash, shard: &mut Shard, change: Option<Change>) {
        self.rests_on = shard.state.version.max(self.rests_on);
        let told = match self.action {
            Action::QueryAndAdd => {
                let has_won = self.turn.as_mut().map(|turn| turn.has_won(hash));
                change.is_none() && has_won != Some(true)
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
