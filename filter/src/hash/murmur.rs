//! The hashes that Guava and RedisBloom use, both by Austin Appleby and in the public domain.
//!
//! They are written out here because they are short, and because `murmur3`, the best known crate
//! for MurmurHash3, takes a key as a stream. The reference is SMHasher (`MurmurHash3.cpp`,
//! `MurmurHash2.cpp`). The tests use its own verification values.

use super::KeyHash;

/// Returns the hash of a key in Guava.
pub fn of_guava(key: &[u8]) -> KeyHash {
    murmur3_x64_128(key, 0)
}

/// Returns the hash of a key in RedisBloom: a hash under a fixed seed, and one under the first.
pub fn of_redisbloom(key: &[u8]) -> KeyHash {
    let low = murmur2_64a(key, REDISBLOOM_SEED);
    KeyHash {
        low,
        high: murmur2_64a(key, low),
    }
}

const REDISBLOOM_SEED: u64 = 0xc6a4_a793_5bd1_e995;

/// MurmurHash3, x64, 128 bits.
fn murmur3_x64_128(key: &[u8], seed: u32) -> KeyHash {
    let (blocks, tail) = key.as_chunks::<16>();
    let (mut low, mut high) = (u64::from(seed), u64::from(seed));
    for block in blocks {
        let (first, second) = halves(*block);
        low ^= scramble_low(first);
        low = low.rotate_left(27).wrapping_add(high);
        low = low.wrapping_mul(5).wrapping_add(0x52dc_e729);
        high ^= scramble_high(second);
        high = high.rotate_left(31).wrapping_add(low);
        high = high.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // A short last block is padded with zeros, which change nothing.
    let (first, second) = halves(padded(tail));
    low ^= scramble_low(first);
    high ^= scramble_high(second);

    low ^= key.len() as u64;
    high ^= key.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finish(low);
    high = finish(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    KeyHash { low, high }
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn scramble_low(half: u64) -> u64 {
    half.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn scramble_high(half: u64) -> u64 {
    half.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// MurmurHash2, 64 bits, the variant for 64-bit machines ("64A").
fn murmur2_64a(key: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let scramble = |word: u64| {
        let word = word.wrapping_mul(M);
        (word ^ (word >> 47)).wrapping_mul(M)
    };
    let (words, tail) = key.as_chunks::<8>();
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(M);
    for word in words {
        hash = (hash ^ scramble(u64::from_le_bytes(*word))).wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash = (hash ^ u64::from_le_bytes(padded(tail))).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

fn halves(block: [u8; 16]) -> (u64, u64) {
    let block = u128::from_le_bytes(block);
    (block as u64, (block >> 64) as u64)
}

fn padded<const N: usize>(tail: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| tail.get(at).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn murmur3(key: &[u8], seed: u32) -> Vec<u8> {
        let KeyHash { low, high } = murmur3_x64_128(key, seed);
        [low.to_le_bytes(), high.to_le_bytes()].concat()
    }

    fn murmur2(key: &[u8], seed: u32) -> Vec<u8> {
        murmur2_64a(key, seed.into()).to_le_bytes().into()
    }

    /// Runs SMHasher's `VerificationTest`: the keys have all lengths up to 255, the seeds count
    /// down, and the hash of all hashes is known.
    fn verification(hash: impl Fn(&[u8], u32) -> Vec<u8>) -> u32 {
        let key: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256)
            .flat_map(|length| hash(&key[..length], 256 - length as u32))
            .collect();
        u32::from_le_bytes(*hash(&hashes, 0).first_chunk().unwrap())
    }

    #[test]
    fn the_reference_is_met() {
        assert_eq!(verification(murmur3), 0x6384_ba69);
        assert_eq!(verification(murmur2), 0x1f0d_3804);
    }

    /// Computed by Guava 31.1 (`Hashing.murmur3_128()`).
    #[test]
    fn single_hashes_are_those_of_guava() {
        assert_eq!(murmur3_x64_128(b"", 0), KeyHash { low: 0, high: 0 });
        assert_eq!(
            murmur3_x64_128(b"https://example.com/", 0),
            KeyHash {
                low: 0xb50a_9b26_c28c_349f,
                high: 0xa4cb_5db2_9853_41bd
            }
        );
    }
}
