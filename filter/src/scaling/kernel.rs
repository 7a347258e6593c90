//! Keys in the layers of their partitions.
//!
//! A partition is anything that gives access to its shards: first the shards of its first layer,
//! then those of the second, and so on, for all layers that it has so far.

use fearless_simd::{Level, Simd, dispatch};

use super::{Layer, Layers};
use crate::{
    blocked::{self, BLOCK_BITS, as_blocks, as_blocks_mut},
    hash::{KeyHash, choose},
};

/// The result of adding a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// The number of the layer that holds the key.
    pub layer: usize,
    /// The place, among the shards of the partition, of the shard that holds the key.
    pub shard: usize,
    /// The number of its bits that were not set in that shard before: 0 means that the key was
    /// present already, or seemed to be.
    pub bits: u32,
}

impl Layers {
    /// Returns the number of layers of a partition that has `shards` shards.
    #[inline]
    pub fn layers_of(&self, shards: usize) -> usize {
        // A partition has few layers, and the processor predicts this loop. A search would make it
        // wait.
        self.layers
            .iter()
            .take_while(|layer| layer.end <= shards)
            .count()
    }

    /// Returns the place, in a partition with `shards` shards, of the shard of the newest layer
    /// that a key belongs to.
    pub fn newest_place(&self, shards: usize, hash: KeyHash) -> usize {
        let (_, rest) = choose(hash.high, self.partitions);
        let newest = self.layers.iter().take(self.layers_of(shards)).next_back();
        newest.map_or(0, |layer| layer.first_shard() + layer.place(rest).0)
    }

    /// Returns the shard of its partition that holds a key, given the shards of that partition.
    #[inline]
    pub fn find<W: AsRef<[u64]>>(&self, shards: &[W], hash: KeyHash) -> Option<usize> {
        dispatch!(Level::new(), simd => self.find_with(simd, shards, hash))
    }

    /// Adds a key to the newest layer of its partition unless any layer has it. `shards` are the
    /// shards of that partition, of at least one layer.
    #[inline]
    pub fn insert<W: AsMut<[u64]>>(&self, shards: &mut [W], hash: KeyHash) -> Added {
        dispatch!(Level::new(), simd => self.insert_with(simd, shards, hash))
    }

    /// Adds a key to a layer, no matter which layers have it. `shards` are the shards of its
    /// partition, of that layer and all before it.
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

    /// Runs [`find`](Self::find) for many keys, one after the other, faster than separate calls.
    /// The partitions start at `first_partition`. Each key comes with its number, and `report`
    /// receives that number.
    pub fn find_each<P: AsRef<[W]>, W: AsRef<[u64]>>(
        &self,
        partitions: &[P],
        first_partition: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        report: impl FnMut(usize, &P, Option<usize>),
    ) {
        dispatch!(Level::new(), simd => {
            find_each(simd, self, partitions, first_partition, keys, report)
        });
    }

    /// Runs [`insert`](Self::insert) for many keys, one after the other, faster than separate
    /// calls. The partitions start at `first_partition`. Each key comes with its number, and `report`
    /// receives both. `report` can add a layer to the partition, for the keys that follow.
    ///
    /// The keys of a partition must not come sorted by their hashes. Otherwise the keys that fill a
    /// layer would fill only its first blocks, and the rate would be higher than the number of set
    /// bits predicts.
    pub fn insert_each<P: AsMut<[W]>, W: AsMut<[u64]>>(
        &self,
        partitions: &mut [P],
        first_partition: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        report: impl FnMut((usize, KeyHash), &mut P, Added),
    ) {
        dispatch!(Level::new(), simd => {
            insert_each(simd, self, partitions, first_partition, keys, report)
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
    /// Returns the index of the cache line that holds all bits of a key, counted over all shards of
    /// the layer. For prefetching.
    #[inline]
    pub fn line(&self, hash: KeyHash) -> usize {
        // The partition, the shard and the block are digits of one number, so one multiplication
        // gives all three.
        choose(hash.high, self.blocks).0 as usize
    }

    /// Returns the shard of a key among the shards of its partition, and the block in that shard.
    /// `rest` is the part of the high half of the hash that the choice of the partition left over.
    /// The result is the same as the choice of [`Layer::blocked`].
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
    mut report: impl FnMut(usize, &P, Option<usize>),
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
        report(number, partition, found.then_some(shard));
    }
    while let Some((number, hash)) = several {
        let partition = &partitions[layers.partition(hash) - first_partition];
        let found = layers.find_with(simd, partition.as_ref(), hash);
        report(number, partition, found);
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
    mut report: impl FnMut((usize, KeyHash), &mut P, Added),
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
        report((number, hash), partition, added);
    }
    while let Some((number, hash)) = several {
        let partition = &mut partitions[layers.partition(hash) - first_partition];
        let added = layers.insert_with(simd, partition.as_mut(), hash);
        report((number, hash), partition, added);
        several = keys.next();
    }
}
