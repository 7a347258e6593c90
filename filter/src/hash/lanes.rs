//! SipHash-1-3-128 of several keys at once.
//!
//! Each step of SipHash waits for the one before, and leaves most of a core idle. Eight keys are
//! eight chains of steps that do not wait for each other: one in each lane of a wide register, or
//! of a few narrower ones. The program detects the width of the registers when it runs. The hashes
//! are the same on every machine, and equal those of `siphasher`.
//!
//! The steps are those of J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF",
//! 2012. The 128-bit form is that of their reference implementation.

use fearless_simd::{Level, Select, Simd, SimdBase, SimdFrom, dispatch, u64x8};

use super::KeyHash;

/// The number of keys that are hashed at once.
const LANES: usize = 8;
/// The number of bytes of a word of a key.
const WORD: usize = 8;
/// The most words of a key. The last word has less than eight bytes of the key.
const MAX_WORDS: usize = 32;

/// A word of each key.
type Lanes = [u64; LANES];

/// Keys that wait until there are enough of them to be hashed at once.
pub struct Waiting {
    /// The registers of this machine.
    level: Level,
    secret: (u64, u64),
    words: Words,
    /// The index of each key in the batch.
    places: [usize; LANES],
    count: usize,
}

/// The words of several keys. Rows after the last word of a key are ignored.
struct Words {
    rows: [Lanes; MAX_WORDS],
    /// The number of words of each key.
    counts: Lanes,
}

impl Waiting {
    /// The longest key that can be hashed with others, in bytes.
    pub const MAX_BYTES: usize = MAX_WORDS * WORD - 1;

    /// Returns an empty buffer, for hashes under the two halves of a secret.
    pub fn new(secret: (u64, u64)) -> Self {
        Self {
            level: Level::new(),
            secret,
            words: Words {
                rows: [[0; LANES]; MAX_WORDS],
                counts: [1; LANES],
            },
            places: [0; LANES],
            count: 0,
        }
    }

    /// Takes a key of at most [`MAX_BYTES`](Self::MAX_BYTES). If it fills the last lane, passes the
    /// hashes of all waiting keys to `report`.
    #[expect(
        clippy::indexing_slicing,
        reason = "`count` is less than `LANES`, and `MAX_BYTES` have less than `MAX_WORDS` whole \
                  words"
    )]
    #[inline]
    pub fn take(&mut self, place: usize, key: &[u8], report: impl FnMut(usize, KeyHash)) {
        let lane = self.count;
        let (whole, _) = key.as_chunks::<WORD>();
        for (row, word) in self.words.rows.iter_mut().zip(whole) {
            row[lane] = u64::from_le_bytes(*word);
        }
        self.words.rows[whole.len()][lane] = last_word(key);
        self.words.counts[lane] = whole.len() as u64 + 1;
        self.places[lane] = place;
        self.count += 1;
        if self.count == LANES {
            self.finish(report);
        }
    }

    /// Passes the hashes of all waiting keys to `report`.
    #[inline]
    pub fn finish(&mut self, mut report: impl FnMut(usize, KeyHash)) {
        if self.count == 0 {
            return;
        }
        let (secret, words) = (self.secret, &self.words);
        let (low, high) = dispatch!(self.level, simd => sip_hash(simd, secret, words));
        let hashes = low.into_iter().zip(high);
        for (place, (low, high)) in self.places.into_iter().zip(hashes).take(self.count) {
            report(place, KeyHash { low, high });
        }
        self.count = 0;
    }
}

/// Returns the halves of the hashes. The registers are named here because no compiler found out by
/// itself how to rotate four words in a register that has no instruction for it.
#[inline(always)]
fn sip_hash<S: Simd>(simd: S, (first, second): (u64, u64), words: &Words) -> (Lanes, Lanes) {
    let all = |word| u64x8::splat(simd, word);
    // The constants spell "somepseudorandomlygeneratedbytes". 0xee and 0xdd distinguish the 128-bit
    // form from the other.
    let mut state = State {
        v0: all(first ^ 0x736f_6d65_7073_6575),
        v1: all(second ^ 0x646f_7261_6e64_6f6d ^ 0xee),
        v2: all(first ^ 0x6c79_6765_6e65_7261),
        v3: all(second ^ 0x7465_6462_7974_6573),
    };
    let shortest = words.counts.iter().fold(u64::MAX, |a, b| a.min(*b));
    let longest = words.counts.iter().fold(0, |a, b| a.max(*b));
    let counts = u64x8::simd_from(simd, words.counts);
    for (row, word) in words.rows.iter().zip(0..longest) {
        let row = u64x8::simd_from(simd, *row);
        let before = state;
        state.v3 ^= row;
        state.round();
        state.v0 ^= row;
        if word >= shortest {
            // Keys that have ended keep their state.
            let ended = counts.simd_le(all(word));
            state.v0 = ended.select(before.v0, state.v0);
            state.v1 = ended.select(before.v1, state.v1);
            state.v2 = ended.select(before.v2, state.v2);
            state.v3 = ended.select(before.v3, state.v3);
        }
    }
    state.v2 ^= all(0xee);
    let low = state.finalize();
    state.v1 ^= all(0xdd);
    (low.into(), state.finalize().into())
}

/// Returns the bytes after the last whole word, and the length of the key.
#[inline(always)]
fn last_word(key: &[u8]) -> u64 {
    let rest_bits = key.len() % WORD * 8;
    let rest = match key.last_chunk::<WORD>() {
        // The bytes of the word before are shifted out.
        Some(last) => u64::from_le_bytes(*last).checked_shr(64 - rest_bits as u32),
        None => {
            let mut bytes = [0; WORD];
            bytes.iter_mut().zip(key).for_each(|(to, byte)| *to = *byte);
            Some(u64::from_le_bytes(bytes))
        }
    };
    (key.len() as u64) << 56 | rest.unwrap_or(0)
}

/// The four words of SipHash's state, for each key.
#[derive(Clone, Copy)]
struct State<S: Simd> {
    v0: u64x8<S>,
    v1: u64x8<S>,
    v2: u64x8<S>,
    v3: u64x8<S>,
}

impl<S: Simd> State<S> {
    #[inline(always)]
    fn finalize(&mut self) -> u64x8<S> {
        for _ in 0..3 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline(always)]
    fn round(&mut self) {
        let Self { v0, v1, v2, v3 } = self;
        half_round::<S, 13, 16>(v0, v1, v2, v3);
        half_round::<S, 17, 21>(v2, v1, v0, v3);
    }
}

/// Half of `SipRound`, which is this twice, the second time with `v0` and `v2` exchanged.
#[inline(always)]
fn half_round<S: Simd, const LEFT: u32, const RIGHT: u32>(
    a: &mut u64x8<S>,
    b: &mut u64x8<S>,
    c: &mut u64x8<S>,
    d: &mut u64x8<S>,
) {
    *a += *b;
    *c += *d;
    *b = rotate::<S, LEFT>(*b) ^ *a;
    *d = rotate::<S, RIGHT>(*d) ^ *c;
    *a = rotate::<S, 32>(*a);
}

#[inline(always)]
fn rotate<S: Simd, const BITS: u32>(words: u64x8<S>) -> u64x8<S> {
    words << BITS | words >> (64 - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_registers_change_no_hash() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut waiting = Waiting::new((1, 2));
        for (length, step) in [(0, 0), (0, 30), (200, 7), (255, 0)] {
            for lane in 0..LANES - 1 {
                waiting.take(lane, &bytes[..length + lane * step], |_, _| {});
            }
            let words = &waiting.words;
            let [widest, narrowest] = [Level::new(), Level::baseline()]
                .map(|level| dispatch!(level, simd => sip_hash(simd, (1, 2), words)));
            assert_eq!(widest, narrowest);
            waiting.finish(|_, _| {});
        }
    }
}
