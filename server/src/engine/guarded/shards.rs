//! The shards of a filter, with their locks.
//!
//! A lock guards a stripe: one shard, or several neighbours if the filter has many shards. Taking a
//! lock waits for everything that the processor has in progress, also for prefetches. In a filter
//! far larger than the caches, this takes longer than the work on a key. So there are only as many
//! locks as keep the cores from waiting for each other, and a batch takes each lock for many keys.

use crossbeam_utils::CachePadded;

use super::one_or_many::OneOrMany;
use crate::{
    engine::mapping::ShardWords,
    store::ShardState,
    sync::{
        MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
        cores,
    },
};

/// The greatest number of locks for each core of the machine. A core holds one at a time. With 32
/// locks for each core, two cores still met at a lock so often that they lost a tenth of their
/// time. With twice as many as here, a batch of 1,000 takes a third longer
/// (`docs/adr/0005-locks.md`).
const STRIPES_A_CORE: usize = 128;

/// Returns the number of neighbours that one lock guards, if there are `count` in all: a power of
/// two.
pub fn stripe_width(count: usize) -> usize {
    width(count, Shards::most_stripes())
}

/// Returns the [`stripe_width`] for at most `stripes` locks.
fn width(count: usize, stripes: usize) -> usize {
    count.div_ceil(stripes).next_power_of_two()
}

/// All shards of a filter.
#[derive(Debug)]
pub struct Shards {
    /// The stripes, each in a cache line of its own. Otherwise cores would contend for different
    /// locks.
    stripes: Box<[CachePadded<RwLock<OneOrMany<Shard>>>]>,
    /// The number of shards in each stripe, as a power of two. The last stripe can have fewer.
    log2_width: u32,
}

// A stripe of one shard and its lock fit into one cache line.
const _: () = assert!(size_of::<RwLock<OneOrMany<Shard>>>() <= 64);

/// One shard.
#[derive(Debug)]
pub struct Shard {
    pub words: ShardWords,
    pub state: ShardState,
}

impl Shard {
    /// Records a new key, which set `bits_added` bits in a call with `version`.
    #[inline]
    pub fn note(&mut self, bits_added: u32, version: u64) {
        let state = &mut self.state;
        state.version = state.version.max(version);
        state.keys_added += 1;
        state.bits_set += u64::from(bits_added);
    }

    /// Records a key that was stamped in a call with `version`, `bits_added` of its bits for the
    /// first time.
    #[inline]
    pub fn note_stamped(&mut self, is_new: bool, bits_added: u32, version: u64) {
        let state = &mut self.state;
        state.version = state.version.max(version);
        state.keys_added += u64::from(is_new);
        state.bits_set += u64::from(bits_added);
    }
}

impl AsRef<[u64]> for Shard {
    #[inline]
    fn as_ref(&self) -> &[u64] {
        &self.words
    }
}

impl AsMut<[u64]> for Shard {
    #[inline]
    fn as_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}

impl Shards {
    /// Creates shards without keys, with as many locks as the machine has use for.
    pub fn new(words: Vec<ShardWords>) -> Self {
        let width = stripe_width(words.len());
        Self::striped(words, width)
    }

    /// Returns the greatest number of locks that a filter has.
    pub fn most_stripes() -> usize {
        STRIPES_A_CORE * cores()
    }

    /// Puts `width` shards behind each lock.
    fn striped(words: Vec<ShardWords>, width: usize) -> Self {
        let mut shards = words.into_iter().map(|words| Shard {
            words,
            state: ShardState::default(),
        });
        let stripes = std::iter::from_fn(|| {
            let stripe: OneOrMany<Shard> = shards.by_ref().take(width).collect();
            (!stripe.is_empty()).then(|| CachePadded::new(RwLock::new(stripe)))
        });
        Self {
            stripes: stripes.collect(),
            log2_width: width.trailing_zeros(),
        }
    }

    /// Returns the locks, each with its shards.
    pub fn stripes(&self) -> &[CachePadded<RwLock<OneOrMany<Shard>>>] {
        &self.stripes
    }

    /// Returns the index of the stripe that a shard is in.
    #[inline]
    pub fn stripe_of(&self, shard: usize) -> usize {
        shard >> self.log2_width
    }

    /// Returns the index of the first shard in a stripe.
    #[inline]
    pub fn first_shard(&self, stripe: usize) -> usize {
        stripe << self.log2_width
    }

    #[inline]
    fn locate(&self, shard: usize) -> (usize, usize) {
        let stripe = self.stripe_of(shard);
        (stripe, shard - self.first_shard(stripe))
    }

    /// Locks a shard against writers.
    ///
    /// # Panics
    ///
    /// This method and those like it panic if there is no such shard.
    #[expect(clippy::indexing_slicing, reason = "the caller's part of the bargain")]
    #[inline]
    pub fn read(&self, shard: usize) -> MappedRwLockReadGuard<'_, Shard> {
        let (stripe, place) = self.locate(shard);
        RwLockReadGuard::map(self.stripes[stripe].read(), |shards| &shards[place])
    }

    /// Locks a shard against readers and writers.
    #[expect(clippy::indexing_slicing, reason = "as for `read`")]
    #[inline]
    pub fn write(&self, shard: usize) -> MappedRwLockWriteGuard<'_, Shard> {
        let (stripe, place) = self.locate(shard);
        RwLockWriteGuard::map(self.stripes[stripe].write(), |shards| &mut shards[place])
    }

    /// Returns a shard of a filter that no other thread uses yet.
    #[expect(clippy::indexing_slicing, reason = "as for `read`")]
    pub fn get_mut(&mut self, shard: usize) -> &mut Shard {
        let (stripe, place) = self.locate(shard);
        &mut self.stripes[stripe].get_mut()[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::mapping,
        filter::spec::{Layout, SpecRequest},
    };

    #[test]
    fn every_shard_has_a_place_behind_few_locks() {
        let request = SpecRequest {
            layout: Layout::Blocked,
            bit_count: Some(300 << 25),
            false_positive_rate: None,
            ..SpecRequest::new(1000, 0.5)
        };
        let shape = request.resolve().unwrap().shape();
        for (stripes, expected) in [
            (1, 1),
            (7, 5),
            (150, 150),
            (256, 150),
            (300, 300),
            (1000, 300),
        ] {
            let words = mapping::reserve(&shape).unwrap().shards;
            let mut shards = Shards::striped(words, width(300, stripes));
            assert_eq!(shards.stripes().len(), expected);
            for shard in 0..300 {
                shards.get_mut(shard).state.version = shard as u64;
            }
            for shard in 0..300 {
                assert_eq!(shards.read(shard).state.version, shard as u64);
                assert_eq!(shards.write(shard).state.version, shard as u64);
            }
        }
    }
}
