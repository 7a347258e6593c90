//! The explanation of a query: the hash of a key, the place of its bits, and whether each bit is
//! set.

use crate::{
    engine::filter::{Filter, body::KeyBits},
    filter::hash::KeyHash,
};

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

impl Filter {
    /// Returns the [`Explanation`] of a key from the current memory. Changes nothing, and does not
    /// count as a query.
    pub fn explain(&self, key: &[u8]) -> Explanation {
        let profile = self.spec.key_profile.as_ref();
        let canonical_key = match profile {
            None => key.to_vec(),
            Some(profile) => profile.canonical(key).into_owned(),
        };
        let hash = self.hasher.hash(&canonical_key);
        let KeyBits {
            layer,
            shard,
            block,
            lines,
            bits,
        } = self.body.whole().explain(hash);
        Explanation {
            canonical_key,
            hash,
            layer,
            shard,
            block,
            lines,
            bits,
        }
    }
}
