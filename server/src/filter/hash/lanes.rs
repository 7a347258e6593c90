//! SipHash-1-3-128 of several keys at once.
//!
//! Each step of SipHash waits for the one before, and leaves most of a core idle. Eight keys are
//! eight chains of steps that do not wait for each other: one in each lane of a wide register,
//! or of a few narrower ones. How wide they are is found out when the program runs; the hashes
//! are the same on every machine, and those of `siphasher`.
//!
//! The steps are those of J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF",
//! 2012; the 128-bit form is that of their reference implementation.

use multiversion::multiversion;

use super::KeyHash;

/// The keys that are hashed at once.
const LANES: usize = 8;
/// The bytes of a word of a key.
const WORD: usize = 8;
/// The most words of a key, the last being one of less than eight bytes.
const MAX_WORDS: usize = 32;

/// A word of each key.
type Lanes = [u64; LANES];

/// Keys that wait until there are enough of them to be hashed at once.
pub struct Waiting {
    secret: (u64, u64),
    words: Words,
    /// Where each stands in the batch.
    places: [usize; LANES],
    count: usize,
}

/// The words of some keys. What stands behind the last word of a key is of no account.
struct Words {
    rows: [Lanes; MAX_WORDS],
    /// The number of words of each.
    counts: Lanes,
}

impl Waiting {
    /// Longer keys cannot be hashed with others.
    pub const MAX_BYTES: usize = MAX_WORDS * WORD - 1;

    /// For hashes under the two halves of a secret.
    pub fn new(secret: (u64, u64)) -> Self {
        Self {
            secret,
            words: Words {
                rows: [[0; LANES]; MAX_WORDS],
                counts: [1; LANES],
            },
            places: [0; LANES],
            count: 0,
        }
    }

    /// Takes a key of at most [`MAX_BYTES`](Self::MAX_BYTES), and tells the hashes of those
    /// that waited if it was the last that was missing.
    #[expect(
        clippy::indexing_slicing,
        reason = "`count` is less than `LANES`, and `MAX_BYTES` have less than `MAX_WORDS` whole \
                  words"
    )]
    #[inline]
    pub fn take(&mut self, place: usize, key: &[u8], tell: impl FnMut(usize, KeyHash)) {
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
            self.finish(tell);
        }
    }

    /// Tells the hashes of the keys that wait.
    #[inline]
    pub fn finish(&mut self, mut tell: impl FnMut(usize, KeyHash)) {
        if self.count == 0 {
            return;
        }
        let (low, high) = sip_hash(self.secret, &self.words);
        let hashes = low.into_iter().zip(high);
        for (place, (low, high)) in self.places.into_iter().zip(hashes).take(self.count) {
            tell(place, KeyHash { low, high });
        }
        self.count = 0;
    }
}

/// The halves of the hashes.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2"))]
fn sip_hash(secret: (u64, u64), words: &Words) -> (Lanes, Lanes) {
    sip_hash_portably(secret, words)
}

/// The same for any machine: what [`sip_hash`] is made of.
#[inline(always)]
fn sip_hash_portably((first, second): (u64, u64), words: &Words) -> (Lanes, Lanes) {
    // The constants spell "somepseudorandomlygeneratedbytes"; 0xee and 0xdd set the 128-bit form
    // apart from the other.
    let mut state = State {
        v0: [first ^ 0x736f_6d65_7073_6575; LANES],
        v1: [second ^ 0x646f_7261_6e64_6f6d ^ 0xee; LANES],
        v2: [first ^ 0x6c79_6765_6e65_7261; LANES],
        v3: [second ^ 0x7465_6462_7974_6573; LANES],
    };
    let counts = &words.counts;
    let shortest = counts
        .iter()
        .fold(u64::MAX, |least, count| least.min(*count));
    let longest = counts.iter().fold(0, |most, count| most.max(*count));
    for (row, word) in words.rows.iter().zip(0..longest) {
        let before = state;
        xor(&mut state.v3, row);
        state.round();
        xor(&mut state.v0, row);
        if word >= shortest {
            // Keys that have ended stay as they were.
            state.keep(&before, counts.map(|count| count <= word));
        }
    }
    xor(&mut state.v2, &[0xee; LANES]);
    let low = state.finalize();
    xor(&mut state.v1, &[0xdd; LANES]);
    (low, state.finalize())
}

/// The bytes behind the last whole word, and the length of the key.
#[inline(always)]
fn last_word(key: &[u8]) -> u64 {
    let rest_bits = key.len() % WORD * 8;
    let rest = match key.last_chunk::<WORD>() {
        // Those of the word before are shifted out.
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
struct State {
    v0: Lanes,
    v1: Lanes,
    v2: Lanes,
    v3: Lanes,
}

impl State {
    #[inline(always)]
    fn finalize(&mut self) -> Lanes {
        for _ in 0..3 {
            self.round();
        }
        let mut hash = self.v0;
        xor(&mut hash, &self.v1);
        xor(&mut hash, &self.v2);
        xor(&mut hash, &self.v3);
        hash
    }

    /// Takes the lanes that are chosen from `other`.
    #[inline(always)]
    fn keep(&mut self, other: &Self, chosen: [bool; LANES]) {
        choose(&mut self.v0, &other.v0, chosen);
        choose(&mut self.v1, &other.v1, chosen);
        choose(&mut self.v2, &other.v2, chosen);
        choose(&mut self.v3, &other.v3, chosen);
    }

    #[inline(always)]
    fn round(&mut self) {
        let Self { v0, v1, v2, v3 } = self;
        half_round::<13, 16>(v0, v1, v2, v3);
        half_round::<17, 21>(v2, v1, v0, v3);
    }
}

/// `SipRound` is this twice, the second time with `v0` and `v2` the other way round.
#[inline(always)]
fn half_round<const LEFT: u32, const RIGHT: u32>(
    a: &mut Lanes,
    b: &mut Lanes,
    c: &mut Lanes,
    d: &mut Lanes,
) {
    add(a, b);
    add(c, d);
    rotate::<LEFT>(b);
    rotate::<RIGHT>(d);
    xor(b, a);
    xor(d, c);
    rotate::<32>(a);
}

#[inline(always)]
fn add(to: &mut Lanes, other: &Lanes) {
    for (to, other) in to.iter_mut().zip(other) {
        *to = to.wrapping_add(*other);
    }
}

#[inline(always)]
fn xor(to: &mut Lanes, other: &Lanes) {
    for (to, other) in to.iter_mut().zip(other) {
        *to ^= other;
    }
}

#[inline(always)]
fn choose(to: &mut Lanes, other: &Lanes, chosen: [bool; LANES]) {
    for ((to, other), chosen) in to.iter_mut().zip(other).zip(chosen) {
        *to = if chosen { *other } else { *to };
    }
}

#[inline(always)]
fn rotate<const BITS: u32>(lanes: &mut Lanes) {
    for lane in lanes {
        *lane = lane.rotate_left(BITS);
    }
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
            assert_eq!(sip_hash((1, 2), words), sip_hash_portably((1, 2), words));
            waiting.finish(|_, _| {});
        }
    }
}
