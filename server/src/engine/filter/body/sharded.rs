//! The shards of a filter whose keys have all of their bits in one shard, and their memory.

use std::io;

use super::{
    content::{Content, LayoutContent},
    whole::KeyBits,
};
use crate::{
    engine::filter::{
        mapping::{self, Cache, Mapping, PageSize, Prefetcher, fetch_to_write},
        shard::Shard,
        stripes::{Stripe, Stripes},
    },
    filter::{
        blocked::LANES,
        cells::Values,
        format::{Format, KeyArea},
        hash::KeyHash,
        shape::Shape,
        spec::FilterSpec,
    },
    store::ShardState,
};

/// The shards of a filter that is not in layers, and their memory.
#[derive(Debug)]
pub struct Sharded<F> {
    pub format: F,
    pub shards: Stripes<Shard>,
    prefetcher: Prefetcher,
    page_size: PageSize,
}

impl<F: AsRef<Shape>> Sharded<F> {
    /// Reserves memory for shards, in which a key has `key_lines` cache lines.
    ///
    /// # Errors
    ///
    /// The error of the kernel if not enough address space is left.
    pub fn new(format: F, key_lines: usize) -> io::Result<Self> {
        let Mapping {
            shards,
            prefetcher,
            page_size,
        } = mapping::reserve(format.as_ref(), key_lines)?;
        Ok(Self {
            format,
            shards: Stripes::new(shards.into_iter().map(Shard::new)),
            prefetcher,
            page_size,
        })
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub fn fetch_word(&self, shard: usize, word: usize, to: Cache) {
        self.prefetcher.fetch(shard, word, to);
    }

    /// Returns the numbers of keys that were added and of bits that are set.
    pub fn sums(&self) -> (u64, u64) {
        let (mut keys_added, mut bits_set) = (0, 0);
        self.shards.for_each(|shard| {
            keys_added += shard.state.keys_added;
            bits_set += shard.state.bits_set;
        });
        (keys_added, bits_set)
    }

    /// Moves memory that has become dense to huge pages. Returns the number of keys that make the
    /// rest dense; `None` if there is no rest.
    pub fn look_at_pages(&self, bits_set: u64) -> Option<u64> {
        self.page_size.look(bits_set);
        self.page_size.dense_keys()
    }

    /// Moves memory that will be dense to huge pages, before shards with these states are restored.
    pub fn prepare_pages(&self, states: &mut dyn Iterator<Item = (usize, ShardState)>) {
        self.page_size
            .expect(states.map(|(_, state)| state.bits_set).sum());
    }
}

impl<F: Format> Sharded<F> {
    /// Returns a lock, and the index of the first shard that it guards.
    #[expect(
        clippy::indexing_slicing,
        reason = "the pipeline asks for locks of keys"
    )]
    #[inline]
    pub fn lock(&self, number: usize) -> (&Stripe<Shard>, usize) {
        (&self.shards.locks()[number], self.shards.first_of(number))
    }

    /// Returns the number of the lock of a key that has all of its bits in one shard.
    #[inline]
    pub fn lock_of(&self, hash: KeyHash) -> usize {
        self.shards.stripe_of(self.format.shape().shard(hash))
    }

    /// Prefetches a lock that is about to be taken.
    #[inline]
    pub fn fetch_lock(&self, number: usize) {
        fetch_to_write(&**self.lock(number).0);
    }

    /// Prefetches the cache lines of a key that has all of its bits in one shard.
    #[inline]
    pub fn fetch(&self, hash: KeyHash, to: Cache) {
        let shard = self.format.shape().shard(hash);
        self.format
            .visit_lines(hash, |word| self.prefetcher.fetch(shard, word, to));
    }

    /// Returns whether no bit is set in the shard of a key that has all of its bits in one shard.
    pub fn is_untouched(&self, hash: KeyHash) -> bool {
        let shard = self.format.shape().shard(hash);
        self.shards.read(shard).state.bits_set == 0
    }

    /// Returns the content of all shards. Takes each lock for a moment.
    pub fn content(&self, spec: &FilterSpec) -> Content<'_> {
        let (keys_added, bits_set) = self.sums();
        Content {
            keys_added,
            bits_set,
            fill_ratio: bits_set as f64 / spec.body.bit_count() as f64,
            layout: LayoutContent::Shards(&self.format),
        }
    }

    /// Returns the bits of a key. `stamps` returns the values in a shard that count as set.
    pub fn explain(&self, hash: KeyHash, stamps: impl FnOnce(&Shard) -> Values) -> KeyBits {
        let shape = self.format.shape();
        let number = shape.shard(hash);
        let shard = self.shards.read(number);
        let stamps = stamps(&shard);
        let bits = self.format.bits(hash).into_iter();
        let is_set = |bit| shape.is_set(&shard.words, bit, stamps);
        let mut lines = Vec::new();
        self.format
            .visit_lines(hash, |word| lines.push(word / LANES));
        let (block, lines) = match F::KEY_AREA {
            KeyArea::Block => (lines.pop(), Vec::new()),
            KeyArea::Lines => (None, lines),
            KeyArea::Shard => (None, Vec::new()),
        };
        KeyBits {
            layer: None,
            shard: Some(number),
            block,
            lines,
            bits: bits.map(|bit| (bit, is_set(bit))).collect(),
        }
    }
}

/// Implements the methods of [`Whole`](super::whole::Whole) that concern the shards, by the field
/// `sharded`.
macro_rules! whole_in_shards {
    () => {
        fn numbers(&self) -> std::ops::Range<usize> {
            0..self.sharded.format.as_ref().shard_count()
        }

        fn read(
            &self,
            number: usize,
        ) -> Option<$crate::sync::MappedRwLockReadGuard<'_, $crate::engine::filter::shard::Shard>> {
            Some(self.sharded.shards.read(number))
        }

        fn write(
            &self,
            number: usize,
        ) -> Option<$crate::sync::MappedRwLockWriteGuard<'_, $crate::engine::filter::shard::Shard>>
        {
            Some(self.sharded.shards.write(number))
        }

        fn get_mut(&mut self, number: usize) -> Option<&mut $crate::engine::filter::shard::Shard> {
            Some(self.sharded.shards.get_mut(number))
        }

        fn look_at_pages(&self, bits_set: u64) -> Option<u64> {
            self.sharded.look_at_pages(bits_set)
        }

        fn prepare_pages(
            &self,
            states: &mut dyn Iterator<Item = (usize, $crate::store::ShardState)>,
        ) {
            self.sharded.prepare_pages(states);
        }
    };
}
pub(super) use whole_in_shards;

/// Implements the methods of [`Body`](super::Body) that say where a key lies, by the field
/// `sharded`.
macro_rules! in_one_shard {
    () => {
        type Lock = $crate::engine::filter::stripes::Stripe<$crate::engine::filter::shard::Shard>;

        fn locks(&self) -> usize {
            self.sharded.shards.locks().len()
        }

        #[inline]
        fn lock(&self, number: usize) -> (&Self::Lock, usize) {
            self.sharded.lock(number)
        }

        #[inline]
        fn lock_of(&self, hash: KeyHash) -> usize {
            self.sharded.lock_of(hash)
        }

        #[inline]
        fn fetch_lock(&self, number: usize) {
            self.sharded.fetch_lock(number);
        }

        #[inline]
        fn fetch(&self, hash: KeyHash, to: Cache) {
            self.sharded.fetch(hash, to);
        }

        fn lines(&self, _: KeyHash) -> usize {
            self.sharded.format.key_lines()
        }

        fn is_untouched(&self, hash: KeyHash) -> bool {
            self.sharded.is_untouched(hash)
        }
    };
}
pub(super) use in_one_shard;

/// Implements the methods of [`Body`](super::Body) for queries of a kind whose keys are there
/// if their bits are set.
macro_rules! asks_whether_bits_are_set {
    () => {
        type Call = ();

        fn begin_query(&self, _: Option<Duration>) {}

        fn begin_write(&self, _: Action, _: Option<Duration>) {}

        #[inline]
        fn probe(
            &self,
            stripe: &Stripe<Shard>,
            first: usize,
            keys: Group<'_, '_, Self>,
            (): &(),
            mut found: impl FnMut(usize, u64, bool),
        ) {
            self.sharded.format.contains_each(
                &stripe.read(),
                first,
                keys,
                #[inline(always)]
                |key, shard: &Shard, there| found(key, shard.state.version, there),
            );
        }
    };
}
pub(super) use asks_whether_bits_are_set;
