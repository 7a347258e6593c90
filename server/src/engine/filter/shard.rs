//! One shard of a filter: its bits and its state.

use super::{mapping::ShardWords, one_or_many::OneOrMany};
use crate::{store::ShardState, sync::RwLock};

// A stripe of one shard and its lock fit into one cache line.
const _: () = assert!(size_of::<RwLock<OneOrMany<Shard>>>() <= 64);

/// One shard.
#[derive(Debug)]
pub struct Shard {
    /// Its bits, counters or stamps.
    pub words: ShardWords,
    /// The version of its last change, and its counts.
    pub state: ShardState,
}

impl Shard {
    /// Returns a shard without keys.
    pub fn new(words: ShardWords) -> Self {
        Self {
            words,
            state: ShardState::default(),
        }
    }

    /// Records a new key, which set `bits_added` bits in a call with `version`.
    #[inline]
    pub fn note(&mut self, bits_added: u32, version: u64) {
        let state = &mut self.state;
        state.version = state.version.max(version);
        state.keys_added += 1;
        state.bits_set += u64::from(bits_added);
    }

    /// Records a key that was stamped in a call with `version`, `bits_added` of its bits for the
    /// first time.
    #[inline]
    pub fn note_stamped(&mut self, is_new: bool, bits_added: u32, version: u64) {
        let state = &mut self.state;
        state.version = state.version.max(version);
        state.keys_added += u64::from(is_new);
        state.bits_set += u64::from(bits_added);
    }
}

impl AsRef<[u64]> for Shard {
    #[inline]
    fn as_ref(&self) -> &[u64] {
        &self.words
    }
}

impl AsMut<[u64]> for Shard {
    #[inline]
    fn as_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }
}
