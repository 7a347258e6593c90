//! Batches: one lock of each stripe for many keys.
//!
//! A batch hashes all keys first. Then it visits them stripe by stripe, and takes the lock of a
//! stripe once for all its keys. If they are many, it releases the lock in between, so that other
//! calls do not wait too long. It prefetches the cache lines of the keys to come.
//!
//! Within a stripe the keys keep their order, and equal keys lie in one stripe. So a key that is in
//! a batch twice is seen the second time.

use std::{slice, time::Duration};

use super::{
    Answer, GuardedFilter, WriteContext,
    aging::Aging,
    body::{Body, Sharded},
    counting::Counting,
    foreign::Foreign,
    hashed_key::{HashedKey, answer_again, set},
    shard::Shard,
    stripes::{Stripe, Stripes},
};
use crate::{
    engine::{
        EngineError, Keys,
        mapping::{Cache, fetch_to_write},
    },
    filter::hash::KeyHash,
    planted::Bug,
    store::{RecordHead, RecordKind},
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

/// The greatest number of keys that a batch processes before it releases the lock of a stripe.
/// Other calls wait for the lock for some tenths of a millisecond at most.
pub(super) const MAX_KEYS_A_LOCK: usize = 2048;

/// The least number of keys for each stripe that makes sorting them worthwhile.
const MIN_KEYS_A_STRIPE: usize = 2;

impl GuardedFilter {
    /// Returns for each key whether it has been seen.
    pub fn query_batch(&self, keys: &impl Keys, max_age: Option<Duration>) -> Answer<Vec<bool>> {
        self.look_at_clock();
        let mut depends_on = 0;
        let (sharded, aging) = match &self.body {
            Body::Layered(layered) => {
                let found = |version: u64| depends_on = version.max(depends_on);
                let value = self.are_in_layers(layered, self.places(keys), found);
                self.counters.count(value.len(), trues(&value));
                return Answer { value, depends_on };
            }
            Body::Foreign(foreign) => {
                let answer = self.are_in_foreign(foreign, &self.places(keys));
                self.counters
                    .count(answer.value.len(), trues(&answer.value));
                return answer;
            }
            Body::Plain(plain) => (plain, None),
            Body::Counting(counting) => (&counting.sharded, None),
            Body::Aging(aging) => (&aging.sharded, Some(aging)),
        };
        let mut seen = vec![false; keys.iter().len()];
        self.visit_places(sharded, self.places(keys), |stripe, first_shard, keys| {
            let shards = &stripe.read();
            let tell = |key, shard: &Shard, there| {
                // The answer that a key is not there can depend on its removal.
                let rests = there || self.counts();
                if rests && !Bug::BatchSeenWithoutWaiting.is_planted() {
                    depends_on = shard.state.version.max(depends_on);
                }
                set(&mut seen, key, there);
            };
            match aging {
                None => self.shape.contains_each(shards, first_shard, keys, tell),
                Some(aging) => self.are_there(aging, shards, first_shard, keys, max_age, tell),
            }
        });
        self.counters.count(seen.len(), trues(&seen));
        Answer {
            value: seen,
            depends_on,
        }
    }

    /// Adds the keys, and returns for each whether it had been seen before.
    pub(super) fn insert_places(
        &self,
        plain: &Sharded,
        places: Vec<HashedKey>,
        change: WriteContext<'_>,
    ) -> Answer<Vec<bool>> {
        let mut seen = vec![true; places.len()];
        let (mut own_version, mut new, mut depends_on) = (None, 0, 0);
        let places = self.visit_places(plain, places, |stripe, first_shard, keys| {
            let mut tell = |key, shard: &mut Shard, bits_added| {
                if bits_added == 0 {
                    if !Bug::BatchSeenWithoutWaiting.is_planted() {
                        depends_on = shard.state.version.max(depends_on);
                    }
                    return;
                }
                let version = *own_version.get_or_insert_with(|| self.next_version());
                shard.note(bits_added, version);
                new += 1;
                set(&mut seen, key, false);
            };
            if Bug::BitByBit.is_planted() {
                for (key, hash) in keys {
                    let bits_added = self.insert_bit_by_bit(plain, hash);
                    let mut shard = plain.shards.write(self.shape.shard(hash));
                    tell(key, &mut shard, bits_added);
                }
                return;
            }
            self.shape
                .insert_each(&mut stripe.write(), first_shard, keys, tell);
        });
        let own = own_version.map(|version| (version, new));
        self.log_new(&places, &mut seen, own, change);
        Answer {
            value: seen,
            depends_on: own_version.unwrap_or(0).max(depends_on),
        }
    }

    /// Appends the keys that were not seen to the log, with the version and the number in `own`.
    /// For a retried request, marks the keys that it added before as not seen.
    pub(super) fn log_new(
        &self,
        places: &[HashedKey],
        seen: &mut [bool],
        own: Option<(u64, usize)>,
        change: WriteContext<'_>,
    ) {
        let WriteContext {
            reservation,
            mut session,
            ..
        } = change;
        if let Some((version, new)) = own {
            let is_new = |place: &&HashedKey| seen.get(place.key as usize) == Some(&false);
            let hashes = places.iter().filter(is_new).map(|place| place.hash);
            self.log_change(reservation, session.as_ref(), version, new, hashes);
        }
        answer_again(session.as_mut(), places, seen);
    }

    #[inline]
    fn stripe_of(&self, hash: KeyHash) -> u32 {
        // A filter has at most 2^25 shards, and at most 2^25 partitions.
        (match &self.body {
            Body::Layered(layered) => layered.stripe_of(hash),
            Body::Plain(sharded)
            | Body::Counting(Counting { sharded, .. })
            | Body::Aging(Aging { sharded, .. })
            | Body::Foreign(Foreign { sharded, .. }) => {
                sharded.shards.stripe_of(self.shape.shard(hash))
            }
        }) as u32
    }

    /// Hashes the keys, and returns their places.
    #[expect(clippy::indexing_slicing, reason = "each key has a place")]
    pub(super) fn places(&self, keys: &impl Keys) -> Vec<HashedKey> {
        let keys = keys.iter();
        let mut places = vec![HashedKey::default(); keys.len()];
        let mut tell = |key, hash| {
            places[key] = self.place(key, hash);
        };
        match &self.spec.key_profile {
            None => self.hasher.hash_each(keys, tell),
            // Hashing several keys at once would save only a hundredth of the cost of their
            // canonical forms.
            Some(_) => keys
                .enumerate()
                .for_each(|(index, key)| tell(index, self.hash(key))),
        }
        places
    }

    /// Returns the place of the key with the index `key`.
    #[inline]
    pub(super) fn place(&self, key: usize, hash: KeyHash) -> HashedKey {
        HashedKey {
            hash,
            stripe: self.stripe_of(hash),
            // A message has no more than 2^20 keys.
            key: key as u32,
        }
    }

    /// Returns the places of hashes.
    pub(super) fn placed<'a>(
        &self,
        hashes: impl IntoIterator<Item = &'a KeyHash>,
    ) -> Vec<HashedKey> {
        let numbered = hashes.into_iter().enumerate();
        numbered.map(|(key, &hash)| self.place(key, hash)).collect()
    }

    /// Visits hashed keys of a filter that is not in layers.
    pub(super) fn visit_places(
        &self,
        sharded: &Sharded,
        places: Vec<HashedKey>,
        visit: impl FnMut(&Stripe<Shard>, usize, Group<'_, '_>),
    ) -> Vec<HashedKey> {
        self.visit_stripes(&sharded.shards, places, visit)
    }

    /// Calls `visit` for each stripe that has keys, in turn, with the index of its first value and
    /// its keys. Calls it several times for a stripe with many keys.
    #[expect(
        clippy::indexing_slicing,
        reason = "`stripe_of` returns less than the number of stripes"
    )]
    pub(super) fn visit_stripes<T>(
        &self,
        stripes: &Stripes<T>,
        mut places: Vec<HashedKey>,
        mut visit: impl FnMut(&Stripe<T>, usize, Group<'_, '_>),
    ) -> Vec<HashedKey> {
        let locks = stripes.locks();
        let shares_locks = places.len() >= MIN_KEYS_A_STRIPE * locks.len();
        // Where keys are counted, each lock that is taken costs a version and a record.
        let is_worthwhile = match self.counts() {
            true => places.len() > 1 && locks.len() > 1,
            false => shares_locks,
        };
        if is_worthwhile {
            places = by_stripe(&places, locks.len());
        }

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
        let mut fetches = Fetches::new(self, &places, to, lines);
        let mut visited = 0;
        let of_stripes = places.chunk_by(|left, right| left.stripe == right.stripe);
        for keys in of_stripes.flat_map(|keys| keys.chunks(MAX_KEYS_A_LOCK)) {
            visited += keys.len();
            if let Some(next) = places.get(visited) {
                // Most likely another core had it last.
                fetch_to_write(&*locks[next.stripe as usize]);
            }
            let fetches = &mut fetches;
            let stripe = keys[0].stripe as usize;
            let keys = keys.iter();
            let first = stripes.first_of(stripe);
            visit(&locks[stripe], first, Group { keys, fetches });
        }
        places
    }

    /// Replays keys that an earlier process has hashed. All were added by calls up to the version
    /// of the record, at its epoch and to its layer, if the log has these.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoRoomToRestore`].
    pub fn replay(
        &self,
        &RecordHead { version, kind, .. }: &RecordHead,
        hashes: &[KeyHash],
    ) -> Result<(), EngineError> {
        self.pass_version(version);
        self.note_new(hashes.len());
        match &self.body {
            Body::Plain(Sharded { shards, .. })
            | Body::Counting(Counting {
                sharded: Sharded { shards, .. },
                ..
            }) => {
                self.visit_stripes(shards, self.placed(hashes), |stripe, first_shard, keys| {
                    let tell = |_, shard: &mut Shard, bits_added| {
                        if bits_added > 0 {
                            shard.note(bits_added, version);
                        }
                    };
                    self.shape
                        .insert_each(&mut stripe.write(), first_shard, keys, tell);
                });
            }
            Body::Aging(aging) => {
                let epoch = match kind {
                    RecordKind::AddedAt { epoch } => epoch,
                    _ => 0,
                };
                self.replay_stamped(aging, version, epoch, hashes);
            }
            Body::Layered(layered) => {
                let layer = match kind {
                    RecordKind::AddedTo { layer } => layer,
                    _ => 0,
                };
                self.replay_in_layers(layered, version, layer, hashes)?;
            }
            Body::Foreign(foreign) => self.replay_in_foreign(foreign, version, hashes),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn fetch(&self, hash: KeyHash, to: Cache) {
        match &self.body {
            Body::Plain(sharded)
            | Body::Counting(Counting { sharded, .. })
            | Body::Aging(Aging { sharded, .. }) => sharded.fetch(&self.shape, hash, to),
            Body::Layered(layered) => layered.partitions.fetch(hash, to),
            Body::Foreign(foreign) => foreign.fetch(hash, to),
        }
    }
}

/// The keys of a batch that lie in one stripe: their indexes in the batch, and their hashes.
pub(super) struct Group<'a, 'b> {
    keys: slice::Iter<'a, HashedKey>,
    fetches: &'a mut Fetches<'b>,
}

impl Iterator for Group<'_, '_> {
    type Item = (usize, KeyHash);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let place = self.keys.next()?;
        self.fetches.step();
        Some((place.key as usize, place.hash))
    }
}

/// The prefetches of a batch, in bursts: one burst runs while the keys of the previous burst are
/// visited.
///
/// Taking a lock waits until earlier prefetches have found their pages. Far beyond the caches, this
/// takes as long as the memory access itself. With bursts, a batch waits once for each burst, and
/// not once for each key.
struct Fetches<'b> {
    filter: &'b GuardedFilter,
    coming: slice::Iter<'b, HashedKey>,
    to: Cache,
    /// The keys of a burst.
    burst: usize,
    /// The keys to visit before the next burst.
    left: usize,
}

impl<'b> Fetches<'b> {
    /// Prefetches the first burst. Each burst has about `at_once` lines.
    fn new(filter: &'b GuardedFilter, places: &'b [HashedKey], to: Cache, at_once: usize) -> Self {
        let mut lines = 0;
        match (places.first(), &filter.body) {
            (None, _) => {}
            (Some(_), Body::Layered(layered)) => lines = layered.partitions.mapped(),
            (Some(first), _) => filter.shape.visit_lines(first.hash, |_| lines += 1),
        }
        let mut fetches = Self {
            filter,
            coming: places.iter(),
            to,
            burst: (at_once / lines.max(1)).max(1),
            left: 0,
        };
        fetches.burst();
        fetches
    }

    #[inline]
    fn step(&mut self) {
        if self.left == 0 {
            self.burst();
            self.left = self.burst;
        }
        self.left -= 1;
    }

    /// Prefetches the lines of the next keys. Not inlined: it would take registers from the loop
    /// over the keys.
    #[inline(never)]
    fn burst(&mut self) {
        let places = self.coming.by_ref().take(self.burst);
        places.for_each(|place| self.filter.fetch(place.hash, self.to));
    }
}

/// Returns the places sorted by stripe, with a counting sort. The places of one stripe keep their
/// order. The stripe of the first key comes first, and after the last stripe the order wraps
/// around. Otherwise batches that arrive at the same time would wait for each other at one stripe
/// after the other.
#[expect(
    clippy::indexing_slicing,
    reason = "`ends` has a place for each stripe, and the last one is where the places end"
)]
fn by_stripe(places: &[HashedKey], stripes: usize) -> Vec<HashedKey> {
    let first = places.first().map_or(0, |place| place.stripe as usize);
    let mut ends = vec![0_u32; stripes];
    for place in places {
        ends[place.stripe as usize] += 1;
    }
    let mut end = 0;
    let (last, next) = ends.split_at_mut(first);
    for count in next.iter_mut().chain(last) {
        end += *count;
        *count = end;
    }
    let mut sorted = places.to_vec();
    for place in places.iter().rev() {
        let end = &mut ends[place.stripe as usize];
        *end -= 1;
        sorted[*end as usize] = *place;
    }
    sorted
}

/// Returns the number of values that are true.
pub(super) fn trues(values: &[bool]) -> usize {
    values.iter().filter(|&&value| value).count()
}
