//! The rules of a kind of filter, as a type.

mod aging;
mod any_body;
mod content;
mod counting;
mod foreign;
mod group;
mod layered;
mod plain;
mod sharded;
mod tally;
mod whole;

use std::time::Duration;

pub(super) use self::any_body::with_body;
pub use self::{
    any_body::AnyBody,
    content::Content,
    group::{Fetches, Group},
    tally::{Tally, set},
    whole::{KeyBits, Unfit, Whole},
};
#[cfg(test)]
pub use self::{layered::MergePlan, tally::by_tag};
use super::{Filter, hashed_key::HashedKey, mapping::Cache};
use crate::{
    engine::{
        call::Action,
        error::{EngineError, Full},
    },
    filter::hash::KeyHash,
    store::{RecordHead, RecordKind},
};

/// The types that `testing/models/` tries with loom.
#[cfg(loom)]
pub mod modelled {
    pub use super::layered::modelled::BitBudget;
}

/// The terms of a write that cannot go on at once.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Whether it runs on a thread that serves connections, which must not block.
    pub must_not_wait: bool,
    pub when_full: WhenFull,
}

/// The behaviour of a write whose keys have no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The call fails, and none of its keys is added.
    Refuse,
    /// The keys are added, and the false-positive rate rises.
    Add,
}

/// The bits of a filter, with the rules of its kind: where a key lies, what an operation does to
/// it, and what the log records of that. The pipeline does the rest, once for all kinds.
///
/// The pipeline calls [`probe`](Self::probe), [`apply`](Self::apply) and [`replay`](Self::replay)
/// for the keys that lie behind one lock, in their order. These methods take the lock.
pub trait Body: Sized {
    /// A lock with what it guards; `()` if each key takes locks of its own.
    type Lock;
    /// The parameters of one call, and what the kind adds up during the call.
    type Call;
    /// The part of a record that is not the hashes. Each value has a record of its own.
    type Tag: Copy + Ord;
    /// The parameters of the replay of one record.
    type Replay;

    /// Whether a call has a version for each lock that it takes to change something, and not one
    /// version in all. Only if there is a log.
    const HAS_VERSION_PER_LOCK: bool = false;
    /// Whether the answer that a key is not there can depend on a change: its removal.
    const ABSENCE_DEPENDS: bool = false;

    /// Returns the number of locks.
    fn locks(&self) -> usize;

    /// Returns a lock, and the index of the first value that it guards.
    fn lock(&self, number: usize) -> (&Self::Lock, usize);

    /// Returns the number of the lock of a key.
    fn lock_of(&self, hash: KeyHash) -> usize;

    /// Prefetches a lock that is about to be taken.
    fn fetch_lock(&self, number: usize);

    /// Prefetches the cache lines of a key.
    fn fetch(&self, hash: KeyHash, to: Cache);

    /// Returns the number of cache lines that [`Self::fetch`] prefetches.
    fn lines(&self, hash: KeyHash) -> usize;

    /// Returns whether no bit is set where a key lies, as far as that can be said without touching
    /// the bits. Locks.
    fn is_untouched(&self, hash: KeyHash) -> bool;

    /// Begins a query. To be called before a lock is taken.
    fn begin_query(&self, max_age: Option<Duration>) -> Self::Call;

    /// Begins a write. To be called before a lock is taken.
    fn begin_write(&self, action: Action, max_age: Option<Duration>) -> Self::Call;

    /// Calls `found` for each key with its index, the version of the latest change where it lies,
    /// and whether it is there.
    fn probe(
        &self,
        lock: &Self::Lock,
        first: usize,
        keys: Group<'_, '_, Self>,
        call: &Self::Call,
        found: impl FnMut(usize, u64, bool),
    );

    /// Applies the action of a call to its keys, and reports each effect to `tally`.
    fn apply(
        &self,
        lock: &Self::Lock,
        first: usize,
        keys: Group<'_, '_, Self>,
        call: &mut Self::Call,
        tally: &mut Tally<'_, '_, Self>,
    );

    /// Runs `write`, which applies an action to keys, when there is room for them.
    ///
    /// # Errors
    ///
    /// [`EngineError::FilterFull`], or [`EngineError::FilterBusy`] for a call that must not wait;
    /// `write` has not run then.
    #[inline(always)]
    fn admit<R>(
        &self,
        _filter: &Filter,
        _keys: &[HashedKey],
        _terms: Terms,
        call: &mut Self::Call,
        write: impl FnOnce(&mut Self::Call) -> R,
    ) -> Result<R, EngineError> {
        Ok(write(call))
    }

    /// Returns the kind of the record for the keys with a tag.
    fn record_kind(&self, action: Action, tag: Self::Tag) -> RecordKind;

    /// Returns whether keys with a tag were added first by the call, so that its request has to
    /// remember them.
    fn is_first(_tag: Self::Tag) -> bool {
        true
    }

    /// Prepares for the replay of a record. Returns `None` if its keys are of no effect any more.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no memory for them.
    fn begin_replay(&self, head: &RecordHead) -> Result<Option<Self::Replay>, Full>;

    /// Replays keys of a record. All were changed by calls up to `version`.
    fn replay(
        &self,
        lock: &Self::Lock,
        first: usize,
        keys: Group<'_, '_, Self>,
        version: u64,
        replay: &Self::Replay,
    );
}
