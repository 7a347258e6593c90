//! From a key to the 128 bits that determine everything else.
//!
//! Pages choose their own links, so keys are hostile: an attacker who can compute the hash can
//! craft URLs that fill one block and make a chosen page look seen. The default is therefore a
//! pseudo-random function under a secret that never leaves the server. On keys of 60 bytes
//! SipHash-1-3-128 took a third of the time of HighwayHash-128 (see `docs/adr/0001-keyed-hash.md`),
//! and it can be computed for several keys at once.

mod lanes;
pub mod murmur;
mod secret;

use std::fmt;

use siphasher::sip128::SipHasher13;
use xxhash_rust::xxh3::xxh3_128_with_seed;

pub use self::secret::{Purpose, Secret};

use self::lanes::Waiting;
use crate::names::named;

named! {
    "hash function", name,
    /// A hash function that a filter can use.
    #[derive(Default)]
    pub enum HashFunction {
        /// SipHash-1-3 with 128 bits of output: a keyed pseudo-random function, for keys that
        /// anybody can choose. (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF",
        /// 2012.)
        #[default]
        SipHash13_128 = "siphash-1-3-128",
        /// XXH3 with 128 bits of output and a seed: several times as fast, for trusted keys.
        Xxh3_128 = "xxh3-128",
        /// MurmurHash3 (x64) with 128 bits and without a secret: used only by filters of
        /// [Guava](crate::exchange::guava).
        Murmur3X64_128 = "murmur3-x64-128",
        /// MurmurHash64A, twice, without a secret: used only by filters of
        /// [RedisBloom](crate::exchange::redisbloom).
        Murmur2_64A = "murmur2-64a",
    }
}

impl HashFunction {
    /// The hash functions of our own layouts.
    pub const OWN: [Self; 2] = [Self::SipHash13_128, Self::Xxh3_128];
}

/// The least number of keys for which hashing at once is faster than one by one.
const MIN_AT_ONCE: usize = 4;

/// Hashes keys for one filter.
#[derive(Debug, Clone)]
pub struct KeyHasher {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    SipHash13_128 {
        hasher: SipHasher13,
        secret: (u64, u64),
    },
    Xxh3_128 {
        seed: u64,
    },
    Murmur3X64_128,
    Murmur2_64A,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the derived form would show the secret.
        f.write_str(match self {
            Self::SipHash13_128 { .. } => "SipHash13_128",
            Self::Xxh3_128 { .. } => "Xxh3_128",
            Self::Murmur3X64_128 => "Murmur3X64_128",
            Self::Murmur2_64A => "Murmur2_64A",
        })
    }
}

impl KeyHasher {
    /// Returns a hasher for input that is not a key, under the secret of its purpose. It is always
    /// SipHash, no matter which function hashes the keys.
    pub fn of_purpose(purpose: Purpose, secret: &Secret) -> Self {
        Self::new(HashFunction::SipHash13_128, &secret.of_purpose(purpose))
    }

    /// Returns a hasher for `function` under `secret`. XXH3 takes its seed from the first eight
    /// bytes of the secret.
    pub fn new(function: HashFunction, secret: &Secret) -> Self {
        let (first, second) = secret.halves();
        let inner = match function {
            HashFunction::SipHash13_128 => Inner::SipHash13_128 {
                hasher: SipHasher13::new_with_keys(first, second),
                secret: (first, second),
            },
            HashFunction::Xxh3_128 => Inner::Xxh3_128 { seed: first },
            HashFunction::Murmur3X64_128 => Inner::Murmur3X64_128,
            HashFunction::Murmur2_64A => Inner::Murmur2_64A,
        };
        Self { inner }
    }

    /// Hashes one key. The time is proportional to its length. Allocates nothing.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        match &self.inner {
            Inner::SipHash13_128 { hasher, .. } => {
                let hash = hasher.hash(key);
                KeyHash {
                    low: hash.h1,
                    high: hash.h2,
                }
            }
            Inner::Xxh3_128 { seed } => {
                let hash = xxh3_128_with_seed(key, *seed);
                KeyHash {
                    low: hash as u64,
                    high: (hash >> 64) as u64,
                }
            }
            Inner::Murmur3X64_128 => murmur::of_guava(key),
            Inner::Murmur2_64A => murmur::of_redisbloom(key),
        }
    }
}

impl KeyHasher {
    /// Hashes many keys, and passes each hash to `report` with the index of its key, in any order.
    ///
    /// On machines with wide registers this takes less than half of the time of a call of
    /// [`hash`](Self::hash) for each key, if the hash function is SipHash and the keys are equally
    /// long. Allocates nothing.
    pub fn hash_each<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        mut report: impl FnMut(usize, KeyHash),
    ) {
        match self.inner {
            Inner::SipHash13_128 { secret, .. } if keys.len() >= MIN_AT_ONCE => {
                let mut waiting = Waiting::new(secret);
                for (place, key) in keys.enumerate() {
                    if key.len() <= Waiting::MAX_BYTES {
                        waiting.take(place, key, &mut report);
                    } else {
                        report(place, self.hash(key));
                    }
                }
                waiting.finish(report);
            }
            _ => keys
                .enumerate()
                .for_each(|(place, key)| report(place, self.hash(key))),
        }
    }
}

/// The hash of one key: the only data that a filter has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyHash {
    /// Picks the bits.
    pub low: u64,
    /// Picks the shard and the block.
    pub high: u64,
}

impl KeyHash {
    /// Returns the `index`th 64-bit value derived from this hash. Any number of values is possible.
    ///
    /// Kirsch and Mitzenmacher (2006) show that two hashes can replace any number of them:
    /// g_i = h1 + i·h2. These values are evenly spaced, and in a small filter two keys share such a
    /// row of bits too often. Each value therefore passes through a bijection that scatters it (the
    /// finalizer of SplitMix64, D. Stafford's variant 13). The first value is the low half
    /// unchanged, because that is random already.
    #[inline]
    pub fn value(self, index: u32) -> u64 {
        if index == 0 {
            return self.low;
        }
        let step = self.high | 1;
        let mut x = self.low.wrapping_add(step.wrapping_mul(u64::from(index)));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Maps a random 64-bit value to `0..bound` evenly. Also returns the rest: a value as random as the
/// first, for the next choice. It takes one multiplication (D. Lemire, "Fast Random Integer
/// Generation in an Interval", 2019). `bound` must not be 0.
#[inline]
pub(crate) fn choose(value: u64, bound: u64) -> (u64, u64) {
    let product = u128::from(value) * u128::from(bound);
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(function: HashFunction, secret: [u8; 16], key: &[u8]) -> KeyHash {
        KeyHasher::new(function, &Secret::new(secret)).hash(key)
    }

    /// Snapshots on disk depend on these values: a dependency that changes them makes every stored
    /// filter forget its keys. The values were computed with other implementations.
    #[test]
    fn hashes_are_what_stored_filters_were_built_with() {
        let secret: [u8; 16] = std::array::from_fn(|i| i as u8);
        let key = b"https://example.com/";
        let sip = hash(HashFunction::SipHash13_128, secret, key);
        assert_eq!(
            sip,
            KeyHash {
                low: 0x09c0_ef9f_be64_bd0e,
                high: 0xc937_bee5_aa98_57fb
            }
        );
        let xxh = hash(HashFunction::Xxh3_128, secret, key);
        assert_eq!(
            xxh,
            KeyHash {
                low: 0x3ca5_5fc8_a03d_c8e1,
                high: 0xf66c_5893_cd79_3ff1
            }
        );
        assert_eq!(sip.value(0), sip.low);
        assert_eq!(KeyHash { low: 1, high: 2 }.value(1), 0xb7a4_712c_7456_2914);
    }

    /// For keys of all lengths, and for any number of keys of one length.
    #[test]
    fn many_keys_have_the_hashes_of_single_ones() {
        let bytes: Vec<u8> = (0..700_u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut keys: Vec<&[u8]> = (0..300).map(|length| &bytes[length..2 * length]).collect();
        for (length, count) in [(5, 2), (60, 8), (64, 9), (71, 20), (300, 9)] {
            keys.extend((0..count).map(|start| &bytes[start..start + length]));
        }
        for function in HashFunction::ALL {
            let hasher = KeyHasher::new(function, &Secret::new([3; 16]));
            for keys in [&keys[..], &keys[280..], &keys[..5], &[]] {
                let mut hashes = vec![None; keys.len()];
                hasher.hash_each(keys.iter().copied(), |place, hash| {
                    assert_eq!(hashes[place].replace(hash), None);
                });
                for (key, hash) in keys.iter().zip(hashes) {
                    assert_eq!(hash, Some(hasher.hash(key)), "{function}, {}", key.len());
                }
            }
        }
    }

    #[test]
    fn another_secret_is_another_hash() {
        for function in HashFunction::OWN {
            assert_ne!(
                hash(function, [1; 16], b"key"),
                hash(function, [2; 16], b"key")
            );
        }
    }

    #[test]
    fn names_are_read_back() {
        for function in HashFunction::ALL {
            assert_eq!(function.name().parse(), Ok(function));
        }
        assert!(
            "md5"
                .parse::<HashFunction>()
                .unwrap_err()
                .contains("siphash-1-3-128")
        );
    }

    #[test]
    fn the_secret_stays_out_of_debug_output() {
        let secret = Secret::new([0xab; 16]);
        let shown = format!(
            "{secret:?} {:?}",
            KeyHasher::new(HashFunction::Xxh3_128, &secret)
        );
        assert!(
            !shown.contains("171") && !shown.to_lowercase().contains("ab, "),
            "{shown}"
        );
    }

    #[test]
    fn choices_cover_the_range_evenly() {
        let mut counts = [0_u32; 10];
        for i in 0..10_000_u32 {
            let (chosen, _) = choose(KeyHash { low: 7, high: 9 }.value(i + 1), 10);
            counts[chosen as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (850..1150).contains(&count)),
            "{counts:?}"
        );
    }
}
