//! Keys that are numbers.

use std::ops::Range;

use seenset_filter::hash::{KeyHash, KeyHasher};

/// The number of keys that are hashed together.
const BATCH: u64 = 1 << 18;

/// Calls `visit` with the hashes of keys, batch after batch, in the order of the keys.
pub fn hash_batches(hasher: &KeyHasher, keys: Range<u64>, mut visit: impl FnMut(&mut [KeyHash])) {
    let mut hashes = Vec::new();
    let mut batch = Vec::new();
    for first in keys.clone().step_by(BATCH as usize) {
        let last = keys.end.min(first + BATCH);
        batch.clear();
        batch.extend((first..last).map(u64::to_le_bytes));
        hashes.resize(batch.len(), KeyHash::default());
        hasher.hash_each(batch.iter().map(<[u8; 8]>::as_slice), |place, hash| {
            if let Some(place) = hashes.get_mut(place) {
                *place = hash;
            }
        });
        visit(&mut hashes);
    }
}
