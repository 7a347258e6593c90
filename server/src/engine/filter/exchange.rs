//! Import and export of the bits of another program's filter, as one array of words as in its file.

use super::{Filter, shard::Shard};
use crate::engine::{journal::Journal, versions::Versions};

/// The version of all imported bits.
const IMPORTED: u64 = 1;

impl Filter {
    /// Sets the bits of `words` in a filter that no other thread uses yet. `first` is the index of
    /// the first word in the array.
    pub fn import_words(&mut self, first: u64, words: &[u64]) {
        let shard_words = self.shape.shard_words();
        for (index, &word) in (first as usize..).zip(words) {
            // Memory that has no bits is left untouched.
            if word == 0 {
                continue;
            }
            let Some(shard) = self.body.whole_mut().get_mut(index / shard_words) else {
                return;
            };
            if let Some(place) = shard.words.get_mut(index % shard_words) {
                let added = word & !*place;
                *place |= word;
                shard.state.bits_set += u64::from(added.count_ones());
            }
        }
    }

    /// Ends an import. The filter then counts `keys` keys as added, or, if `keys` is `None`, the
    /// number that it estimates from its bits.
    pub fn finish_import(&mut self, keys: Option<u64>, journal: Option<&Journal>) {
        let shards = self.shape.shard_count();
        let content = self.content();
        let bits_set = content.bits_set;
        let estimate = || match content.estimated_keys() {
            Some(keys) => keys.round() as u64,
            // If all bits are set, there is no estimate. There were at least this many keys.
            None => bits_set / u64::from(self.spec.hash_count).max(1),
        };
        let keys = keys.unwrap_or_else(estimate);
        // The keys are divided among the shards by their bits. Each key has set at least one bit.
        let (mut bits_before, mut keys_before) = (0_u64, 0);
        for shard in 0..shards {
            let Some(Shard { state, .. }) = self.body.whole_mut().get_mut(shard) else {
                return;
            };
            if state.bits_set == 0 {
                continue;
            }
            bits_before += state.bits_set;
            let upto = u128::from(keys) * u128::from(bits_before) / u128::from(bits_set);
            state.keys_added = (upto as u64 - keys_before).min(state.bits_set);
            state.version = IMPORTED;
            keys_before = upto as u64;
        }
        self.versions = Versions::behind(IMPORTED);
        if let Some(journal) = journal {
            self.set_log(journal);
        }
    }

    /// Copies words of the array into `words`, from the index `first` on. Locks one shard at a time
    /// (with its neighbours behind the same lock), and only against writers.
    pub fn export_words(&self, first: u64, words: &mut [u64]) {
        let shard_words = self.shape.shard_words();
        let (mut next, mut rest) = (first as usize, words);
        while !rest.is_empty() {
            let (number, from) = (next / shard_words, next % shard_words);
            let length = rest.len().min(shard_words - from);
            let (here, behind) = rest.split_at_mut(length);
            let Some(shard) = self.body.whole().read(number) else {
                return;
            };
            if let Some(words) = shard.words.get(from..from + length) {
                here.copy_from_slice(words);
            }
            next += length;
            rest = behind;
        }
    }
}
