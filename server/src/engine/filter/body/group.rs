//! The keys of a call that lie behind one lock, and the prefetches of the keys to come.

use std::slice;

use super::Body;
use crate::{
    engine::filter::{hashed_key::HashedKey, mapping::Cache},
    filter::hash::KeyHash,
};

/// The keys of a call that lie behind one lock: their indexes in the call, and their hashes.
pub struct Group<'a, 'b, B> {
    pub keys: slice::Iter<'a, HashedKey>,
    pub fetches: &'a mut Fetches<'b, B>,
}

impl<B: Body> Group<'_, '_, B> {
    /// Returns the hashes of the keys that are left.
    pub fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        self.keys.clone().map(|key| key.hash)
    }
}

impl<B: Body> Iterator for Group<'_, '_, B> {
    type Item = (usize, KeyHash);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let key = self.keys.next()?;
        self.fetches.step();
        Some((key.index as usize, key.hash))
    }
}

/// The prefetches of a batch, in bursts: one burst runs while the keys of the previous burst are
/// visited.
///
/// Taking a lock waits until earlier prefetches have found their pages. Far beyond the caches, this
/// takes as long as the memory access itself. With bursts, a batch waits once for each burst, and
/// not once for each key.
pub struct Fetches<'b, B> {
    body: &'b B,
    coming: slice::Iter<'b, HashedKey>,
    to: Cache,
    /// The keys of a burst.
    burst: usize,
    /// The keys to visit before the next burst.
    left: usize,
}

impl<'b, B: Body> Fetches<'b, B> {
    /// Prefetches the first burst. Each burst has about `at_once` lines.
    pub fn new(body: &'b B, keys: &'b [HashedKey], to: Cache, at_once: usize) -> Self {
        let lines = keys.first().map_or(0, |first| body.lines(first.hash));
        let mut fetches = Self {
            body,
            coming: keys.iter(),
            to,
            burst: (at_once / lines.max(1)).max(1),
            left: 0,
        };
        fetches.burst();
        fetches
    }

    /// Prefetches nothing.
    #[inline]
    pub fn none(body: &'b B) -> Self {
        Self {
            body,
            coming: [].iter(),
            to: Cache::First,
            burst: usize::MAX,
            left: usize::MAX,
        }
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
        let keys = self.coming.by_ref().take(self.burst);
        keys.for_each(|key| self.body.fetch(key.hash, self.to));
    }
}
