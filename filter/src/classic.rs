//! The classic layout: the bits of a key lie anywhere in its shard.
//!
//! With one shard this is the filter of Bloom (1970), and it takes the fewest bits for a rate. Each
//! of the `k` bits costs its own memory access. The positions come from one hash, after Kirsch and
//! Mitzenmacher (2006): see [`KeyHash::value`].

use crate::hash::{KeyHash, choose};

/// Returns the positions of a key's bits in a shard of `shard_bits` bits, as (word, mask).
#[inline]
pub fn positions(
    hash: KeyHash,
    hash_count: u32,
    shard_bits: u64,
) -> impl Iterator<Item = (usize, u64)> {
    (0..hash_count).map(move |index| {
        let (position, _) = choose(hash.value(index), shard_bits);
        ((position / 64) as usize, 1 << (position % 64))
    })
}

/// Whether all `hash_count` bits of a key are set. `words` must hold `shard_bits` bits.
#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives a whole shard, and bits are chosen inside of it"
)]
#[inline]
pub fn contains(words: &[u64], hash: KeyHash, hash_count: u32, shard_bits: u64) -> bool {
    positions(hash, hash_count, shard_bits).all(|(word, mask)| words[word] & mask != 0)
}

/// Sets all `hash_count` bits of a key, and returns the number of bits that were not set before.
#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives a whole shard, and bits are chosen inside of it"
)]
#[inline]
pub fn insert(words: &mut [u64], hash: KeyHash, hash_count: u32, shard_bits: u64) -> u32 {
    positions(hash, hash_count, shard_bits)
        .map(|(word, mask)| {
            let added = u32::from(words[word] & mask == 0);
            words[word] |= mask;
            added
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserting_reports_each_bit_once() {
        let seed = KeyHash { low: 3, high: 5 };
        let mut words = vec![0_u64; 100];
        let mut ones = 0;
        for i in 1..300 {
            let hash = KeyHash {
                low: seed.value(i),
                high: seed.value(i + 1000),
            };
            ones += insert(&mut words, hash, 7, 6400);
            assert!(contains(&words, hash, 7, 6400));
            assert_eq!(insert(&mut words, hash, 7, 6400), 0);
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
        let mut words = vec![0_u64; 10];
        insert(&mut words, hash, 5, 640);
        for (word, mask) in positions(hash, 5, 640) {
            let mut damaged = words.clone();
            damaged[word] &= !mask;
            assert!(!contains(&damaged, hash, 5, 640));
        }
    }
}
