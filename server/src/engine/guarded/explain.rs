//! What a filter makes of a key, for whoever wonders why it is seen.

use super::{GuardedFilter, layered::Layered};
use crate::filter::{cells::Values, hash::KeyHash};

/// What a filter makes of a key, and what it knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is hashed.
    pub canonical_key: Vec<u8>,
    /// Its hash, under the filter's secret if the hash function takes one.
    pub hash: KeyHash,
    /// The layer that has the key, or else the one that it would come to, of a filter that is made
    /// of layers.
    pub layer: Option<usize>,
    /// The shard that all bits of the key lie in, if they lie in one.
    pub shard: Option<usize>,
    /// The block in the shard that they lie in, if the layout has blocks, and the key bits.
    pub block: Option<usize>,
    /// The lines of 64 bytes in the shard that its counters or stamps lie in, if it has such.
    pub lines: Vec<usize>,
    /// The bits, each with its index in the shard, or in the filter if they may lie in several
    /// shards, and whether it is set.
    pub bits: Vec<(u64, bool)>,
}

impl Explanation {
    /// Whether the key is seen: all of its bits are set.
    pub fn seen(&self) -> bool {
        self.bits.iter().all(|&(_, is_set)| is_set)
    }
}

impl GuardedFilter {
    /// What the filter makes of a key, as its memory is now. Changes nothing, and is not counted
    /// as a query.
    pub fn explain(&self, key: &[u8]) -> Explanation {
        let profile = self.spec.key_profile.as_ref();
        let canonical_key = match profile {
            None => key.to_vec(),
            Some(profile) => profile.canonical(key).into_owned(),
        };
        let hash = self.hasher.hash(&canonical_key);
        if let Some(layered) = &self.layered {
            return self.explain_in_layers(layered, canonical_key, hash);
        }
        if let Some(array) = &self.array {
            return self.explain_in_array(array, canonical_key, hash);
        }
        self.look_at_clock();
        let shard = self.shape.shard(hash);
        let bits = self.shape.bits(hash);
        let lines = self.shape.lines_of_cells(hash);
        let locked = self.shards.read(shard);
        let stamps = self.stamps(&locked);
        let is_set = |bit| self.shape.is_set(&locked.words, bit, stamps);
        Explanation {
            canonical_key,
            hash,
            layer: None,
            shard: Some(shard),
            block: self.shape.block_of(hash).filter(|_| lines.is_empty()),
            lines,
            bits: bits.into_iter().map(|bit| (bit, is_set(bit))).collect(),
        }
    }

    /// Tells of the layer that has the key, or else of the one that it would come to.
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
