//! The planted bug [`Bug::BitByBit`](crate::planted::Bug): a key is added bit by bit.

use std::{collections::BTreeMap, thread};

use super::{GuardedFilter, body::Sharded};
use crate::filter::hash::KeyHash;

impl GuardedFilter {
    /// Adds a key as atomic operations on single bits would: releases the lock between any two
    /// bits. Returns the number of bits that it has set.
    pub(super) fn insert_bit_by_bit(&self, plain: &Sharded, hash: KeyHash) -> u32 {
        let index = self.shape.shard(hash);
        let mut missing = Vec::new();
        {
            let mut shard = plain.shards.write(index);
            let mut before = BTreeMap::new();
            self.shape.visit_lines(hash, |line| {
                let words = shard.words.iter().copied().enumerate();
                before.extend(words.skip(line).take(8));
            });
            self.shape.insert(&mut shard.words, hash);
            for (index, before) in before {
                let Some(word) = shard.words.get_mut(index) else {
                    continue;
                };
                let bits = (0..64).map(|bit| 1 << bit);
                missing.extend(
                    bits.filter(|bit| *word & !before & bit != 0)
                        .map(|bit| (index, bit)),
                );
                *word = before;
            }
        }
        let mut bits_added = 0;
        for (word, bit) in missing {
            if let Some(word) = plain.shards.write(index).words.get_mut(word)
                && *word & bit == 0
            {
                *word |= bit;
                bits_added += 1;
            }
            if bits_added == 1 {
                // Lets other threads run in between, on busy cores too.
                thread::yield_now();
            }
        }
        bits_added
    }
}
