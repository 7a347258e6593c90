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
    /// The bits of the key, and where they lie.
    pub place: KeyBits,
}

impl Explanation {
    /// Returns whether the key is seen: all of its bits are set.
    pub fn seen(&self) -> bool {
        self.place.bits.iter().all(|&(_, is_set)| is_set)
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
        Explanation {
            canonical_key,
            hash,
            place: self.body.whole().explain(hash),
        }
    }
}
