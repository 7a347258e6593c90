//! Counters in the place of bits, so that keys can be taken out again.
//!
//! Fan, Cao, Almeida and Broder (2000): each bit of a Bloom filter becomes a counter of four
//! bits. A key that is added counts its counters up by one, one that is removed counts them
//! down, and a bit is set where a counter is above 0. So at every moment the bits are those of a
//! plain filter that holds the keys which are left, and so are its rates. The counters are
//! [`crate::cells`].
//!
//! # What cannot be counted
//!
//! A counter that has come to 15 is saturated: how many keys it stands for is no longer known,
//! so it is never counted down, or it might come to 0 under a key that is still there. In a
//! filter that is not over-full that takes the same key added 15 times: by chance alone it is
//! one counter in 10^15 (Fan et al., section V.C).
//!
//! To remove a key that was never added, and is taken for one that was (a false positive), counts
//! down what other keys have counted up, and some of those may then no longer be found.

use std::borrow::Borrow;

use fearless_simd::{Select, Simd, SimdBase};

use crate::{
    blocked::LANES,
    cells::{Line, MAX as SATURATED, Picked, above_zero, places},
    hash::KeyHash,
};

/// What adding or removing a key did to its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// How many came from 0, or to it.
    pub bits: u32,
    /// How many came to where they stay.
    pub saturated: u32,
}

/// What is done to the counters of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// The key is added if it is not there.
    AddNew,
    /// The key is added.
    Add,
    /// The key is removed, if it is there.
    Remove,
}

/// What takes steps with many keys of shards `W`, one after the other.
///
/// Both methods are to be inlined: what is told otherwise goes by way of memory, where reading it
/// waits for all that was written before, lines of counters among it.
pub trait Stepper<W> {
    /// The step to take with a key.
    fn step(&self, hash: KeyHash) -> Step;

    /// Is told what a step with a key has done to its shard; `None` if it left everything as it was.
    fn done(&mut self, key: usize, hash: KeyHash, shard: &mut W, change: Option<Change>);
}

/// Whether all bits of a key are set, given its lines. `hash_count` is 1 to 64, here and below.
#[inline(always)]
pub fn contains<S: Simd, L: Borrow<Line>, const LINES: usize>(
    simd: S,
    lines: [L; LINES],
    hash: KeyHash,
    hash_count: u32,
) -> bool {
    if hash_count > LANES as u32 {
        return places(LINES, hash, hash_count).all(|place| place.get(&lines) > 0);
    }
    Picked::of(simd, &lines, hash, hash_count).with(0) == 0
}

/// Takes a step with a key, and tells what that did; `None` if it left everything as it was.
///
/// A key is not there if not all of its bits are set. One whose counters are all saturated cannot
/// be removed: it is there for good.
#[inline(always)]
pub fn take<S: Simd, const LINES: usize>(
    simd: S,
    lines: [&mut Line; LINES],
    hash: KeyHash,
    hash_count: u32,
    step: Step,
) -> Option<Change> {
    if hash_count > LANES as u32 {
        return take_by_places(lines, hash, hash_count, step);
    }
    let counts = Picked::of(simd, &lines, hash, hash_count);
    let (zeros, saturated) = (counts.with(0), counts.with(SATURATED));
    let change = match step {
        Step::AddNew if zeros == 0 => return None,
        Step::AddNew | Step::Add => Change {
            bits: zeros.count_ones(),
            saturated: counts.with(SATURATED - 1).count_ones(),
        },
        Step::Remove if zeros == 0 && saturated != counts.active => Change {
            bits: counts.with(1).count_ones(),
            saturated: 0,
        },
        Step::Remove | Step::Leave => return None,
    };
    let stay = counts.values.simd_eq(counts.all(SATURATED));
    let ones = stay.select(counts.all(0), counts.ones);
    counts.change(
        lines,
        ones,
        #[inline(always)]
        |words, ones| match step {
            Step::Remove => words - ones,
            _ => words + ones,
        },
    );
    Some(change)
}

/// As [`take`], for keys with more bits than there are lanes.
fn take_by_places<const LINES: usize>(
    mut lines: [&mut Line; LINES],
    hash: KeyHash,
    hash_count: u32,
    step: Step,
) -> Option<Change> {
    let counts = || places(LINES, hash, hash_count).map(|place| place.get(&lines));
    let of = |value| counts().filter(|&count| count == value).count() as u32;
    let is_there = of(0) == 0;
    let change = match step {
        Step::AddNew if is_there => return None,
        Step::AddNew | Step::Add => Change {
            bits: of(0),
            saturated: of(SATURATED - 1),
        },
        Step::Remove if is_there && counts().any(|count| count < SATURATED) => Change {
            bits: of(1),
            saturated: 0,
        },
        Step::Remove | Step::Leave => return None,
    };
    for place in places(LINES, hash, hash_count) {
        match (place.get(&lines), step) {
            (SATURATED, _) => {}
            (count, Step::Remove) => place.set(&mut lines, count - 1),
            (count, _) => place.set(&mut lines, count + 1),
        }
    }
    Some(change)
}

/// Counts the counters up by those of other words, of which there are as many, and tells how many
/// were at 0. One that would come above its greatest value is saturated, as one that comes to it.
pub fn unite(words: &mut [u64], others: &[u64]) -> u64 {
    let before = above_zero(words);
    for (word, &other) in words.iter_mut().zip(others) {
        *word = saturating_add(*word, other);
    }
    above_zero(words) - before
}

/// The sums of the cells of two words, each by itself.
fn saturating_add(one: u64, other: u64) -> u64 {
    const HIGH: u64 = 0x8888_8888_8888_8888;
    // Without their highest bits no sum is carried into the next cell.
    let low = (one & !HIGH) + (other & !HIGH);
    let sums = low ^ ((one ^ other) & HIGH);
    // The majority of the two highest bits and what is carried into them.
    let too_large = ((one & other) | ((one | other) & low)) & HIGH;
    sums | ((too_large >> 3) * SATURATED)
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;
    use crate::{
        blocked::{self, Block},
        cells::{LINE_CELLS, at_most},
    };

    /// The lines of some keys that have the same ones.
    type Lines<const LINES: usize> = [Line; LINES];

    /// With the widest registers, which must not differ from the narrowest.
    fn contains<const LINES: usize>(lines: &Lines<LINES>, hash: KeyHash, hash_count: u32) -> bool {
        let [widest, narrowest] = [Level::new(), Level::baseline()].map(|level| {
            let lines = lines.each_ref();
            dispatch!(level, simd => super::contains(simd, lines, hash, hash_count))
        });
        assert_eq!(widest, narrowest);
        widest
    }

    /// As `contains`, and as counter by counter.
    fn take<const LINES: usize>(
        lines: &mut Lines<LINES>,
        hash: KeyHash,
        count: u32,
        step: Step,
    ) -> Option<Change> {
        let mut by_places = *lines;
        let expected = take_by_places(by_places.each_mut(), hash, count, step);
        for level in [Level::new(), Level::baseline()] {
            let mut counters = *lines;
            let lines = counters.each_mut();
            let change = dispatch!(level, simd => super::take(simd, lines, hash, count, step));
            assert_eq!((change, counters), (expected, by_places));
        }
        *lines = by_places;
        expected
    }

    fn add<const LINES: usize>(lines: &mut Lines<LINES>, hash: KeyHash, hash_count: u32) -> Change {
        take(lines, hash, hash_count, Step::Add).unwrap()
    }

    fn remove<const LINES: usize>(
        lines: &mut Lines<LINES>,
        hash: KeyHash,
        hash_count: u32,
    ) -> Option<Change> {
        take(lines, hash, hash_count, Step::Remove)
    }

    fn keys() -> impl Iterator<Item = KeyHash> {
        let seed = KeyHash { low: 3, high: 5 };
        (1..).map(move |i| KeyHash {
            low: seed.value(i),
            high: seed.value(i + 10_000),
        })
    }

    /// The bits of a plain block, of which each lane has 16 for each line.
    fn as_bits<const LINES: usize>(lines: &Lines<LINES>) -> Block {
        let mut bits = [0; 8];
        for (number, line) in lines.iter().enumerate() {
            for (lane, word) in line.iter().enumerate() {
                for counter in 0..16 {
                    let is_set = u64::from(word >> (4 * counter) & 15 > 0);
                    bits[lane] |= is_set << (16 * number + counter);
                }
            }
        }
        bits
    }

    /// The bits of keys in a plain block; in two lines what the highest of the six bits tells apart is
    /// one.
    fn union<const LINES: usize>(keys: &[KeyHash], hash_count: u32) -> Block {
        let mut all = [0; 8];
        for &key in keys {
            let bits = blocked::bits(key, hash_count);
            all.iter_mut().zip(bits).for_each(|(all, key)| *all |= key);
        }
        match LINES {
            2 => all.map(|lane| (lane | lane >> 32) & 0xffff_ffff),
            _ => all,
        }
    }

    #[test]
    fn the_bits_are_those_of_a_plain_block_with_the_keys_that_are_left() {
        for hash_count in [1, 5, 7, 8, 13, 24] {
            keys_come_and_go::<2>(hash_count, 24);
            keys_come_and_go::<4>(hash_count, 60);
        }
    }

    fn keys_come_and_go<const LINES: usize>(hash_count: u32, count: usize) {
        let keys: Vec<KeyHash> = keys().take(count).collect();
        let mut counters = [[0; 8]; LINES];
        let mut bits = 0;
        for (index, &key) in keys.iter().enumerate() {
            let change = add(&mut counters, key, hash_count);
            bits += u64::from(change.bits);
            let expected = union::<LINES>(&keys[..=index], hash_count);
            assert_eq!(as_bits(&counters), expected);
            assert_eq!(above_zero(counters.as_flattened()), bits);
            assert!(contains(&counters, key, hash_count));
            let before = counters;
            for step in [Step::AddNew, Step::Leave] {
                assert_eq!(take(&mut counters, key, hash_count, step), None);
            }
            assert_eq!(counters, before);
        }
        let saturated = at_most(counters.as_flattened());
        assert_eq!(saturated, 0, "k = {hash_count}: take fewer keys");
        for (index, &key) in keys.iter().enumerate() {
            let change = remove(&mut counters, key, hash_count).unwrap();
            bits -= u64::from(change.bits);
            let expected = union::<LINES>(&keys[index + 1..], hash_count);
            assert_eq!(as_bits(&counters), expected);
            assert_eq!(above_zero(counters.as_flattened()), bits);
        }
        assert_eq!(counters, [[0; 8]; LINES]);
    }

    #[test]
    fn a_key_that_is_not_there_is_not_removed() {
        let [one, other] = keys().take(2).collect::<Vec<_>>().try_into().unwrap();
        let mut counters = [[0; 8]; 2];
        add(&mut counters, one, 8);
        let before = counters;
        assert_eq!(remove(&mut counters, other, 8), None);
        assert!(!contains(&counters, other, 8));
        assert_eq!(counters, before);
        assert!(take(&mut counters, other, 8, Step::AddNew).is_some());
        assert!(contains(&counters, other, 8));
    }

    #[test]
    fn what_is_saturated_stays() {
        let [one, other] = keys().take(2).collect::<Vec<_>>().try_into().unwrap();
        let mut counters = [[0; 8]; 2];
        for times in 1..=20 {
            let change = add(&mut counters, one, 8);
            assert_eq!(change.saturated, if times == 15 { 8 } else { 0 });
        }
        assert_eq!(at_most(counters.as_flattened()), 8);
        assert_eq!(remove(&mut counters, one, 8), None);
        assert!(contains(&counters, one, 8));
        // Those that the other key has besides are counted as ever.
        let [bits, of_other] = [one, other].map(|key| union::<2>(&[key], 8));
        let shared = bits
            .iter()
            .zip(of_other)
            .map(|(one, other)| (one & other).count_ones())
            .sum::<u32>();
        assert!(shared < 8);
        add(&mut counters, other, 8);
        assert_eq!(remove(&mut counters, other, 8).unwrap().bits, 8 - shared);
        assert_eq!(at_most(counters.as_flattened()), 8);
    }

    #[test]
    fn sums_of_counters_stay_in_their_cells() {
        for one in 0..=SATURATED {
            for other in 0..=SATURATED {
                for beside in [0, SATURATED] {
                    // In a cell in the middle, and in the first and the last.
                    let word =
                        |value| value << 60 | beside << 32 | value << 28 | beside << 24 | value;
                    let mut words = [word(one), one];
                    let added = unite(&mut words, &[word(other), other]);
                    let sum = (one + other).min(SATURATED);
                    assert_eq!(words, [word(sum), sum], "{one} + {other}");
                    let is_new = one == 0 && other > 0;
                    assert_eq!(added, if is_new { 4 } else { 0 });
                }
            }
        }
    }

    /// Where snapshots hold the counters of a key.
    #[test]
    fn a_key_has_the_counters_that_the_format_says() {
        // Two, the first in lane 4: 1 of that, and 37 of lane 5, that is 5 of the third line, or of the
        // first of two.
        let hash = KeyHash {
            low: 4 << 48 | 37 << 30 | 1 << 24,
            high: 0,
        };
        let mut expected = [[0; 8]; 4];
        expected[0][4] = 1 << 4;
        expected[2][5] = 1 << (4 * 5);
        let mut four = [[0; 8]; 4];
        add(&mut four, hash, 2);
        assert_eq!(four, expected);
        let mut two = [[0; 8]; 2];
        add(&mut two, hash, 2);
        expected[0][5] = expected[2][5];
        assert_eq!(two, expected[..2]);
        let cells: Vec<(usize, u64)> = places(2, hash, 2)
            .map(|place| (place.line, place.cell()))
            .collect();
        assert_eq!(cells, [(0, 4 * 16 + 1), (0, 5 * 16 + 5)]);
        assert!(cells.iter().all(|&(_, cell)| cell < LINE_CELLS));
    }
}
