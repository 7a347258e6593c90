//! Many keys of several shards, one after the other, with the instructions of one level.

use fearless_simd::Simd;

use super::Shape;
use crate::{
    aging::{self, Stamping},
    cells::Values,
    counting::Stepper,
    hash::KeyHash,
};

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
#[inline(always)]
pub fn contains_each<S: Simd, W: AsRef<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &[W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut tell: impl FnMut(usize, &W, bool),
) {
    for (number, hash) in keys {
        let shard = &shards[shape.shard(hash) - first_shard];
        tell(
            number,
            shard,
            shape.contains_with(simd, shard.as_ref(), hash),
        );
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
#[inline(always)]
pub fn insert_each<S: Simd, W: AsMut<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &mut [W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut tell: impl FnMut((usize, KeyHash), &mut W, u32),
) {
    for (number, hash) in keys {
        let shard = &mut shards[shape.shard(hash) - first_shard];
        let bits_added = shape.insert_with(simd, shard.as_mut(), hash);
        tell((number, hash), shard, bits_added);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
#[inline(always)]
pub fn take_each<S: Simd, W: AsMut<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &mut [W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    stepper: &mut impl Stepper<W>,
) {
    for (number, hash) in keys {
        let shard = &mut shards[shape.shard(hash) - first_shard];
        let change = shape.take_with(simd, shard.as_mut(), hash, stepper.step(hash));
        stepper.done(number, hash, shard, change);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys, and blocks are chosen inside of them"
)]
#[inline(always)]
pub fn contains_stamped<S: Simd, W: AsRef<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &[W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut there: impl FnMut(&W) -> Values,
    mut tell: impl FnMut(usize, &W, bool),
) {
    for (number, hash) in keys {
        let shard = &shards[shape.shard(hash) - first_shard];
        let seen = shape.contains_stamped_with(simd, shard.as_ref(), hash, there(shard));
        tell(number, shard, seen);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys, and blocks are chosen inside of them"
)]
#[expect(
    clippy::too_many_arguments,
    reason = "those of the method, and two more"
)]
#[inline(always)]
pub fn stamp_each<S: Simd, W: AsMut<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &mut [W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    renews: bool,
    mut how: impl FnMut(&mut W) -> Stamping,
    mut tell: impl FnMut((usize, KeyHash), &mut W, Option<aging::StampEffect>),
) {
    for (number, hash) in keys {
        let shard = &mut shards[shape.shard(hash) - first_shard];
        let how = how(shard);
        let change = shape.stamp_with(simd, shard.as_mut(), hash, how, renews);
        tell((number, hash), shard, change);
    }
}
