//! The shards of a filter whose keys have all of their bits in one shard, and their memory.

use std::io;

use super::{
    shard::Shard,
    stripes::{Stripe, Stripes},
};
use crate::{
    engine::mapping::{self, Cache, Mapping, PageSize, Prefetcher, fetch_to_write},
    filter::{hash::KeyHash, shape::Shape},
};

/// The shards of a filter that is not in layers, and their memory.
#[derive(Debug)]
pub(super) struct Sharded {
    pub shape: Shape,
    pub shards: Stripes<Shard>,
    prefetcher: Prefetcher,
    pub page_size: PageSize,
}

impl Sharded {
    /// Reserves memory for the shards of a shape.
    ///
    /// # Errors
    ///
    /// The error of the kernel if not enough address space is left.
    pub fn new(shape: Shape) -> io::Result<Self> {
        let Mapping {
            shards,
            prefetcher,
            page_size,
        } = mapping::reserve(&shape)?;
        Ok(Self {
            shape,
            shards: Stripes::new(shards.into_iter().map(Shard::new)),
            prefetcher,
            page_size,
        })
    }

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
        self.shards.stripe_of(self.shape.shard(hash))
    }

    /// Prefetches a lock that is about to be taken.
    #[inline]
    pub fn fetch_lock(&self, number: usize) {
        fetch_to_write(&**self.lock(number).0);
    }

    /// Prefetches the cache lines of a key that has all of its bits in one shard.
    #[inline]
    pub fn fetch(&self, hash: KeyHash, to: Cache) {
        let shard = self.shape.shard(hash);
        self.shape
            .visit_lines(hash, |word| self.prefetcher.fetch(shard, word, to));
    }

    /// Returns the number of cache lines of a key.
    pub fn lines(&self, hash: KeyHash) -> usize {
        let mut lines = 0;
        self.shape.visit_lines(hash, |_| lines += 1);
        lines
    }

    /// Returns whether no bit is set in the shard of a key that has all of its bits in one shard.
    pub fn is_untouched(&self, hash: KeyHash) -> bool {
        self.shards.read(self.shape.shard(hash)).state.bits_set == 0
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub fn fetch_word(&self, shard: usize, word: usize, to: Cache) {
        self.prefetcher.fetch(shard, word, to);
    }
}

/// Implements the methods of [`Body`](super::body::Body) that say where a key lies, by the field
/// `sharded`.
macro_rules! in_one_shard {
    () => {
        type Lock = $crate::engine::guarded::stripes::Stripe<$crate::engine::guarded::shard::Shard>;

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

        fn lines(&self, hash: KeyHash) -> usize {
            self.sharded.lines(hash)
        }

        fn is_untouched(&self, hash: KeyHash) -> bool {
            self.sharded.is_untouched(hash)
        }
    };
}
pub(super) use in_one_shard;
