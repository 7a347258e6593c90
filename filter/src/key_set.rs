//! Memory as a set of keys: keys are added to it, and found in it.

use fearless_simd::{Level, Simd, dispatch};

use crate::{format::Format, hash::KeyHash};

/// A format in which a key is there if its bits are set.
pub trait KeySet: Format {
    /// [`Self::contains`], with the instructions of one level.
    fn contains_with<S: Simd>(&self, simd: S, words: &[u64], hash: KeyHash) -> bool;

    /// [`Self::insert`], with the instructions of one level.
    fn insert_with<S: Simd>(&self, simd: S, words: &mut [u64], hash: KeyHash) -> u32;

    /// Returns whether a key is in its shard, given the shard's [words](crate::shape::Shape::shard_words).
    #[inline]
    fn contains(&self, words: &[u64], hash: KeyHash) -> bool {
        dispatch!(Level::new(), simd => self.contains_with(simd, words, hash))
    }

    /// Adds a key to its shard, and returns the number of its bits that were not set before: 0
    /// means that the key was present already (or seemed to be), any other number that it is new. A
    /// key that was present is not counted again.
    #[inline]
    fn insert(&self, words: &mut [u64], hash: KeyHash) -> u32 {
        dispatch!(Level::new(), simd => self.insert_with(simd, words, hash))
    }

    /// Runs [`contains`](Self::contains) for many keys, one after the other, faster than separate
    /// calls. The shards start at `first_shard`. Each key comes with its number, and `report`
    /// receives that number.
    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives the shards of its keys"
    )]
    fn contains_each<W: AsRef<[u64]>>(
        &self,
        shards: &[W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        mut report: impl FnMut(usize, &W, bool),
    ) {
        dispatch!(Level::new(), simd => {
            for (number, hash) in keys {
                let shard = &shards[self.shape().shard(hash) - first_shard];
                report(number, shard, self.contains_with(simd, shard.as_ref(), hash));
            }
        });
    }

    /// Runs [`insert`](Self::insert) for many keys, one after the other, faster than separate
    /// calls. The shards start at `first_shard`. Each key comes with its number, and `report`
    /// receives both.
    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives the shards of its keys"
    )]
    fn insert_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        mut report: impl FnMut((usize, KeyHash), &mut W, u32),
    ) {
        dispatch!(Level::new(), simd => {
            for (number, hash) in keys {
                let shard = &mut shards[self.shape().shard(hash) - first_shard];
                let bits_added = self.insert_with(simd, shard.as_mut(), hash);
                report((number, hash), shard, bits_added);
            }
        });
    }
}

/// A format whose memory is bits, so that a union of two filters has the bits that are set in either
/// ([`crate::union`]).
pub trait Bits: KeySet {}
