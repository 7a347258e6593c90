//! The classic layout: the bits of a key lie anywhere in its shard.
//!
//! With one shard this is the filter of Bloom (1970), and it takes the fewest bits for a rate. Each
//! of the `k` bits costs its own memory access. The positions come from one hash, after Kirsch and
//! Mitzenmacher (2006): see [`KeyHash::value`].

use fearless_simd::Simd;

use crate::{
    format::{Format, KeyArea, declare_format},
    hash::{KeyHash, choose},
    key_set::{Bits, KeySet},
    shape::Grain,
};

declare_format!(
    /// A filter whose keys have bits anywhere in a shard.
    Classic
);

impl Classic {
    /// Returns the positions of a key's bits in its shard, as (word, mask).
    #[inline]
    fn positions(&self, hash: KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let shard_bits = self.0.shard_bits();
        (0..self.0.hash_count()).map(move |index| {
            let (position, _) = choose(hash.value(index), shard_bits);
            ((position / 64) as usize, 1 << (position % 64))
        })
    }
}

impl Format for Classic {
    const GRAIN: Grain = Grain::WORDS;
    const KEY_AREA: KeyArea = KeyArea::Shard;

    fn key_lines(&self) -> usize {
        self.0.hash_count() as usize
    }

    #[inline]
    fn visit_lines(&self, hash: KeyHash, mut visit: impl FnMut(usize)) {
        for (word, _) in self.positions(hash) {
            visit(word);
        }
    }

    fn bits(&self, hash: KeyHash) -> Vec<u64> {
        let bit = |(word, mask): (usize, u64)| word as u64 * 64 + u64::from(mask.trailing_zeros());
        let mut bits: Vec<u64> = self.positions(hash).map(bit).collect();
        bits.sort_unstable();
        bits.dedup();
        bits
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives a whole shard, and bits are chosen inside of it"
)]
impl KeySet for Classic {
    #[inline(always)]
    fn contains_with<S: Simd>(&self, _: S, words: &[u64], hash: KeyHash) -> bool {
        let mut positions = self.positions(hash);
        positions.all(|(word, mask)| words[word] & mask != 0)
    }

    #[inline(always)]
    fn insert_with<S: Simd>(&self, _: S, words: &mut [u64], hash: KeyHash) -> u32 {
        let added = self.positions(hash).map(|(word, mask)| {
            let added = u32::from(words[word] & mask == 0);
            words[word] |= mask;
            added
        });
        added.sum()
    }
}

impl Bits for Classic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserting_reports_each_bit_once() {
        let seed = KeyHash { low: 3, high: 5 };
        let classic = Classic::new(6400, 7);
        let mut words = vec![0_u64; 100];
        let mut ones = 0;
        for i in 1..300 {
            let hash = KeyHash {
                low: seed.value(i),
                high: seed.value(i + 1000),
            };
            ones += classic.insert(&mut words, hash);
            assert!(classic.contains(&words, hash));
            assert_eq!(classic.insert(&mut words, hash), 0);
        }
        assert_eq!(
            ones,
            words.iter().map(|word| word.count_ones()).sum::<u32>()
        );
        assert!(
            ones > 1500,
            "{ones} of 6400 bits set: the positions do not spread"
        );
    }

    #[test]
    fn a_missing_bit_is_noticed() {
        let hash = KeyHash {
            low: 0x0123_4567_89ab_cdef,
            high: 0xfedc_ba98_7654_3210,
        };
        let classic = Classic::new(640, 5);
        let mut words = vec![0_u64; 10];
        classic.insert(&mut words, hash);
        for (word, mask) in classic.positions(hash) {
            let mut damaged = words.clone();
            damaged[word] &= !mask;
            assert!(!classic.contains(&damaged, hash));
        }
    }
}
