//! Keys in the layers of their partitions.
//!
//! A partition is whatever gives its shards: those of its first layer, then those of the second,
//! and so on, as many layers as it has come to.

use fearless_simd::{Level, Simd, dispatch};

use super::{Layer, Layers};
use crate::{
    blocked::{self, BLOCK_BITS},
    hash::{KeyHash, choose},
    shape::{as_blocks, as_blocks_mut},
};

/// What became of a key that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// The number of the layer that has the key.
    pub layer: usize,
    /// The place among the shards of the partition of the one that has the key.
    pub shard: usize,
    /// How many of its bits were not set in that shard before: 0 means that the key was there
    /// already, or seemed to be.
    pub bits: u32,
}

impl Layers {
    /// How many layers a partition has come to that has so many shards.
    #[inline]
    pub fn layers_of(&self, shards: usize) -> usize {
        // Few, and foreseen by the processor, where a search would be waited for.
        self.layers
            .iter()
            .take_while(|layer| layer.end <= shards)
            .count()
    }

    /// The place, among so many shards of its partition, of the one in the newest layer that a key
    /// belongs to.
    pub fn newest_place(&self, shards: usize, hash: KeyHash) -> usize {
        let (_, rest) = choose(hash.high, self.partitions);
        let newest = self.layers.iter().take(self.layers_of(shards)).next_back();
        newest.map_or(0, |layer| layer.first_shard() + layer.place(rest).0)
    }

    /// In which shard of its partition a key is, given the shards of that partition.
    #[inline]
    pub fn find<W: AsRef<[u64]>>(&self, shards: &[W], hash: KeyHash) -> Option<usize> {
        dispatch!(Level::new(), simd => self.find_with(simd, shards, hash))
    }

    /// Adds a key to the newest layer of its partition unless any layer has it, given the shards
    /// of that partition, which must be those of one layer at least.
    #[inline]
    pub fn insert<W: AsMut<[u64]>>(&self, shards: &mut [W], hash: KeyHash) -> Added {
        dispatch!(Level::new(), simd => self.insert_with(simd, shards, hash))
    }

    /// Adds a key to a layer, whichever layers have it, given the shards of its partition, which must
    /// be those of that layer and all before it.
    #[expect(clippy::indexing_slicing, reason = "the caller's part of the bargain")]
    pub fn insert_in<W: AsMut<[u64]>>(
        &self,
        number: usize,
        shards: &mut [W],
        hash: KeyHash,
    ) -> Added {
        let (_, rest) = choose(hash.high, self.partitions);
        let layer = &self.layers[number];
        let (shard, block) = layer.place(rest);
        let shard = layer.first_shard() + shard;
        let block = &mut as_blocks_mut(shards[shard].as_mut())[block];
        let hash_count = layer.spec.hash_count;
        let bits = dispatch!(Level::new(), simd => {
            let absent = blocked::Lanes::of(simd, hash).absent(block, hash_count);
            blocked::set_absent(simd, block, absent, hash_count)
        });
        Added {
            layer: number,
            shard,
            bits,
        }
    }

    /// [`find`](Self::find) for many keys, one after the other, for less than as many calls. The
    /// partitions are those from `first_partition` on; each key comes with its number, and is told
    /// by it.
    pub fn find_each<P: AsRef<[W]>, W: AsRef<[u64]>>(
        &self,
        partitions: &[P],
        first_partition: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        tell: impl FnMut(usize, &P, Option<usize>),
    ) {
        dispatch!(Level::new(), simd => {
            find_each(simd, self, partitions, first_partition, keys, tell)
        });
    }

    /// [`insert`](Self::insert) for many keys, one after the other, for less than as many calls.
    /// The partitions are those from `first_partition` on; each key comes with its number, and is
    /// told by it. `tell` may give the partition another layer, for the keys that follow.
    ///
    /// The keys of a partition must not come sorted by their hashes: those that fill a layer would
    /// fill its first blocks alone, and the rate would be higher than its bits let expect.
    pub fn insert_each<P: AsMut<[W]>, W: AsMut<[u64]>>(
        &self,
        partitions: &mut [P],
        first_partition: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        tell: impl FnMut(usize, &mut P, Added),
    ) {
        dispatch!(Level::new(), simd => {
            insert_each(simd, self, partitions, first_partition, keys, tell)
        });
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives the shards of a partition, and blocks are chosen inside of them"
    )]
    #[inline(always)]
    fn find_with<S: Simd, W: AsRef<[u64]>>(
        &self,
        simd: S,
        shards: &[W],
        hash: KeyHash,
    ) -> Option<usize> {
        let (_, rest) = choose(hash.high, self.partitions);
        let lanes = blocked::Lanes::of(simd, hash);
        for layer in self.layers[..self.layers_of(shards.len())].iter().rev() {
            let (shard, block) = layer.place(rest);
            let shard = layer.first_shard() + shard;
            let block = &as_blocks(shards[shard].as_ref())[block];
            if blocked::is_empty(simd, lanes.absent(block, layer.spec.hash_count)) {
                return Some(shard);
            }
        }
        None
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives the shards of a partition, and blocks are chosen inside of them"
    )]
    #[inline(always)]
    fn insert_with<S: Simd, W: AsMut<[u64]>>(
        &self,
        simd: S,
        shards: &mut [W],
        hash: KeyHash,
    ) -> Added {
        let (_, rest) = choose(hash.high, self.partitions);
        let newest = self.layers_of(shards.len()) - 1;
        let (layer, older) = (&self.layers[newest], &self.layers[..newest]);
        let (shard, block) = layer.place(rest);
        let shard = layer.first_shard() + shard;
        let hash_count = layer.spec.hash_count;
        let lanes = blocked::Lanes::of(simd, hash);
        let absent = lanes.absent(&as_blocks_mut(shards[shard].as_mut())[block], hash_count);
        if blocked::is_empty(simd, absent) {
            return Added {
                layer: newest,
                shard,
                bits: 0,
            };
        }
        for (number, layer) in older.iter().enumerate().rev() {
            let (shard, block) = layer.place(rest);
            let shard = layer.first_shard() + shard;
            let block = &as_blocks_mut(shards[shard].as_mut())[block];
            if blocked::is_empty(simd, lanes.absent(block, layer.spec.hash_count)) {
                return Added {
                    layer: number,
                    shard,
                    bits: 0,
                };
            }
        }
        let block = &mut as_blocks_mut(shards[shard].as_mut())[block];
        let bits = blocked::set_absent(simd, block, absent, hash_count);
        Added {
            layer: newest,
            shard,
            bits,
        }
    }
}

impl Layer {
    /// The index of the cache line that holds all bits of a key, counted over all shards of the
    /// layer. For prefetching.
    #[inline]
    pub fn line(&self, hash: KeyHash) -> usize {
        // The partition, the shard and the block are digits of one number, so one multiplication
        // gives all three.
        choose(hash.high, self.blocks).0 as usize
    }

    /// The shard of a key among those of its partition, and the block in that shard, by what the
    /// choice of the partition has left of the high half of its hash. They are those that
    /// [`Layer::shape`] chooses.
    #[inline(always)]
    fn place(&self, rest: u64) -> (usize, usize) {
        let (shard, rest) = choose(rest, self.spec.shards);
        let (block, _) = choose(rest, self.spec.shard_bits / BLOCK_BITS);
        (shard as usize, block as usize)
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the partitions of its keys"
)]
#[inline(always)]
fn find_each<S: Simd, P: AsRef<[W]>, W: AsRef<[u64]>>(
    simd: S,
    layers: &Layers,
    partitions: &[P],
    first_partition: usize,
    mut keys: impl Iterator<Item = (usize, KeyHash)>,
    mut tell: impl FnMut(usize, &P, Option<usize>),
) {
    let first = &layers.layers[0];
    // The first key whose partition has several layers. The keys before it run in a loop of their
    // own, as fast as in a plain filter, because most filters never grow.
    let mut several = None;
    for (number, hash) in &mut keys {
        let (partition, rest) = choose(hash.high, layers.partitions);
        let partition = &partitions[partition as usize - first_partition];
        let shards = partition.as_ref();
        if shards.len() != first.end {
            several = Some((number, hash));
            break;
        }
        let (shard, block) = first.place(rest);
        let block = &as_blocks(shards[shard].as_ref())[block];
        let found = blocked::contains(simd, block, hash, first.spec.hash_count);
        tell(number, partition, found.then_some(shard));
    }
    while let Some((number, hash)) = several {
        let partition = &partitions[layers.partition(hash) - first_partition];
        let found = layers.find_with(simd, partition.as_ref(), hash);
        tell(number, partition, found);
        several = keys.next();
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the partitions of its keys"
)]
#[inline(always)]
fn insert_each<S: Simd, P: AsMut<[W]>, W: AsMut<[u64]>>(
    simd: S,
    layers: &Layers,
    partitions: &mut [P],
    first_partition: usize,
    mut keys: impl Iterator<Item = (usize, KeyHash)>,
    mut tell: impl FnMut(usize, &mut P, Added),
) {
    let first = &layers.layers[0];
    // As in `find_each`.
    let mut several = None;
    for (number, hash) in &mut keys {
        let (partition, rest) = choose(hash.high, layers.partitions);
        let partition = &mut partitions[partition as usize - first_partition];
        let shards = partition.as_mut();
        if shards.len() != first.end {
            several = Some((number, hash));
            break;
        }
        let (shard, block) = first.place(rest);
        let block = &mut as_blocks_mut(shards[shard].as_mut())[block];
        let added = Added {
            layer: 0,
            shard,
            bits: blocked::insert(simd, block, hash, first.spec.hash_count),
        };
        tell(number, partition, added);
    }
    while let Some((number, hash)) = several {
        let partition = &mut partitions[layers.partition(hash) - first_partition];
        let added = layers.insert_with(simd, partition.as_mut(), hash);
        tell(number, partition, added);
        several = keys.next();
    }
}
