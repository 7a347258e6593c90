//! The blocked layout: all bits of a key lie in one 64-byte cache line.
//!
//! Putze, Sanders and Singler (2007): a block costs one memory access, no matter how many bits it
//! holds. It needs somewhat more bits for the same rate, because some blocks get more keys than
//! others. [`crate::sizing`] adds these bits.
//!
//! A block is eight 64-bit lanes. In each round a key sets at most one bit in each lane: lane `i`
//! takes six bits of a 64-bit hash value, from bit `6·i` up, as the index of its bit. These are
//! eight independent shifts: one instruction in each direction in a register as wide as a block,
//! and a few more in narrower ones. The `k` bits are dealt to lanes like this:
//!
//! * `k < 8`: to `k` neighbouring lanes. Bits 48 to 50 of the hash value choose the first lane
//!   (counting past lane 7 back to lane 0), so that all lanes fill alike.
//! * `k ≥ 8`: round after round, each with the next value of [`KeyHash::value`]. The bits that
//!   remain after the last full round go to the lowest lanes.

use fearless_simd::{Simd, SimdBase, SimdFrom, SimdMask, u64x8};

use crate::{
    cells::Cell,
    format::{Format, KeyArea, declare_format},
    hash::{KeyHash, choose},
    key_set::{Bits, KeySet},
    shape::Grain,
};

/// The 64-bit words of a block.
pub const LANES: usize = 8;
/// The bits that a key sets in one round.
const PER_ROUND: u32 = LANES as u32;
/// The bits of a block.
pub const BLOCK_BITS: u64 = 512;

/// A block: one cache line.
pub type Block = [u64; LANES];

/// For each lane, where the index of its bit begins in a hash value.
const INDEX_SHIFTS: Block = [0, 6, 12, 18, 24, 30, 36, 42];
/// For each lane, its bit in a set of lanes.
const LANE_SHIFTS: Block = [0, 1, 2, 3, 4, 5, 6, 7];

/// Whether all `hash_count` bits of a key are set. `hash_count` is 1 to 64.
#[inline(always)]
pub fn contains<S: Simd>(simd: S, block: &Block, hash: KeyHash, hash_count: u32) -> bool {
    is_empty(simd, Lanes::of(simd, hash).absent(block, hash_count))
}

/// The bits of the first round of a key, one in each lane. They can be used with blocks that have
/// different numbers of hashes.
#[derive(Clone, Copy)]
pub struct Lanes<S: Simd> {
    simd: S,
    hash: KeyHash,
    bits: u64x8<S>,
}

impl<S: Simd> Lanes<S> {
    /// Returns the bits of a key.
    #[inline(always)]
    pub fn of(simd: S, hash: KeyHash) -> Self {
        let bits = bits_of_round(simd, hash, PER_ROUND, 0);
        Self { simd, hash, bits }
    }

    /// Returns the bits of the key's `hash_count` that are not set in a block.
    #[inline(always)]
    pub fn absent(&self, block: &Block, hash_count: u32) -> u64x8<S> {
        let (simd, hash) = (self.simd, self.hash);
        let mut bits = match hash_count < PER_ROUND {
            true => bits_of_round(simd, hash, hash_count, 0),
            false => self.bits,
        };
        let mut number = 1;
        while number * PER_ROUND < hash_count {
            bits |= bits_of_round(simd, hash, hash_count, number);
            number += 1;
        }
        bits & !u64x8::simd_from(simd, *block)
    }
}

/// Whether no bit is set.
#[inline(always)]
pub fn is_empty<S: Simd>(simd: S, bits: u64x8<S>) -> bool {
    bits.simd_eq(u64x8::splat(simd, 0)).all_true()
}

/// Sets the `absent` bits of a key with `hash_count` in a block, and returns their number.
#[inline(always)]
pub fn set_absent<S: Simd>(simd: S, block: &mut Block, absent: u64x8<S>, hash_count: u32) -> u32 {
    let lanes = u64x8::simd_from(simd, *block);
    *block = (lanes | absent).into();
    if hash_count <= PER_ROUND {
        // At most one in each lane.
        return (!absent.simd_eq(u64x8::splat(simd, 0)))
            .to_bitmask()
            .count_ones();
    }
    let lanes: Block = absent.into();
    lanes.iter().map(|lane| lane.count_ones()).sum()
}

/// Sets all `hash_count` bits of a key, and returns the number of bits that were not set before. 0
/// means that the key was present, or seemed to be.
#[inline(always)]
pub fn insert<S: Simd>(simd: S, block: &mut Block, hash: KeyHash, hash_count: u32) -> u32 {
    let mut lanes = u64x8::simd_from(simd, *block);
    let mut added = 0;
    let mut number = 0;
    while number * PER_ROUND < hash_count {
        let bits = bits_of_round(simd, hash, hash_count, number);
        // At most one in each lane.
        let absent = !(bits & !lanes).simd_eq(u64x8::splat(simd, 0));
        added += absent.to_bitmask().count_ones();
        lanes |= bits;
        number += 1;
    }
    if added > 0 {
        // A line that does not change need not be written to memory again.
        *block = lanes.into();
    }
    added
}

pub(crate) fn as_blocks(words: &[u64]) -> &[Block] {
    words.as_chunks().0
}

pub(crate) fn as_blocks_mut(words: &mut [u64]) -> &mut [Block] {
    words.as_chunks_mut().0
}

/// Returns the bits of a key in its block, found one by one.
pub(crate) fn bits(hash: KeyHash, hash_count: u32) -> Block {
    let mut bits = [0; LANES];
    let first = match hash_count < PER_ROUND {
        true => (hash.low >> 48) & 7,
        false => 0,
    };
    for number in 0..hash_count {
        let value = hash.value(number / PER_ROUND);
        let lane = (first + u64::from(number)) as usize % LANES;
        if let Some(bits) = bits.get_mut(lane) {
            *bits |= 1 << (value >> (6 * lane) & 63);
        }
    }
    bits
}

/// Returns the bits of one round of a key: at most one in each lane.
#[inline(always)]
fn bits_of_round<S: Simd>(simd: S, hash: KeyHash, hash_count: u32, number: u32) -> u64x8<S> {
    let (ones, index) = round(simd, hash, hash_count, number);
    ones << index
}

/// Returns one round of a key: 1 in each lane that has a bit, and the index of that bit for all
/// lanes.
#[inline(always)]
pub(crate) fn round<S: Simd>(
    simd: S,
    hash: KeyHash,
    hash_count: u32,
    number: u32,
) -> (u64x8<S>, u64x8<S>) {
    let all = move |value| u64x8::splat(simd, value);
    let value = hash.value(number);
    let ones = match hash_count - number * PER_ROUND {
        PER_ROUND.. => all(1),
        remaining => {
            let lowest = (1_u8 << remaining) - 1;
            let first = if number == 0 { (value >> 48) & 7 } else { 0 };
            let lanes = lowest.rotate_left(first as u32);
            all(lanes.into()) >> u64x8::simd_from(simd, LANE_SHIFTS) & all(1)
        }
    };
    let index = all(value) >> u64x8::simd_from(simd, INDEX_SHIFTS) & all(63);
    (ones, index)
}

declare_format!(
    /// A filter in blocks.
    Blocked
);

impl Blocked {
    /// Returns the index of a key's block in its shard. The rest of the high half after the choice
    /// of the shard chooses the block, so that all blocks of all shards are equally likely.
    #[inline]
    pub fn block(&self, hash: KeyHash) -> usize {
        let (_, rest) = self.0.choose(hash);
        choose(rest, self.0.shard_bits() / BLOCK_BITS).0 as usize
    }
}

impl Format for Blocked {
    const GRAIN: Grain = Grain {
        cell: Cell::Bit,
        unit: BLOCK_BITS,
    };
    const KEY_AREA: KeyArea = KeyArea::Block;

    fn key_lines(&self) -> usize {
        1
    }

    #[inline]
    fn visit_lines(&self, hash: KeyHash, mut visit: impl FnMut(usize)) {
        visit(self.block(hash) * LANES);
    }

    fn bits(&self, hash: KeyHash) -> Vec<u64> {
        let block = bits(hash, self.0.hash_count());
        let first = self.block(hash) as u64 * BLOCK_BITS;
        let in_block = |bit: &u64| Cell::Bit.value(&block, *bit) == Some(1);
        let set = (0..BLOCK_BITS).filter(in_block);
        set.map(|bit| first + bit).collect()
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives a whole shard, and blocks are chosen inside of it"
)]
impl KeySet for Blocked {
    #[inline(always)]
    fn contains_with<S: Simd>(&self, simd: S, words: &[u64], hash: KeyHash) -> bool {
        let block = &as_blocks(words)[self.block(hash)];
        contains(simd, block, hash, self.0.hash_count())
    }

    #[inline(always)]
    fn insert_with<S: Simd>(&self, simd: S, words: &mut [u64], hash: KeyHash) -> u32 {
        let block = &mut as_blocks_mut(words)[self.block(hash)];
        insert(simd, block, hash, self.0.hash_count())
    }
}

impl Bits for Blocked {}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;

    /// Checks with the widest registers, which must not differ from the narrowest.
    fn contains(block: &Block, hash: KeyHash, hash_count: u32) -> bool {
        let [widest, narrowest] = [Level::new(), Level::baseline()]
            .map(|level| dispatch!(level, simd => super::contains(simd, block, hash, hash_count)));
        assert_eq!(widest, narrowest);
        widest
    }

    /// Inserts with both, as `contains`.
    fn insert(block: &mut Block, hash: KeyHash, hash_count: u32) -> u32 {
        let [widest, narrowest] = [Level::new(), Level::baseline()].map(|level| {
            let mut block = *block;
            let added = dispatch!(level, simd => super::insert(simd, &mut block, hash, hash_count));
            (block, added)
        });
        assert_eq!(widest, narrowest);
        *block = widest.0;
        widest.1
    }

    fn hashes() -> impl Iterator<Item = KeyHash> {
        let seed = KeyHash { low: 3, high: 5 };
        (1..2000).map(move |i| KeyHash {
            low: seed.value(i),
            high: seed.value(i + 10_000),
        })
    }

    fn ones(block: &Block) -> u32 {
        block.iter().map(|lane| lane.count_ones()).sum()
    }

    #[test]
    fn inserting_reports_each_bit_once() {
        for hash_count in 1..=64 {
            for hash in hashes().take(50) {
                let mut block = [0; LANES];
                assert!(!contains(&block, hash, hash_count));
                let added = insert(&mut block, hash, hash_count);
                assert_eq!(added, ones(&block));
                assert!(contains(&block, hash, hash_count));
                assert_eq!(insert(&mut block, hash, hash_count), 0);
            }
        }
    }

    #[test]
    fn bits_are_those_that_are_inserted() {
        for hash_count in 1..=64 {
            for hash in hashes().take(50) {
                let mut block = [0; LANES];
                insert(&mut block, hash, hash_count);
                assert_eq!(bits(hash, hash_count), block, "k = {hash_count}");
            }
        }
    }

    #[test]
    fn up_to_eight_bits_take_a_lane_each() {
        for hash_count in 1..=8 {
            for hash in hashes() {
                let mut block = [0; LANES];
                assert_eq!(insert(&mut block, hash, hash_count), hash_count);
                assert!(block.iter().all(|lane| lane.count_ones() <= 1));
            }
        }
    }

    #[test]
    fn a_missing_bit_is_noticed_wherever_it_is() {
        for hash_count in [1, 3, 8, 13, 64] {
            for hash in hashes().take(50) {
                let mut full = [0; LANES];
                insert(&mut full, hash, hash_count);
                for bit in 0..512 {
                    let mut block = full;
                    block[bit / 64] &= !(1 << (bit % 64));
                    assert_eq!(contains(&block, hash, hash_count), block == full);
                }
            }
        }
    }

    #[test]
    fn all_bits_of_the_block_are_used_alike() {
        for hash_count in [1, 5, 8, 16] {
            let mut counts = [0_u32; 512];
            for hash in hashes() {
                let mut block = [0; LANES];
                insert(&mut block, hash, hash_count);
                for (bit, count) in counts.iter_mut().enumerate() {
                    *count += (block[bit / 64] >> (bit % 64)) as u32 & 1;
                }
            }
            // Six standard deviations around the mean, and every bit is used.
            let mean = f64::from(hash_count) * 1999.0 / 512.0;
            let most = mean + 6.0 * mean.sqrt() + 1.0;
            assert!(
                counts.iter().all(|&count| f64::from(count) < most),
                "k = {hash_count}"
            );
            assert!(
                hash_count < 5 || counts.iter().all(|&count| count > 0),
                "k = {hash_count}"
            );
        }
    }

    /// The bits that snapshots of format 1 hold for a key.
    #[test]
    fn a_key_sets_the_bits_that_the_format_says() {
        let hash = KeyHash {
            low: 0x0005_0820_c510_2041 | (5 << 48),
            high: 0,
        };
        let mut block = [0; LANES];
        insert(&mut block, hash, 2);
        let indices: Vec<u64> = (0..8).map(|lane| (hash.low >> (6 * lane)) & 63).collect();
        let mut expected = [0; LANES];
        expected[5] = 1 << indices[5];
        expected[6] = 1 << indices[6];
        assert_eq!(block, expected);
    }
}
