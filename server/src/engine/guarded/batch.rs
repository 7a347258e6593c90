//! Batches: many keys for one look at each shard.
//!
//! All keys are hashed first. Then they are visited shard by shard, so that one lock is taken
//! for all keys of a shard, and with the cache lines of those to come fetched ahead. Within a
//! shard they keep their order, and equal keys lie in one shard: so a key that stands in a
//! batch twice is seen the second time.

use std::slice;

use parking_lot::RwLock;

use super::{GuardedFilter, Shard};
use crate::{engine::Keys, filter::hash::KeyHash};

/// The cache lines that are fetched at once, ahead of use: enough to cover the latency of
/// memory, few enough for the buffers of one core.
const BURST_LINES: usize = 32;

/// With fewer keys for each shard than this, there is little to gain from their order.
const MIN_KEYS_A_SHARD: usize = 2;

impl GuardedFilter {
    /// Whether each of the keys has been seen.
    pub fn query_batch(&self, keys: &impl Keys) -> Vec<bool> {
        let mut seen = vec![false; keys.iter().len()];
        self.visit(keys, |shard, keys| {
            let shard = shard.read();
            self.shape.contains_each(&shard.words, keys, |key, there| {
                set(&mut seen, key, there);
            });
        });
        self.counters.count(seen.len(), trues(&seen));
        seen
    }

    /// Whether each of the keys had been seen before it was added, one after the other: a
    /// key that stands there twice is seen the second time.
    pub fn query_and_add_batch(&self, keys: &impl Keys) -> Vec<bool> {
        let mut seen = vec![false; keys.iter().len()];
        let new = self.insert_batch(keys, |key, is_new| set(&mut seen, key, !is_new));
        self.counters.count(seen.len(), seen.len() - new);
        seen
    }

    /// Adds the keys.
    pub fn add_batch(&self, keys: &impl Keys) {
        self.insert_batch(keys, |_, _| {});
    }

    /// Adds the keys, tells of each whether it is new, and returns how many are.
    fn insert_batch(&self, keys: &impl Keys, mut tell: impl FnMut(usize, bool)) -> usize {
        let mut new = 0;
        self.visit(keys, |shard, keys| {
            let mut shard = shard.write();
            let (mut keys_added, mut bits_added) = (0, 0);
            let words = &mut shard.words;
            self.shape.insert_each(words, keys, |key, bits| {
                keys_added += u64::from(bits > 0);
                bits_added += u64::from(bits);
                tell(key, bits > 0);
            });
            self.note(&mut shard, keys_added, bits_added);
            new += keys_added as usize;
        });
        self.advance(new);
        new
    }

    /// Hashes the keys, and calls `visit` for each shard in turn with its keys.
    #[expect(
        clippy::indexing_slicing,
        reason = "each key has a place, and `Shape::shard` returns less than the number of shards"
    )]
    fn visit(&self, keys: &impl Keys, mut visit: impl FnMut(&RwLock<Shard>, Group<'_, '_>)) {
        let keys = keys.iter();
        let mut places = vec![Place::default(); keys.len()];
        self.hasher.hash_each(keys, |key, hash| {
            // A filter has no more than 2^25 shards, and a message no more than 2^20 keys.
            places[key] = Place {
                hash,
                shard: self.shape.shard(hash) as u32,
                key: key as u32,
            };
        });
        if places.len() >= MIN_KEYS_A_SHARD * self.shards.len() {
            places = by_shard(&places, self.shards.len());
        }

        let mut fetches = Fetches::new(self, &places);
        for keys in places.chunk_by(|left, right| left.shard == right.shard) {
            let fetches = &mut fetches;
            let shard = &self.shards[keys[0].shard as usize];
            let keys = keys.iter();
            visit(shard, Group { keys, fetches });
        }
    }

    #[inline]
    fn fetch(&self, place: &Place) {
        self.shape.visit_lines(place.hash, |word| {
            self.prefetcher.fetch(place.shard as usize, word);
        });
    }
}

/// A key of a batch.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    hash: KeyHash,
    shard: u32,
    /// Its index in the batch.
    key: u32,
}

/// The keys of a batch that lie in one shard: their places in the batch, and their hashes.
struct Group<'a, 'b> {
    keys: slice::Iter<'a, Place>,
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

/// The lines of a batch, fetched ahead of use: one burst while those of the burst before are
/// visited. In bursts, because taking a lock waits for the fetches before it to find their
/// pages, which far beyond the caches takes as long as the memory itself: so it is waited for
/// once for each burst, and not for each key.
struct Fetches<'b> {
    filter: &'b GuardedFilter,
    coming: slice::Iter<'b, Place>,
    /// The keys of a burst.
    burst: usize,
    /// The keys to visit before the next burst.
    left: usize,
}

impl<'b> Fetches<'b> {
    fn new(filter: &'b GuardedFilter, places: &'b [Place]) -> Self {
        let mut lines = 0;
        if let Some(first) = places.first() {
            filter.shape.visit_lines(first.hash, |_| lines += 1);
        }
        let mut fetches = Self {
            filter,
            coming: places.iter(),
            burst: (BURST_LINES / lines.max(1)).max(1),
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

    fn burst(&mut self) {
        let places = self.coming.by_ref().take(self.burst);
        places.for_each(|place| self.filter.fetch(place));
    }
}

/// The same places in the order of their shards, those of one shard as they were: a counting
/// sort.
#[expect(
    clippy::indexing_slicing,
    reason = "`ends` has a place for each shard, and they end where the places do"
)]
fn by_shard(places: &[Place], shards: usize) -> Vec<Place> {
    let mut ends = vec![0_u32; shards];
    for place in places {
        ends[place.shard as usize] += 1;
    }
    let mut end = 0;
    for count in &mut ends {
        end += *count;
        *count = end;
    }
    let mut sorted = places.to_vec();
    for place in places.iter().rev() {
        let end = &mut ends[place.shard as usize];
        *end -= 1;
        sorted[*end as usize] = *place;
    }
    sorted
}

#[inline]
fn set(values: &mut [bool], index: usize, value: bool) {
    if let Some(place) = values.get_mut(index) {
        *place = value;
    }
}

fn trues(values: &[bool]) -> usize {
    values.iter().filter(|&&value| value).count()
}
