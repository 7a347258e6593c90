//! The explanation of a query: the hash of a key, the place of its bits, and whether each bit is
//! set.

use super::{
    GuardedFilter, aging::Aging, any_body::AnyBody, counting::Counting, layered::Layered,
    plain::Plain,
};
use crate::filter::{cells::Values, hash::KeyHash};

/// The hash and the bits of one key, and whether the filter has seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The bytes that are hashed: the key after the key profile, if the filter has one.
    pub canonical_key: Vec<u8>,
    /// The hash of these bytes, under the filter's secret if the hash function takes one.
    pub hash: KeyHash,
    /// The layer that holds the key, or the layer that would take it. `None` if the filter has no
    /// layers.
    pub layer: Option<usize>,
    /// The shard that holds all bits of the key. `None` if they can lie in several shards.
    pub shard: Option<usize>,
    /// The block in the shard that holds the bits. `None` if the layout has no blocks, or if the
    /// key has counters or stamps.
    pub block: Option<usize>,
    /// The 64-byte lines in the shard that hold the counters or stamps of the key. Empty if it has
    /// none.
    pub lines: Vec<usize>,
    /// The bits of the key: for each, its index and whether it is set. The index is in the shard,
    /// or in the filter if the bits can lie in several shards.
    pub bits: Vec<(u64, bool)>,
}

impl Explanation {
    /// Returns whether the key is seen: all of its bits are set.
    pub fn seen(&self) -> bool {
        self.bits.iter().all(|&(_, is_set)| is_set)
    }
}

impl GuardedFilter {
    /// Returns the [`Explanation`] of a key from the current memory. Changes nothing, and does not
    /// count as a query.
    pub fn explain(&self, key: &[u8]) -> Explanation {
        let profile = self.spec.key_profile.as_ref();
        let canonical_key = match profile {
            None => key.to_vec(),
            Some(profile) => profile.canonical(key).into_owned(),
        };
        let hash = self.hasher.hash(&canonical_key);
        let sharded = match &self.body {
            AnyBody::Layered(layered) => {
                return self.explain_in_layers(layered, canonical_key, hash);
            }
            AnyBody::Foreign(foreign) => {
                return self.explain_in_foreign(foreign, canonical_key, hash);
            }
            AnyBody::Plain(Plain { sharded, .. })
            | AnyBody::Counting(Counting { sharded, .. })
            | AnyBody::Aging(Aging { sharded, .. }) => sharded,
        };
        self.look_at_clock();
        let shard = self.shape.shard(hash);
        let bits = self.shape.bits(hash);
        let lines = self.shape.lines_of_cells(hash);
        let locked = sharded.shards.read(shard);
        let stamps = self.stamps(&locked);
        let is_set = |bit| self.shape.is_set(&locked.words, bit, stamps);
        Explanation {
            canonical_key,
            hash,
            layer: None,
            shard: Some(shard),
            block: self.shape.block_of(hash),
            lines,
            bits: bits.into_iter().map(|bit| (bit, is_set(bit))).collect(),
        }
    }

    /// Explains the layer that holds the key, or the layer that would take it.
    fn explain_in_layers(
        &self,
        layered: &Layered,
        canonical_key: Vec<u8>,
        hash: KeyHash,
    ) -> Explanation {
        let layers = layered.partitions.layers();
        let number = layered.partitions.find(hash);
        let shape = *layers.layer_of(number).shape();
        let bits = shape.bits(hash).into_iter();
        let shard = self.read_shard(number);
        let is_set = |bit| {
            let shard = shard.as_ref();
            shard.is_some_and(|shard| shape.is_set(&shard.words, bit, Values::SET))
        };
        Explanation {
            canonical_key,
            hash,
            layer: layers.locate(number).map(|(layer, ..)| layer),
            shard: Some(number),
            block: shape.block_of(hash),
            lines: Vec::new(),
            bits: bits.map(|bit| (bit, is_set(bit))).collect(),
        }
    }
}
