//! Counters in the place of bits, so that keys can be removed again.
//!
//! Fan, Cao, Almeida and Broder (2000): each bit of a Bloom filter becomes a counter of four bits.
//! Adding a key increments its counters, and removing a key decrements them. A bit is set if its
//! counter is above 0. So at every moment the bits, and the rates, are those of a plain filter that
//! holds the keys that are left. A counter is a [cell](crate::cells).
//!
//! # What cannot be counted
//!
//! A counter that has reached 15 is saturated: the number of its keys is no longer known. So it is
//! never decremented, because it might reach 0 under a key that is still present. In a filter that
//! is not over-full this happens only if the same key is added 15 times: by chance alone it happens
//! to one counter in 10^15 (Fan et al., section V.C).
//!
//! Removing a key that was never added, but is reported as seen (a false positive), decrements
//! counters of other keys. Some of those keys may then no longer be found.

use std::borrow::Borrow;

use fearless_simd::{Level, Select, Simd, SimdBase, dispatch};

use crate::{
    blocked::LANES,
    cells::{MAX as SATURATED, above_zero, count},
    format::declare_format,
    hash::KeyHash,
    key_set::KeySet,
    two_lines::{LINES, Line, Picked, TwoLines, places},
};

/// The effect on its counters of adding or removing a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountEffect {
    /// The number of counters that left 0, or came to 0.
    pub bits: u32,
    /// The number of counters that became saturated.
    pub saturated: u32,
}

/// The operation on the counters of a key.
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

/// Runs steps for many keys of shards `W`, one after the other.
///
/// Both methods should be inlined. Otherwise their results go through memory, and reading them
/// waits for all earlier writes, lines of counters included.
pub trait Stepper<W> {
    /// Returns the step for a key.
    fn step(&self, hash: KeyHash) -> Step;

    /// Receives the effect of a step with a key on its shard; `None` if nothing changed.
    fn done(&mut self, key: usize, hash: KeyHash, shard: &mut W, change: Option<CountEffect>);
}

/// Whether all bits of a key are set, given its lines. `hash_count` is 1 to 64, here and below.
#[inline(always)]
pub fn contains<S: Simd, L: Borrow<Line>>(
    simd: S,
    lines: [L; LINES],
    hash: KeyHash,
    hash_count: u32,
) -> bool {
    if hash_count > LANES as u32 {
        return places(hash, hash_count).all(|place| place.get(&lines) > 0);
    }
    Picked::of(simd, &lines, hash, hash_count).with(0) == 0
}

/// Runs a step for a key, and returns the change; `None` if nothing changed.
///
/// A key is not present if some of its bits are not set. A key whose counters are all saturated
/// cannot be removed: it stays for good.
#[inline(always)]
pub fn take<S: Simd>(
    simd: S,
    lines: [&mut Line; LINES],
    hash: KeyHash,
    hash_count: u32,
    step: Step,
) -> Option<CountEffect> {
    if hash_count > LANES as u32 {
        return take_by_places(lines, hash, hash_count, step);
    }
    let counts = Picked::of(simd, &lines, hash, hash_count);
    let (zeros, saturated) = (counts.with(0), counts.with(SATURATED));
    let change = match step {
        Step::AddNew if zeros == 0 => return None,
        Step::AddNew | Step::Add => CountEffect {
            bits: zeros.count_ones(),
            saturated: counts.with(SATURATED - 1).count_ones(),
        },
        Step::Remove if zeros == 0 && saturated != counts.active => CountEffect {
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

/// Does the same as [`take`], for keys with more bits than there are lanes.
fn take_by_places(
    mut lines: [&mut Line; LINES],
    hash: KeyHash,
    hash_count: u32,
    step: Step,
) -> Option<CountEffect> {
    let counts = || places(hash, hash_count).map(|place| place.get(&lines));
    let of = |value| counts().filter(|&count| count == value).count() as u32;
    let is_there = of(0) == 0;
    let change = match step {
        Step::AddNew if is_there => return None,
        Step::AddNew | Step::Add => CountEffect {
            bits: of(0),
            saturated: of(SATURATED - 1),
        },
        Step::Remove if is_there && counts().any(|count| count < SATURATED) => CountEffect {
            bits: of(1),
            saturated: 0,
        },
        Step::Remove | Step::Leave => return None,
    };
    for place in places(hash, hash_count) {
        match (place.get(&lines), step) {
            (SATURATED, _) => {}
            (count, Step::Remove) => place.set(&mut lines, count - 1),
            (count, _) => place.set(&mut lines, count + 1),
        }
    }
    Some(change)
}

/// Returns the number of counters in these words that have the greatest value.
pub fn saturated(words: &[u64]) -> u64 {
    count(words, |word| word & word >> 1 & word >> 2 & word >> 3)
}

/// Adds the counters of `others`, which must have the same length. Returns the number of counters
/// that were at 0 before and are above it now. A counter whose sum reaches or exceeds the greatest
/// value is saturated.
pub fn unite(words: &mut [u64], others: &[u64]) -> u64 {
    let before = above_zero(words);
    for (word, &other) in words.iter_mut().zip(others) {
        *word = saturating_add(*word, other);
    }
    above_zero(words) - before
}

/// Adds the cells of two words, each cell by itself.
fn saturating_add(one: u64, other: u64) -> u64 {
    const HIGH: u64 = 0x8888_8888_8888_8888;
    // Without their highest bits no sum carries into the next cell.
    let low = (one & !HIGH) + (other & !HIGH);
    let sums = low ^ ((one ^ other) & HIGH);
    // The majority of the two highest bits and the carry into them.
    let too_large = ((one & other) | ((one | other) & low)) & HIGH;
    sums | ((too_large >> 3) * SATURATED)
}

declare_format!(
    /// A filter with a counter in the place of each bit.
    Counters
);

impl TwoLines for Counters {}

/// Adding a key that is there counts nothing.
impl KeySet for Counters {
    #[inline(always)]
    fn contains_with<S: Simd>(&self, simd: S, words: &[u64], hash: KeyHash) -> bool {
        contains(simd, self.lines_in(words, hash), hash, self.0.hash_count())
    }

    #[inline(always)]
    fn insert_with<S: Simd>(&self, simd: S, words: &mut [u64], hash: KeyHash) -> u32 {
        let change = self.take_with(simd, words, hash, Step::AddNew);
        change.map_or(0, |change| change.bits)
    }
}

impl Counters {
    /// Runs a step for each of many keys. The shards start at `first_shard`.
    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives the shards of its keys"
    )]
    pub fn take_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        stepper: &mut impl Stepper<W>,
    ) {
        dispatch!(Level::new(), simd => {
            for (number, hash) in keys {
                let shard = &mut shards[self.0.shard(hash) - first_shard];
                let change = self.take_with(simd, shard.as_mut(), hash, stepper.step(hash));
                stepper.done(number, hash, shard, change);
            }
        });
    }

    /// Runs a step for a key; `None` if nothing changed.
    #[inline(always)]
    fn take_with<S: Simd>(
        &self,
        simd: S,
        words: &mut [u64],
        hash: KeyHash,
        step: Step,
    ) -> Option<CountEffect> {
        let lines = self.lines_mut(words, hash)?;
        take(simd, lines, hash, self.0.hash_count(), step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocked::{self, Block},
        two_lines::LINE_CELLS,
    };

    /// The lines of keys that share the same lines.
    type Lines = [Line; LINES];

    /// Checks with the widest registers, which must not differ from the narrowest.
    fn contains(lines: &Lines, hash: KeyHash, hash_count: u32) -> bool {
        let [widest, narrowest] = [Level::new(), Level::baseline()].map(|level| {
            let lines = lines.each_ref();
            dispatch!(level, simd => super::contains(simd, lines, hash, hash_count))
        });
        assert_eq!(widest, narrowest);
        widest
    }

    /// Takes a step with both, as `contains`, and counter by counter, as a check.
    fn take(lines: &mut Lines, hash: KeyHash, count: u32, step: Step) -> Option<CountEffect> {
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

    fn add(lines: &mut Lines, hash: KeyHash, hash_count: u32) -> CountEffect {
        take(lines, hash, hash_count, Step::Add).unwrap()
    }

    fn remove(lines: &mut Lines, hash: KeyHash, hash_count: u32) -> Option<CountEffect> {
        take(lines, hash, hash_count, Step::Remove)
    }

    fn keys() -> impl Iterator<Item = KeyHash> {
        let seed = KeyHash { low: 3, high: 5 };
        (1..).map(move |i| KeyHash {
            low: seed.value(i),
            high: seed.value(i + 10_000),
        })
    }

    /// Returns the bits of a plain block. Each lane has 16 of them for each line.
    fn as_bits(lines: &Lines) -> Block {
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

    /// Returns the bits of keys in a plain block. Bits that differ only in the highest of the six
    /// bits are one.
    fn union(keys: &[KeyHash], hash_count: u32) -> Block {
        let mut all = [0; 8];
        for &key in keys {
            let bits = blocked::bits(key, hash_count);
            all.iter_mut().zip(bits).for_each(|(all, key)| *all |= key);
        }
        all.map(|lane| (lane | lane >> 32) & 0xffff_ffff)
    }

    #[test]
    fn the_bits_are_those_of_a_plain_block_with_the_keys_that_are_left() {
        for hash_count in [1, 5, 7, 8, 13, 24] {
            keys_come_and_go(hash_count, 24);
        }
    }

    fn keys_come_and_go(hash_count: u32, count: usize) {
        let keys: Vec<KeyHash> = keys().take(count).collect();
        let mut counters = [[0; 8]; LINES];
        let mut bits = 0;
        for (index, &key) in keys.iter().enumerate() {
            let change = add(&mut counters, key, hash_count);
            bits += u64::from(change.bits);
            let expected = union(&keys[..=index], hash_count);
            assert_eq!(as_bits(&counters), expected);
            assert_eq!(above_zero(counters.as_flattened()), bits);
            assert!(contains(&counters, key, hash_count));
            let before = counters;
            for step in [Step::AddNew, Step::Leave] {
                assert_eq!(take(&mut counters, key, hash_count, step), None);
            }
            assert_eq!(counters, before);
        }
        let saturated = saturated(counters.as_flattened());
        assert_eq!(saturated, 0, "k = {hash_count}: take fewer keys");
        for (index, &key) in keys.iter().enumerate() {
            let change = remove(&mut counters, key, hash_count).unwrap();
            bits -= u64::from(change.bits);
            let expected = union(&keys[index + 1..], hash_count);
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
        assert_eq!(saturated(counters.as_flattened()), 8);
        assert_eq!(remove(&mut counters, one, 8), None);
        assert!(contains(&counters, one, 8));
        // The counters that only the other key has are counted as usual.
        let [bits, of_other] = [one, other].map(|key| union(&[key], 8));
        let shared = bits
            .iter()
            .zip(of_other)
            .map(|(one, other)| (one & other).count_ones())
            .sum::<u32>();
        assert!(shared < 8);
        add(&mut counters, other, 8);
        assert_eq!(remove(&mut counters, other, 8).unwrap().bits, 8 - shared);
        assert_eq!(saturated(counters.as_flattened()), 8);
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

    /// The counters of a key lie where snapshots store them.
    #[test]
    fn a_key_has_the_counters_that_the_format_says() {
        // Two counters, the first in lane 4: counter 1 of that lane, and 37 of lane 5. That is
        // counter 5 of the first line, for the highest of the six bits does not count.
        let hash = KeyHash {
            low: 4 << 48 | 37 << 30 | 1 << 24,
            high: 0,
        };
        let mut expected = [[0; 8]; 2];
        expected[0][4] = 1 << 4;
        expected[0][5] = 1 << (4 * 5);
        let mut lines = [[0; 8]; 2];
        add(&mut lines, hash, 2);
        assert_eq!(lines, expected);
        let cells: Vec<(usize, u64)> = places(hash, 2)
            .map(|place| (place.line, place.cell()))
            .collect();
        assert_eq!(cells, [(0, 4 * 16 + 1), (0, 5 * 16 + 5)]);
        assert!(cells.iter().all(|&(_, cell)| cell < LINE_CELLS));
    }
}
