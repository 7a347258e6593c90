//! Filters of other programs: one array, with the bits of a key anywhere in a part of it.
//!
//! A filter in parts gets its keys as in RedisBloom: each part gets the number of keys that it is
//! made for, and the last part gets all that are left. No part gets keys that an older part reports
//! as present. RedisBloom does not count those, so there a part has a few more keys.

use seenset_filter::{
    exchange::{ForeignBits, Part, redisbloom::ChainLayer},
    hash::KeyHash,
    spec::FilterSpec,
};

use crate::filter::Filter;

pub struct Array {
    parts: ForeignBits,
    /// For each part except the last, the number of keys after which it is full.
    ends: Vec<u64>,
    words: Vec<u64>,
    /// The number of set bits in each part.
    bits_set: Vec<u64>,
    keys: u64,
}

impl Array {
    /// Returns an empty filter; `None` if the layout of the spec is one of our own.
    pub fn new(spec: &FilterSpec) -> Option<Self> {
        let parts = spec.body.foreign_bits()?;
        let layers = spec.body.chain().map_or(&[][..], |chain| chain.layers());
        let mut end = 0;
        let ends = layers.iter().map(ChainLayer::capacity).map(|capacity| {
            end += capacity;
            end
        });
        Some(Self {
            ends: ends.take(parts.old().len()).collect(),
            words: vec![0; (spec.body.bit_count() / 64) as usize],
            bits_set: vec![0; parts.iter().count()],
            keys: 0,
            parts,
        })
    }

    fn is_in(&self, part: &Part, hash: KeyHash) -> bool {
        let mut positions = part.positions(hash);
        positions.all(|(word, mask)| self.words.get(word).is_some_and(|word| word & mask != 0))
    }
}

impl Filter for Array {
    fn add(&mut self, hashes: &mut [KeyHash]) {
        for hash in hashes.iter().copied() {
            let newest = self.ends.partition_point(|end| *end <= self.keys);
            self.keys += 1;
            let mut parts = self.parts.iter();
            if (parts.by_ref().take(newest)).any(|part| self.is_in(part, hash)) {
                continue;
            }
            let (Some(part), Some(bits_set)) = (parts.next(), self.bits_set.get_mut(newest)) else {
                continue;
            };
            for (word, mask) in part.positions(hash) {
                if let Some(word) = self.words.get_mut(word) {
                    *bits_set += u64::from(*word & mask == 0);
                    *word |= mask;
                }
            }
        }
    }

    fn found(&self, hashes: &mut [KeyHash]) -> u64 {
        let is_there = |hash: &&KeyHash| self.parts.iter().any(|part| self.is_in(part, **hash));
        hashes.iter().filter(is_there).count() as u64
    }

    fn rate_by_keys(&self, keys: u64) -> f64 {
        let (mut rate, mut before) = (0.0, 0);
        for (number, part) in self.parts.iter().enumerate() {
            let end = self.ends.get(number).map_or(keys, |end| keys.min(*end));
            // Keys that older parts report as present do not reach this part.
            let own = (end - before) as f64 * (1.0 - rate);
            rate += (1.0 - rate) * part.false_positive_rate(own);
            before = end;
        }
        rate
    }

    fn rate_by_fill(&self) -> f64 {
        self.parts.false_positive_rate_at_fill(&self.bits_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chain::doubling, keys::hash_batches, subject::Subject};

    #[test]
    fn each_part_gets_the_keys_that_it_is_made_for() {
        let chain = doubling(100, 0.1, 3).unwrap();
        let mut filter = Array::new(&FilterSpec::of_chain(&chain, None)).unwrap();
        let hasher = Subject::RedisBloomLayers.hasher(0.1);
        let mut add = |keys| {
            hash_batches(&hasher, keys, |hashes| filter.add(hashes));
            filter.bits_set.clone()
        };
        let first = add(0..100);
        assert!(first[0] > 0 && first[1..] == [0, 0]);
        let second = add(100..150);
        assert!(second[0] == first[0] && second[1] > 0 && second[2] == 0);
        // Keys that are present are not added to another part.
        assert_eq!(add(0..100), second);
        let last = add(150..500);
        assert!(last[1] > second[1] && last[2] > 0);
        hash_batches(&hasher, 0..500, |hashes| {
            assert_eq!(filter.found(hashes), 500);
        });
    }
}
