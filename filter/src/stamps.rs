//! Stamps in the place of bits, so that keys are forgotten after a time.
//!
//! Time is cut into slices. Slices are numbered, and the number of a slice is its epoch. A key that
//! is added stamps its bits with the epoch of that moment. The key is in the filter as long as none
//! of its stamps is too old. Another key can stamp the same bit later, but never earlier, so a key
//! is never forgotten before its time. At every moment the bits whose stamp counts are the bits of
//! a plain filter with the keys that were added since then, in any slice. So the rates are those of
//! that plain filter. (In a ring of filters, one for each slice, each filter must be large enough
//! for all keys, because all of them can come within one slice.)
//!
//! A stamp is a [cell](crate::cells) of four bits: 0 means no stamp, and 1 to 15 stand for epochs,
//! in turn. Stamps that are too old must be cleared before their value is used again: see
//! [`Window`].

use std::borrow::Borrow;

use fearless_simd::{Level, Simd, SimdBase, SimdMask, dispatch};

use crate::{
    blocked::LANES,
    cells::{self, CELL_BITS, Values},
    format::declare_format,
    hash::KeyHash,
    two_lines::{LINES, Line, Picked, TwoLines, places},
};

/// The number of different stamps.
const STAMPS: u64 = (1 << CELL_BITS) - 1;

/// The most slices for which keys can be remembered. Two more stamps are needed: one for the
/// current slice, and one for a slice that is cleared meanwhile.
pub const MAX_SLICES: u32 = STAMPS as u32 - 2;

/// The epochs of the stamps in a piece of memory.
///
/// After a clear at an epoch, the memory holds no stamp older than `slices` before that epoch. As
/// long as the window is [fit](Self::is_fit), no stamp is younger than that epoch by more than the
/// number of spare stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The epoch of the last clear.
    pub cleared: u64,
    /// The current epoch, not less than the epoch of any stamp.
    pub now: u64,
    /// The number of slices for which keys are remembered, 1 to [`MAX_SLICES`].
    pub slices: u32,
}

impl Window {
    /// Whether stamps of the current epoch differ from all others. If not, stamps that are too old
    /// must be [cleared](Self::clear) first.
    #[inline]
    pub fn is_fit(&self) -> bool {
        self.now <= self.last()
    }

    /// Returns the last epoch that a stamp can have.
    fn last(&self) -> u64 {
        let spare = STAMPS - 1 - u64::from(self.slices);
        self.cleared.saturating_add(spare)
    }

    /// Returns the stamps of epochs that began at most `slices` slices before now.
    pub fn since(&self, slices: u32) -> Values {
        let slices = slices.min(self.slices);
        self.stamps(self.now.saturating_sub(slices.into()), self.now)
    }

    /// Returns the stamps of the epochs from `first` to `last` that the memory can hold.
    fn stamps(&self, first: u64, last: u64) -> Values {
        let oldest = self.cleared.saturating_sub(self.slices.into());
        let (first, last) = (first.max(oldest), last.min(self.last()));
        if last < first {
            return Values::default();
        }
        // A run of as many bits as there are epochs, rotated to the stamp of the first epoch.
        let (run, turn) = ((1 << (last - first + 1)) - 1, first % STAMPS);
        let all = (1 << STAMPS) - 1;
        Values(((run << turn | run >> (STAMPS - turn)) & all) << 1)
    }

    /// Returns the rule that stamps the keys added at an epoch, which is not later than now. An
    /// epoch that is too old is replaced with the oldest one that counts. The window must be
    /// [fit](Self::is_fit). `since` decides which keys count as present, as in [`Self::since`].
    pub fn stamping(&self, epoch: u64, since: u32) -> Stamping {
        let epoch = epoch.max(self.now.saturating_sub(self.slices.into()));
        let there = self.since(since);
        let younger = match epoch < self.now {
            true => self.stamps(epoch + 1, self.now),
            false => Values::default(),
        };
        let stamp = stamp(epoch);
        Stamping {
            there,
            older: Values(!(younger.0 | 1 << stamp)),
            stamp,
        }
    }

    /// Clears stamps that are too old now, and returns the number of bits that still have a stamp.
    pub fn clear(&mut self, words: &mut [u64]) -> u64 {
        let kept = self.since(self.slices);
        let all = self.stamps(0, self.now);
        let old: Vec<u64> = (1..=STAMPS)
            .filter(|&stamp| all.has(stamp) && !kept.has(stamp))
            .collect();
        self.cleared = self.now;
        if kept == Values::default() {
            words.fill(0);
            return 0;
        }
        words.iter_mut().for_each(|word| cells::clear(word, &old));
        cells::above_zero(words)
    }
}

/// Returns the stamp of an epoch.
fn stamp(epoch: u64) -> u64 {
    epoch % STAMPS + 1
}

/// Gives each bit the younger of its own stamp and the stamp in `others`, which must have the same
/// length. Returns the number of bits that had no stamp before. Both were cleared at `epoch`, and
/// no stamp is younger.
pub fn unite(words: &mut [u64], others: &[u64], epoch: u64) -> u64 {
    let age = |stamp_of_bit: u64| (stamp(epoch) + STAMPS - stamp_of_bit) % STAMPS;
    let mut added = 0;
    for (word, other) in words.iter_mut().zip(others) {
        if *other == 0 || other == word {
            continue;
        }
        for shift in (0..64).step_by(CELL_BITS as usize) {
            let [own, other] = [*word, *other].map(|word| word >> shift & STAMPS);
            let takes = other > 0 && (own == 0 || age(other) < age(own));
            if takes {
                *word ^= (own ^ other) << shift;
                added += u64::from(own == 0);
            }
        }
    }
    added
}

/// The rule that stamps a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamping {
    /// The stamps of keys that are present.
    there: Values,
    /// The stamps that are replaced, 0 (no stamp) included.
    older: Values,
    stamp: u64,
}

/// The effect on its stamps of adding a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampEffect {
    /// Whether the key was not present before.
    pub is_new: bool,
    /// The number of bits that had no stamp.
    pub bits: u32,
}

/// Whether all bits of a key have one of these stamps, given its lines. `hash_count` is 1 to 64,
/// here and below.
#[inline(always)]
pub fn contains<S: Simd, L: Borrow<Line>>(
    simd: S,
    lines: [L; LINES],
    hash: KeyHash,
    hash_count: u32,
    there: Values,
) -> bool {
    if hash_count > LANES as u32 {
        return places(hash, hash_count).all(|place| there.has(place.get(&lines)));
    }
    let picked = Picked::of(simd, &lines, hash, hash_count);
    picked.among(there).simd_eq(picked.ones).all_true()
}

/// Adds a key if it is not present. With `renews`, a key that is present is stamped again too, so
/// that it stays as long as a new one. Returns `None` if nothing changed.
#[inline(always)]
pub fn stamp_key<S: Simd>(
    simd: S,
    lines: [&mut Line; LINES],
    hash: KeyHash,
    hash_count: u32,
    how: Stamping,
    renews: bool,
) -> Option<StampEffect> {
    if hash_count > LANES as u32 {
        return stamp_by_places(lines, hash, hash_count, how, renews);
    }
    let picked = Picked::of(simd, &lines, hash, hash_count);
    let is_new = !picked.among(how.there).simd_eq(picked.ones).all_true();
    let older = picked.among(how.older);
    let is_older = !older.simd_eq(picked.all(0));
    if !(is_new || renews) || !is_older.any_true() {
        return None;
    }
    // The XOR that turns a stamp into the new one, in the lanes where it is older.
    let turn = (picked.values ^ picked.all(how.stamp)) & (picked.all(0) - older);
    picked.change(
        lines,
        turn,
        #[inline(always)]
        |words, turn| words ^ turn,
    );
    Some(StampEffect {
        is_new,
        bits: picked.with(0).count_ones(),
    })
}

/// Does the same as [`stamp_key`], for keys with more bits than there are lanes.
fn stamp_by_places(
    mut lines: [&mut Line; LINES],
    hash: KeyHash,
    hash_count: u32,
    how: Stamping,
    renews: bool,
) -> Option<StampEffect> {
    let stamps = || places(hash, hash_count).map(|place| place.get(&lines));
    let is_new = !stamps().all(|stamp| how.there.has(stamp));
    if !(is_new || renews) || !stamps().any(|stamp| how.older.has(stamp)) {
        return None;
    }
    let bits = stamps().filter(|&stamp| stamp == 0).count() as u32;
    for place in places(hash, hash_count) {
        if how.older.has(place.get(&lines)) {
            place.set(&mut lines, how.stamp);
        }
    }
    Some(StampEffect { is_new, bits })
}

declare_format!(
    /// A filter with a stamp in the place of each bit.
    Stamps
);

impl TwoLines for Stamps {}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
impl Stamps {
    /// Looks up many keys, one after the other. The shards start at `first_shard`. `there` returns
    /// the stamps that count in a shard. Each key comes with its number, and `report` receives that
    /// number.
    pub fn contains_stamped<W: AsRef<[u64]>>(
        &self,
        shards: &[W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        mut there: impl FnMut(&W) -> Values,
        mut report: impl FnMut(usize, &W, bool),
    ) {
        dispatch!(Level::new(), simd => {
            for (number, hash) in keys {
                let shard = &shards[self.0.shard(hash) - first_shard];
                let there = there(shard);
                let lines = self.lines_in(shard.as_ref(), hash);
                let seen = contains(simd, lines, hash, self.0.hash_count(), there);
                report(number, shard, seen);
            }
        });
    }

    /// Adds many keys, one after the other. The shards start at `first_shard`. `how` returns the
    /// rule that stamps keys in a shard. `renews` decides whether keys that are present are stamped
    /// again. `report` receives the change.
    pub fn stamp_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        renews: bool,
        mut how: impl FnMut(&mut W) -> Stamping,
        mut report: impl FnMut((usize, KeyHash), &mut W, Option<StampEffect>),
    ) {
        dispatch!(Level::new(), simd => {
            for (number, hash) in keys {
                let shard = &mut shards[self.0.shard(hash) - first_shard];
                let how = how(shard);
                let count = self.0.hash_count();
                let change = match self.lines_mut(shard.as_mut(), hash) {
                    Some(lines) => stamp_key(simd, lines, hash, count, how, renews),
                    None => None,
                };
                report((number, hash), shard, change);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::two_lines::LINE_CELLS;

    /// Two lines, and for each bit the epoch of its last stamp, as long as that stamp counts.
    struct Lines {
        cells: [Line; LINES],
        window: Window,
        epochs: [Option<u64>; LINES * LINE_CELLS as usize],
        hash_count: u32,
    }

    impl Lines {
        fn new(now: u64, slices: u32, hash_count: u32) -> Self {
            Self {
                cells: [[0; LANES]; LINES],
                window: Window {
                    cleared: now,
                    now,
                    slices,
                },
                epochs: [None; LINES * LINE_CELLS as usize],
                hash_count,
            }
        }

        fn pass(&mut self, epochs: u64) {
            self.window.now += epochs;
        }

        fn bits(&self, hash: KeyHash) -> impl Iterator<Item = usize> + use<> {
            let places = places(hash, self.hash_count);
            places.map(|place| place.line * LINE_CELLS as usize + place.cell() as usize)
        }

        fn contains(&self, hash: KeyHash, slices: u32) -> bool {
            let there = self.window.since(slices);
            let [widest, narrowest] = [Level::new(), Level::baseline()].map(|level| {
                dispatch!(level, simd => {
                    super::contains(simd, self.cells.each_ref(), hash, self.hash_count, there)
                })
            });
            let oldest = self
                .window
                .now
                .saturating_sub(slices.min(self.window.slices).into());
            let expected = self
                .bits(hash)
                .all(|bit| self.epochs[bit].is_some_and(|epoch| epoch >= oldest));
            assert_eq!((widest, narrowest), (expected, expected));
            expected
        }

        fn clear(&mut self) {
            let set = self.window.clear(self.cells.as_flattened_mut());
            let oldest = self.window.now.saturating_sub(self.window.slices.into());
            for epoch in &mut self.epochs {
                *epoch = epoch.filter(|&epoch| epoch >= oldest);
            }
            let expected = self.epochs.iter().flatten().count() as u64;
            let above_zero = cells::above_zero(self.cells.as_flattened());
            assert_eq!((set, above_zero), (expected, expected));
        }

        fn add(
            &mut self,
            hash: KeyHash,
            epoch: u64,
            since: u32,
            renews: bool,
        ) -> Option<StampEffect> {
            if !self.window.is_fit() {
                self.clear();
            }
            let is_new = !self.contains(hash, since);
            let how = self.window.stamping(epoch, since);
            let mut after = [self.cells; 3];
            let mut changes = [None; 3];
            for (level, (cells, change)) in [Level::new(), Level::baseline()]
                .into_iter()
                .zip(after.iter_mut().zip(&mut changes))
            {
                *change = dispatch!(level, simd => {
                    stamp_key(simd, cells.each_mut(), hash, self.hash_count, how, renews)
                });
            }
            let lines = after[2].each_mut();
            changes[2] = stamp_by_places(lines, hash, self.hash_count, how, renews);
            assert_eq!((changes[0], after[0]), (changes[1], after[1]));
            assert_eq!((changes[0], after[0]), (changes[2], after[2]));
            self.cells = after[0];

            let oldest = self.window.now.saturating_sub(self.window.slices.into());
            let epoch = epoch.max(oldest);
            let bits: Vec<usize> = self.bits(hash).collect();
            let is_older = bits.iter().any(|&bit| self.epochs[bit] < Some(epoch));
            let expected = ((is_new || renews) && is_older).then_some(is_new);
            assert_eq!(changes[0].map(|change| change.is_new), expected);
            if changes[0].is_some() {
                for bit in bits {
                    self.epochs[bit] = self.epochs[bit].max(Some(epoch));
                }
            }
            changes[0]
        }
    }

    fn key(number: u64) -> KeyHash {
        let seed = KeyHash { low: 3, high: 5 };
        KeyHash {
            low: seed.value(number as u32),
            high: seed.value(number as u32 + 10_000),
        }
    }

    /// After any sequence of operations each bit has its last stamp as long as that stamp counts,
    /// and none after that.
    #[test]
    fn stamps_count_for_as_long_as_they_are_to() {
        for (slices, hash_count) in [(1, 5), (2, 8), (5, 1), (8, 7), (MAX_SLICES, 8), (4, 16)] {
            for start in [0, 3, 1_000_000_007, u64::MAX >> 11] {
                let mut block = Lines::new(start, slices, hash_count);
                let mut chance = key(u64::from(slices) + start % 1000);
                for round in 0..400 {
                    chance.low = chance.value(round);
                    let pick = |shift: u32, below: u64| (chance.low >> shift) % below;
                    let hash = key(pick(0, 60));
                    match pick(16, 12) {
                        0..5 => {
                            let now = block.window.now;
                            block.add(hash, now, slices, false);
                        }
                        5 => {
                            let now = block.window.now;
                            block.add(hash, now, pick(24, 4) as u32, false);
                        }
                        6 => {
                            let now = block.window.now;
                            block.add(hash, now, slices, true);
                        }
                        // From the log.
                        7 => {
                            let ago = pick(24, u64::from(slices) + 4);
                            let epoch = block.window.now.saturating_sub(ago);
                            block.add(hash, epoch, slices, true);
                        }
                        8 => block.clear(),
                        9 => block.pass(pick(24, 3)),
                        10 => block.pass(pick(24, 40)),
                        _ => {}
                    }
                    block.contains(hash, slices);
                    block.contains(hash, pick(32, 15) as u32);
                }
            }
        }
    }

    #[test]
    fn a_key_is_forgotten_behind_its_slices_and_not_before() {
        for slices in 1..=MAX_SLICES {
            let mut block = Lines::new(100, slices, 8);
            assert!(block.add(key(1), 100, slices, false).unwrap().is_new);
            for passed in 0..=slices + 40 {
                assert_eq!(block.contains(key(1), slices), passed <= slices);
                assert_eq!(block.contains(key(1), 0), passed == 0);
                block.pass(1);
            }
        }
    }

    /// The result is the same as if the keys of both had been added to one.
    #[test]
    fn the_younger_stamp_of_two_stays() {
        for start in [0, 8, 100] {
            let mut blocks = [0; 3].map(|_| Lines::new(start, 6, 8));
            for number in 0..90 {
                // Some keys come to one of the two, some to both.
                let into = match number / 3 % 3 {
                    2 => number as usize % 2,
                    only => only as usize,
                };
                for block in [into, 2] {
                    let now = blocks[block].window.now;
                    blocks[block].add(key(number / 3), now, 6, true);
                }
                if number % 7 == 0 {
                    blocks.iter_mut().for_each(|block| block.pass(1));
                }
            }
            blocks.iter_mut().for_each(Lines::clear);
            let [mut one, other, both] = blocks;
            let above_zero = |of: &Lines| cells::above_zero(of.cells.as_flattened());
            let before = above_zero(&one);
            let others = other.cells.as_flattened();
            let added = unite(one.cells.as_flattened_mut(), others, one.window.now);
            assert_eq!(one.cells, both.cells);
            assert_eq!(before + added, above_zero(&both));
            assert!(added > 0);
            let again = unite(one.cells.as_flattened_mut(), others, one.window.now);
            assert_eq!(again, 0);
            assert_eq!(one.cells, both.cells);
        }
    }

    #[test]
    fn a_hit_renews_if_it_is_to() {
        for (renews, is_there) in [(false, false), (true, true)] {
            let mut block = Lines::new(7, 4, 8);
            block.add(key(1), 7, 4, renews);
            block.pass(3);
            let now = block.window.now;
            let again = block.add(key(1), now, 4, renews);
            let expected = StampEffect {
                is_new: false,
                bits: 0,
            };
            assert_eq!(again, renews.then_some(expected));
            block.pass(3);
            assert_eq!(block.contains(key(1), 4), is_there);
        }
    }
}
