//! The way of the keys of a call, whatever the kind of the filter: hash, prefetch, group by lock,
//! look up or change, log, answer.
//!
//! A batch hashes all keys first. Then it visits them lock by lock, and takes each lock once for
//! all its keys. If they are many, it releases the lock in between, so that other calls do not wait
//! too long. It prefetches the cache lines of the keys to come.
//!
//! Behind one lock the keys keep their order, and equal keys have the same lock. So a key that is
//! in a batch twice is seen the second time.

use std::{slice, time::Duration};

use super::{
    Answer, Filter, WriteContext,
    body::{Body, Fetches, Group, Tally, Terms, WhenFull, set, with_body},
    hashed_key::HashedKey,
    mapping::Cache,
};
use crate::{
    engine::{
        call::{Action, Keys, check_deadline},
        error::EngineError,
    },
    filter::hash::KeyHash,
    planted::Bug,
    store::RecordHead,
};

/// The number of cache lines that are prefetched at once: enough to cover the latency of memory,
/// few enough for the buffers of one core.
const BURST_LINES: usize = 32;
/// The number of cache lines that are prefetched at once if each key has a lock of its own, which
/// waits for them. The first-level cache takes this many without stalling.
const BURST_LINES_A_LOCK_EACH: usize = 12;

/// The size of a filter from which on its lines are prefetched to the first-level cache
/// (`docs/adr/0005-locks.md`).
const LARGE_BYTES: u64 = 512 << 20;

/// The greatest number of keys that a batch processes before it releases a lock. Other calls wait
/// for the lock for some tenths of a millisecond at most.
pub const MAX_KEYS_A_LOCK: usize = 2048;

/// The least number of keys for each lock that makes sorting them worthwhile.
const MIN_KEYS_A_LOCK: usize = 2;

impl Filter {
    /// Returns whether a key has been seen.
    pub fn query(&self, key: &[u8], max_age: Option<Duration>) -> Answer<bool> {
        let hash = self.hash(key);
        let mut seen = false;
        let depends_on = with_body!(&self.body, body => {
            let keys = [hashed(body, 0, hash)];
            self.look_up(body, &keys, max_age, slice::from_mut(&mut seen))
        });
        self.counters.count(1, usize::from(seen));
        Answer {
            value: seen,
            depends_on,
        }
    }

    /// Returns for each key whether it has been seen.
    pub fn query_batch(&self, keys: &impl Keys, max_age: Option<Duration>) -> Answer<Vec<bool>> {
        let mut seen = vec![false; keys.iter().len()];
        let depends_on = with_body!(&self.body, body => {
            let keys = self.in_order(body, self.hash_keys(body, keys));
            self.look_up(body, &keys, max_age, &mut seen)
        });
        self.counters.count(seen.len(), trues(&seen));
        Answer {
            value: seen,
            depends_on,
        }
    }

    /// Applies an action to a key. Returns whether the key was there, or was removed; false for
    /// [`Action::Add`].
    ///
    /// # Errors
    ///
    /// [`EngineError::FilterFull`], [`EngineError::NotCounting`], or [`EngineError::FilterBusy`]
    /// for a call that must not wait; nothing has been changed.
    pub fn write(
        &self,
        key: &[u8],
        action: Action,
        mut context: WriteContext<'_>,
    ) -> Result<Answer<bool>, EngineError> {
        self.check_action(action)?;
        let hash = self.hash(key);
        let mut answer = false;
        let depends_on = with_body!(&self.body, body => {
            let keys = [hashed(body, 0, hash)];
            let answers = slice::from_mut(&mut answer);
            self.change(body, &keys, action, &mut context, WhenFull::Refuse, answers)
        })?;
        self.count_call(action, 1, usize::from(answer));
        Ok(Answer {
            value: answer && action != Action::Add,
            depends_on,
        })
    }

    /// [`Self::write`] for the keys of a batch, in their order. A key that is in the batch twice is
    /// seen the second time. Returns nothing for [`Action::Add`].
    ///
    /// # Errors
    ///
    /// As [`Self::write`], and [`EngineError::DeadlineOver`]; nothing has been changed.
    pub fn write_batch(
        &self,
        keys: &impl Keys,
        action: Action,
        mut context: WriteContext<'_>,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        self.check_action(action)?;
        let mut answers = vec![false; keys.iter().len()];
        let depends_on = with_body!(&self.body, body => {
            let keys = self.hash_keys(body, keys);
            check_deadline(context.deadline)?;
            let keys = self.in_order(body, keys);
            self.change(body, &keys, action, &mut context, WhenFull::Refuse, &mut answers)
        })?;
        self.count_call(action, answers.len(), trues(&answers));
        if action == Action::Add {
            answers.clear();
        }
        Ok(Answer {
            value: answers,
            depends_on,
        })
    }

    /// Applies to keys what a call has done with them in the other filter, which this one is to
    /// replace. Returns the version that this depends on.
    pub fn write_again(
        &self,
        hashes: &[KeyHash],
        action: Action,
        mut context: WriteContext<'_>,
    ) -> u64 {
        let mut answers = vec![false; hashes.len()];
        let changed = with_body!(&self.body, body => {
            let keys = self.in_order(body, with_locks(body, hashes));
            // No key is refused.
            self.change(body, &keys, action, &mut context, WhenFull::Add, &mut answers)
        });
        changed.unwrap_or(0)
    }

    /// Returns how many of some hashes are seen. Leaves memory untouched that has no bits.
    pub fn count_seen(&self, mut hashes: Vec<KeyHash>) -> usize {
        let mut seen = vec![false; hashes.len()];
        with_body!(&self.body, body => {
            hashes.retain(|&hash| !body.is_untouched(hash));
            let keys = self.in_order(body, with_locks(body, &hashes));
            self.look_up(body, &keys, None, &mut seen);
        });
        trues(&seen)
    }

    /// Replays keys of a record that an earlier process has logged. All were changed by calls up to
    /// the version of the record.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoRoomToRestore`].
    pub fn replay(&self, head: &RecordHead, hashes: &[KeyHash]) -> Result<(), EngineError> {
        self.pass_version(head.version);
        if hashes.is_empty() {
            return Ok(());
        }
        if head.kind.adds() {
            self.note_new(hashes.len());
        }
        with_body!(&self.body, body => {
            let replay = body.begin_replay(head);
            let replay = replay.map_err(|why| EngineError::NoRoomToRestore {
                name: self.name(),
                why,
            })?;
            if let Some(replay) = replay {
                let keys = self.in_order(body, with_locks(body, hashes));
                self.visit(body, &keys, |lock, first, keys| {
                    body.replay(lock, first, keys, head.version, &replay);
                });
            }
        });
        Ok(())
    }

    /// Looks keys up, and answers in `seen`. Returns the version that the answers depend on.
    pub fn look_up<B: Body>(
        &self,
        body: &B,
        keys: &[HashedKey],
        max_age: Option<Duration>,
        seen: &mut [bool],
    ) -> u64 {
        let mut depends_on = 0;
        let call = body.begin_query(max_age);
        self.visit(body, keys, |lock, first, keys| {
            body.probe(
                lock,
                first,
                keys,
                &call,
                #[inline(always)]
                |index, version, there| {
                    if (there || B::ABSENCE_DEPENDS) && !Bug::SeenWithoutWaiting.is_planted() {
                        depends_on = version.max(depends_on);
                    }
                    set(seen, index, there);
                },
            );
        });
        depends_on
    }

    /// Applies an action to keys, one after the other, and answers in `answers`: for each key whether
    /// it was there, or was removed. Where keys are counted, the answers for [`Action::Add`] mean
    /// nothing. Returns the version that the answers depend on.
    ///
    /// # Errors
    ///
    /// As [`Body::admit`].
    #[inline]
    fn change<B: Body>(
        &self,
        body: &B,
        keys: &[HashedKey],
        action: Action,
        context: &mut WriteContext<'_>,
        when_full: WhenFull,
        answers: &mut [bool],
    ) -> Result<u64, EngineError> {
        debug_assert!(self.check_action(action).is_ok(), "{action:?}");
        let terms = Terms {
            must_not_wait: context.must_not_wait,
            when_full,
        };
        let mut call = body.begin_write(action, context.max_age);
        body.admit(self, keys, terms, &mut call, |call| {
            let mut tally = Tally::new(self, action, context, answers);
            self.visit(body, keys, |lock, first, keys| {
                tally.begin_lock();
                body.apply(lock, first, keys, call, &mut tally);
            });
            tally.finish(body, keys)
        })
    }

    /// Fails if the filter does not support an action.
    #[inline]
    fn check_action(&self, action: Action) -> Result<(), EngineError> {
        match action == Action::Remove && !self.counts() {
            true => Err(EngineError::NotCounting { name: self.name() }),
            false => Ok(()),
        }
    }

    /// Counts a call with `keys` keys, of which `there` were there.
    #[inline]
    fn count_call(&self, action: Action, keys: usize, there: usize) {
        if action == Action::QueryAndAdd {
            self.counters.count(keys, there);
        }
        if action != Action::Remove {
            self.note_new(keys - there);
        }
    }

    /// Hashes the keys of a batch.
    fn hash_keys<B: Body>(&self, body: &B, keys: &impl Keys) -> Vec<HashedKey> {
        let keys = keys.iter();
        let mut hashed_keys = vec![HashedKey::default(); keys.len()];
        let mut note = |index: usize, hash| {
            if let Some(place) = hashed_keys.get_mut(index) {
                *place = hashed(body, index, hash);
            }
        };
        match &self.spec.key_profile {
            None => self.hasher.hash_each(keys, note),
            // Hashing several keys at once would save only a hundredth of the cost of their
            // canonical forms.
            Some(_) => keys
                .enumerate()
                .for_each(|(index, key)| note(index, self.hash(key))),
        }
        hashed_keys
    }

    /// Brings the keys of a batch into the order in which [`Self::visit`] visits them.
    fn in_order<B: Body>(&self, body: &B, keys: Vec<HashedKey>) -> Vec<HashedKey> {
        let locks = body.locks();
        // With a version for each lock, each lock that is taken costs a version and a record.
        let is_worthwhile = match B::HAS_VERSION_PER_LOCK {
            true => keys.len() > 1 && locks > 1,
            false => locks > 1 && keys.len() >= MIN_KEYS_A_LOCK * locks,
        };
        match is_worthwhile {
            true => by_lock(&keys, locks),
            false => keys,
        }
    }

    /// Calls `visit` for each lock that has keys, in turn, with the index of the first value that
    /// it guards and with its keys. Calls it several times for a lock with many keys.
    #[inline]
    fn visit<B: Body>(
        &self,
        body: &B,
        keys: &[HashedKey],
        mut visit: impl FnMut(&B::Lock, usize, Group<'_, '_, B>),
    ) {
        if let [key] = keys {
            // So that the wait for memory and the wait for the lock overlap. Another core may have
            // had the lock last.
            body.fetch(key.hash, Cache::First);
            let (lock, first) = body.lock(key.lock as usize);
            let fetches = &mut Fetches::none(body);
            let keys = keys.iter();
            return visit(lock, first, Group { keys, fetches });
        }
        let shares_locks = keys.len() >= MIN_KEYS_A_LOCK * body.locks();
        // With a lock for each key, no work overlaps with the way from one cache to the other, and
        // lines often arrive too late. In a large filter they often arrive too late, too.
        let to = match shares_locks && self.memory.bytes() < LARGE_BYTES {
            true => Cache::Second,
            false => Cache::First,
        };
        let lines = match shares_locks {
            true => BURST_LINES,
            false => BURST_LINES_A_LOCK_EACH,
        };
        let fetches = &mut Fetches::new(body, keys, to, lines);
        let mut visited = 0;
        let of_locks = keys.chunk_by(|left, right| left.lock == right.lock);
        for group in of_locks.flat_map(|keys| keys.chunks(MAX_KEYS_A_LOCK)) {
            visited += group.len();
            if let Some(next) = keys.get(visited) {
                // Most likely another core had it last.
                body.fetch_lock(next.lock as usize);
            }
            let Some(key) = group.first() else { continue };
            let (lock, first) = body.lock(key.lock as usize);
            let keys = group.iter();
            visit(lock, first, Group { keys, fetches });
        }
    }
}

/// Returns the key with an index of a batch.
#[inline]
fn hashed<B: Body>(body: &B, index: usize, hash: KeyHash) -> HashedKey {
    HashedKey {
        hash,
        // A filter has at most 2^25 shards, and at most 2^25 partitions.
        lock: body.lock_of(hash) as u32,
        // A message has no more than 2^20 keys.
        index: index as u32,
    }
}

/// Returns keys that have been hashed before.
fn with_locks<B: Body>(body: &B, hashes: &[KeyHash]) -> Vec<HashedKey> {
    let numbered = hashes.iter().enumerate();
    numbered
        .map(|(index, &hash)| hashed(body, index, hash))
        .collect()
}

/// Returns the keys sorted by lock, with a counting sort. The keys of one lock keep their order.
/// The lock of the first key comes first, and after the last lock the order wraps around. Otherwise
/// batches that arrive at the same time would wait for each other at one lock after the other.
#[expect(
    clippy::indexing_slicing,
    reason = "`ends` has a place for each lock, and the last one is where the keys end"
)]
fn by_lock(keys: &[HashedKey], locks: usize) -> Vec<HashedKey> {
    let first = keys.first().map_or(0, |key| key.lock as usize);
    let mut ends = vec![0_u32; locks];
    for key in keys {
        ends[key.lock as usize] += 1;
    }
    let mut end = 0;
    let (last, next) = ends.split_at_mut(first);
    for count in next.iter_mut().chain(last) {
        end += *count;
        *count = end;
    }
    let mut sorted = keys.to_vec();
    for key in keys.iter().rev() {
        let end = &mut ends[key.lock as usize];
        *end -= 1;
        sorted[*end as usize] = *key;
    }
    sorted
}

/// Returns the number of values that are true.
fn trues(values: &[bool]) -> usize {
    values.iter().filter(|&&value| value).count()
}
