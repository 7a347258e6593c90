//! The effects of one write, key by key.

use smallvec::SmallVec;

use super::Body;
use crate::{
    engine::{
        call::Action,
        commit::FilterLog,
        filter::{Filter, WriteContext, hashed_key::HashedKey},
    },
    filter::hash::KeyHash,
    planted::Bug,
    store::RecordHead,
};

/// The effects of one write so far: what it answers for each key, which keys it has changed, and
/// its versions.
pub struct Tally<'a, 'r, B: Body> {
    filter: &'a Filter,
    action: Action,
    context: &'a mut WriteContext<'r>,
    /// The answer for each key, at its index: whether it was there, or was removed.
    answers: &'a mut [bool],
    depends_on: u64,
    /// The version of the next change; 0 if it needs a new one.
    version: u64,
    /// The versions of the call, in their order.
    given: SmallVec<[Given; 1]>,
    /// The keys that were changed, if they are to be logged or remembered.
    changed: SmallVec<[(B::Tag, KeyHash); 1]>,
    keeps_changed: bool,
    /// The number of changed keys from which on the next change needs a new version.
    full: usize,
}

/// A version that was given to a call.
#[derive(Debug, Clone, Copy)]
struct Given {
    version: u64,
    /// The index of its first key among the keys that the call has changed.
    begin: usize,
}

impl<'a, 'r, B: Body> Tally<'a, 'r, B> {
    /// Begins the tally of a write, which answers in `answers`.
    #[inline]
    pub fn new(
        filter: &'a Filter,
        action: Action,
        context: &'a mut WriteContext<'r>,
        answers: &'a mut [bool],
    ) -> Self {
        answers.fill(action != Action::Remove);
        let keeps_changed = filter.log.is_some() || context.session.is_some();
        let changed = match keeps_changed {
            true => SmallVec::with_capacity(answers.len()),
            false => SmallVec::new(),
        };
        Self {
            filter,
            action,
            context,
            answers,
            depends_on: 0,
            version: 0,
            given: SmallVec::new(),
            changed,
            keeps_changed,
            full: usize::MAX,
        }
    }

    /// Returns the action of the call.
    #[inline(always)]
    pub fn action(&self) -> Action {
        self.action
    }

    /// Returns whether an earlier call with the same request id has changed a key.
    #[inline(always)]
    pub fn is_done(&self, hash: KeyHash) -> bool {
        let session = self.context.session.as_ref();
        session.is_some_and(|session| session.has_added_first(hash))
    }

    /// Returns whether each lock needs a version of its own.
    #[inline(always)]
    fn is_by_lock(&self) -> bool {
        B::HAS_VERSION_PER_LOCK && self.filter.log.is_some()
    }

    /// Notes that a lock is about to be taken.
    #[inline(always)]
    pub fn begin_lock(&mut self) {
        if self.is_by_lock() {
            self.version = 0;
        }
    }

    /// Notes that the answer depends on a change of an earlier version.
    #[inline(always)]
    pub fn depends_on(&mut self, version: u64) {
        if !Bug::SeenWithoutWaiting.is_planted() {
            self.depends_on = version.max(self.depends_on);
        }
    }

    /// Returns the version of a change that is about to be made, under the lock that is held.
    #[inline(always)]
    pub fn version(&mut self) -> u64 {
        if self.version == 0 || (B::HAS_VERSION_PER_LOCK && self.changed.len() >= self.full) {
            self.next_version();
        }
        self.version
    }

    #[cold]
    fn next_version(&mut self) {
        let begin = self.changed.len();
        let versions = &self.filter.versions;
        self.version = match (self.is_by_lock(), &self.filter.log) {
            (true, Some(log)) => {
                self.full = begin + log.hashes_of_a_record();
                versions.next_in_order()
            }
            _ => versions.next(),
        };
        let version = self.version;
        self.given.push(Given { version, begin });
    }

    /// Notes that a key was changed: added where it was not there, or removed.
    #[inline(always)]
    pub fn changed(&mut self, (index, hash): (usize, KeyHash), tag: B::Tag) {
        set(self.answers, index, self.action == Action::Remove);
        self.changed_again(hash, tag);
    }

    /// Notes that a key was changed that was there, and is still there.
    #[inline(always)]
    pub fn changed_again(&mut self, hash: KeyHash, tag: B::Tag) {
        if self.keeps_changed {
            self.changed.push((tag, hash));
        }
    }

    /// Appends the records of the call to the log, remembers its keys for its request, and answers
    /// again what an earlier call of the request was answered. Returns the version that the answer
    /// depends on.
    #[inline]
    pub fn finish(mut self, body: &B, keys: &[HashedKey]) -> u64 {
        let own = self.given.last().map_or(0, |last| last.version);
        if !self.changed.is_empty() {
            self.record(body);
        }
        self.answer_again(keys);
        own.max(self.depends_on)
    }

    fn record(&mut self, body: &B) {
        let Self {
            filter,
            action,
            context,
            changed,
            given,
            ..
        } = self;
        let session = context.session.as_deref();
        if let Some(session) = session {
            let segment = filter.log.as_ref().map_or(0, FilterLog::segment);
            let first = changed.iter().filter(|(tag, _)| B::is_first(*tag));
            session.note_first_added(first.map(|&(_, hash)| hash).collect(), segment);
        }
        let (Some(log), Some(mut reservation)) = (&filter.log, context.reservation.take()) else {
            return;
        };
        let ends = given.iter().skip(1).map(|next| next.begin);
        let ends = ends
            .chain([changed.len()])
            .collect::<SmallVec<[usize; 1]>>();
        for (&Given { version, begin }, end) in given.iter().zip(ends) {
            let changed = changed.get_mut(begin..end);
            let changed = changed.expect("versions are in the order of their keys");
            let head = |tag| RecordHead {
                kind: body.record_kind(*action, tag),
                ..filter.record_head(session.filter(|_| B::is_first(tag)), version)
            };
            log.append_parts(&mut reservation, by_tag(changed, head));
        }
    }

    /// Answers a retried call as its first try was answered.
    fn answer_again(&mut self, keys: &[HashedKey]) {
        let session = self.context.session.as_mut();
        let Some(session) = session.filter(|session| session.is_repeated()) else {
            return;
        };
        for key in keys {
            let index = key.index as usize;
            match self.action {
                // Equal keys are visited in their order in the batch: the first one was new.
                Action::Add | Action::QueryAndAdd if session.has_first_added(key.hash) => {
                    set(self.answers, index, false);
                }
                Action::Remove if session.has_added_first(key.hash) => {
                    set(self.answers, index, true)
                }
                Action::Add | Action::QueryAndAdd | Action::Remove => {}
            }
        }
    }
}

/// Returns the records for changed keys: one for each tag, with the head for the tag.
pub fn by_tag<T: Copy + Ord>(
    changed: &mut [(T, KeyHash)],
    head: impl Fn(T) -> RecordHead,
) -> impl Iterator<Item = (RecordHead, usize, impl Iterator<Item = KeyHash>)> {
    // Most calls have one tag for all keys.
    if !changed.is_sorted_by_key(|(tag, _)| *tag) {
        changed.sort_by_key(|(tag, _)| *tag);
    }
    let parts = changed.chunk_by(|(left, _), (right, _)| left == right);
    parts.filter_map(move |part| {
        let &(tag, _) = part.first()?;
        Some((head(tag), part.len(), part.iter().map(|&(_, hash)| hash)))
    })
}

/// Sets the answer for the key with an index.
#[inline(always)]
pub fn set(values: &mut [bool], index: usize, value: bool) {
    debug_assert!(
        index < values.len(),
        "the keys of a call have indexes below their number"
    );
    if let Some(place) = values.get_mut(index) {
        *place = value;
    }
}
