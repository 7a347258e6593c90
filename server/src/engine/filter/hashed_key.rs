//! A key of a call after it is hashed.

use crate::filter::hash::KeyHash;

/// A key of a call after it is hashed.
#[derive(Debug, Clone, Copy, Default)]
pub struct HashedKey {
    pub hash: KeyHash,
    /// The number of the lock that guards its bits.
    pub lock: u32,
    /// Its index in the batch.
    pub index: u32,
}
