//! The bits of a filter, with the rules of its kind.

use std::io;

use super::{
    aging::Aging, counting::Counting, foreign::Foreign, layered::Layered, shard::Shard,
    stripes::Stripes,
};
use crate::{
    engine::mapping::{self, Cache, Mapping, PageSize, Prefetcher},
    filter::{hash::KeyHash, shape::Shape},
};

/// The bits of a filter, with the rules of its kind.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a filter has one, and a pointer would cost each call a cache line"
)]
pub(super) enum Body {
    Plain(Sharded),
    Counting(Counting),
    Aging(Aging),
    Layered(Layered),
    Foreign(Foreign),
}

impl Body {
    /// Returns the shards; `None` of a filter in layers, which has partitions.
    #[inline]
    pub fn sharded(&self) -> Option<&Sharded> {
        match self {
            Self::Plain(sharded) => Some(sharded),
            Self::Counting(counting) => Some(&counting.sharded),
            Self::Aging(aging) => Some(&aging.sharded),
            Self::Foreign(foreign) => Some(&foreign.sharded),
            Self::Layered(_) => None,
        }
    }

    pub fn sharded_mut(&mut self) -> Option<&mut Sharded> {
        match self {
            Self::Plain(sharded) => Some(sharded),
            Self::Counting(counting) => Some(&mut counting.sharded),
            Self::Aging(aging) => Some(&mut aging.sharded),
            Self::Foreign(foreign) => Some(&mut foreign.sharded),
            Self::Layered(_) => None,
        }
    }

    pub fn counting(&self) -> Option<&Counting> {
        match self {
            Self::Counting(counting) => Some(counting),
            _ => None,
        }
    }

    pub fn aging(&self) -> Option<&Aging> {
        match self {
            Self::Aging(aging) => Some(aging),
            _ => None,
        }
    }

    pub fn aging_mut(&mut self) -> Option<&mut Aging> {
        match self {
            Self::Aging(aging) => Some(aging),
            _ => None,
        }
    }

    pub fn layered(&self) -> Option<&Layered> {
        match self {
            Self::Layered(layered) => Some(layered),
            _ => None,
        }
    }

    pub fn foreign(&self) -> Option<&Foreign> {
        match self {
            Self::Foreign(foreign) => Some(foreign),
            _ => None,
        }
    }
}

/// The shards of a filter that is not in layers, and their memory.
#[derive(Debug)]
pub(super) struct Sharded {
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
    pub fn new(shape: &Shape) -> io::Result<Self> {
        let Mapping {
            shards,
            prefetcher,
            page_size,
        } = mapping::reserve(shape)?;
        Ok(Self {
            shards: Stripes::new(shards.into_iter().map(Shard::new)),
            prefetcher,
            page_size,
        })
    }

    /// Prefetches the cache lines of a key that has all of its bits in one shard.
    #[inline]
    pub fn fetch(&self, shape: &Shape, hash: KeyHash, to: Cache) {
        let shard = shape.shard(hash);
        shape.visit_lines(hash, |word| self.prefetcher.fetch(shard, word, to));
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub fn fetch_word(&self, shard: usize, word: usize, to: Cache) {
        self.prefetcher.fetch(shard, word, to);
    }
}
