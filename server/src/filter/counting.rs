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

use fearless_simd::{Select, Simd, SimdBase};

use crate::{
    blocked::LANES,
    cells::{Cells, MAX as SATURATED, Picked, places},
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

/// Whether all bits of a key are set. `hash_count` is 1 to 64, here and below.
#[inline(always)]
pub fn contains<S: Simd>(simd: S, counters: &Cells, hash: KeyHash, hash_count: u32) -> bool {
    if hash_count > LANES as u32 {
        return places(hash, hash_count).all(|place| place.get(counters) > 0);
    }
    Picked::of(simd, counters, hash, hash_count).with(0) == 0
}

/// Takes a step with a key, and tells what that did; `None` if it left everything as it was.
///
/// A key is not there if not all of its bits are set. One whose counters are all saturated cannot
/// be removed: it is there for good.
#[inline(always)]
pub fn take<S: Simd>(
    simd: S,
    counters: &mut Cells,
    hash: KeyHash,
    hash_count: u32,
    step: Step,
) -> Option<Change> {
    if hash_count > LANES as u32 {
        return take_by_places(counters, hash, hash_count, step);
    }
    let counts = Picked::of(simd, counters, hash, hash_count);
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
        counters,
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
fn take_by_places(
    counters: &mut Cells,
    hash: KeyHash,
    hash_count: u32,
    step: Step,
) -> Option<Change> {
    let counts = || places(hash, hash_count).map(|place| place.get(counters));
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
    for place in places(hash, hash_count) {
        match (place.get(counters), step) {
            (SATURATED, _) => {}
            (count, Step::Remove) => place.set(counters, count - 1),
            (count, _) => place.set(counters, count + 1),
        }
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;
    use crate::{
        blocked::{self, BLOCK_BITS, Block},
        cells::{self, WORDS, above_zero, at_most},
    };

    /// With the widest registers, which must not differ from the narrowest.
    fn contains(counters: &Cells, hash: KeyHash, hash_count: u32) -> bool {
        let [widest, narrowest] = [Level::new(), Level::baseline()].map(
            |level| dispatch!(level, simd => super::contains(simd, counters, hash, hash_count)),
        );
        assert_eq!(widest, narrowest);
        widest
    }

    /// As `contains`, and as counter by counter.
    fn take(counters: &mut Cells, hash: KeyHash, count: u32, step: Step) -> Option<Change> {
        let mut by_places = *counters;
        let expected = take_by_places(&mut by_places, hash, count, step);
        for level in [Level::new(), Level::baseline()] {
            let mut counters = *counters;
            let change = dispatch!(level, simd => {
                super::take(simd, &mut counters, hash, count, step)
            });
            assert_eq!((change, counters), (expected, by_places));
        }
        *counters = by_places;
        expected
    }

    fn add(counters: &mut Cells, hash: KeyHash, hash_count: u32) -> Change {
        take(counters, hash, hash_count, Step::Add).unwrap()
    }

    fn remove(counters: &mut Cells, hash: KeyHash, hash_count: u32) -> Option<Change> {
        take(counters, hash, hash_count, Step::Remove)
    }

    fn keys() -> impl Iterator<Item = KeyHash> {
        let seed = KeyHash { low: 3, high: 5 };
        (1..).map(move |i| KeyHash {
            low: seed.value(i),
            high: seed.value(i + 10_000),
        })
    }

    /// The bits of a plain block that the counters stand for.
    fn as_bits(counters: &Cells) -> Block {
        let mut bits = [0; 8];
        for (index, word) in counters.iter().enumerate() {
            for counter in 0..16 {
                let is_set = u64::from(word >> (4 * counter) & 15 > 0);
                bits[index % 8] |= is_set << (index / 8 * 16 + counter);
            }
        }
        bits
    }

    fn union(keys: &[KeyHash], hash_count: u32) -> Block {
        let mut all = [0; 8];
        for &key in keys {
            let bits = blocked::bits(key, hash_count);
            all.iter_mut().zip(bits).for_each(|(all, key)| *all |= key);
        }
        all
    }

    #[test]
    fn the_bits_are_those_of_a_plain_block_with_the_keys_that_are_left() {
        for hash_count in [1, 5, 7, 8, 13, 24] {
            let keys: Vec<KeyHash> = keys().take(60).collect();
            let mut counters = [0; WORDS];
            let mut bits = 0;
            for (index, &key) in keys.iter().enumerate() {
                let change = add(&mut counters, key, hash_count);
                bits += u64::from(change.bits);
                assert_eq!(as_bits(&counters), union(&keys[..=index], hash_count));
                assert_eq!(above_zero(&counters), bits);
                assert!(contains(&counters, key, hash_count));
                let bits = as_bits(&counters);
                let is_set = |bit: u64| bits[bit as usize / 64] >> (bit % 64) & 1 == 1;
                assert!((0..BLOCK_BITS).all(|bit| is_set(bit) == (cells::get(&counters, bit) > 0)));
                let before = counters;
                for step in [Step::AddNew, Step::Leave] {
                    assert_eq!(take(&mut counters, key, hash_count, step), None);
                }
                assert_eq!(counters, before);
            }
            assert_eq!(at_most(&counters), 0, "k = {hash_count}: take fewer keys");
            for (index, &key) in keys.iter().enumerate() {
                let change = remove(&mut counters, key, hash_count).unwrap();
                bits -= u64::from(change.bits);
                assert_eq!(as_bits(&counters), union(&keys[index + 1..], hash_count));
                assert_eq!(above_zero(&counters), bits);
            }
            assert_eq!(counters, [0; WORDS]);
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_not_removed() {
        let [one, other] = keys().take(2).collect::<Vec<_>>().try_into().unwrap();
        let mut counters = [0; WORDS];
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
        let mut counters = [0; WORDS];
        for times in 1..=20 {
            let change = add(&mut counters, one, 8);
            assert_eq!(change.saturated, if times == 15 { 8 } else { 0 });
        }
        assert_eq!(at_most(&counters), 8);
        assert_eq!(remove(&mut counters, one, 8), None);
        assert!(contains(&counters, one, 8));
        // Those that the other key has besides are counted as ever.
        let [bits, of_other] = [one, other].map(|key| blocked::bits(key, 8));
        let shared = bits
            .iter()
            .zip(of_other)
            .map(|(one, other)| (one & other).count_ones())
            .sum::<u32>();
        assert!(shared < 8);
        add(&mut counters, other, 8);
        assert_eq!(remove(&mut counters, other, 8).unwrap().bits, 8 - shared);
        assert_eq!(at_most(&counters), 8);
    }

    /// Where snapshots hold the counters of a bit.
    #[test]
    fn a_bit_has_the_counter_that_the_format_says() {
        // Two bits, the first in lane 4: bit 1 of that, and bit 37 of lane 5.
        let hash = KeyHash {
            low: 4 << 48 | 37 << 30 | 1 << 24,
            high: 0,
        };
        let mut counters = [0; WORDS];
        add(&mut counters, hash, 2);
        let mut expected = [0; WORDS];
        expected[4] = 1 << 4;
        expected[2 * 8 + 5] = 1 << (4 * 5);
        assert_eq!(counters, expected);
    }
}
