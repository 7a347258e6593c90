//! Two lines for each key, in filters that have [cells](crate::cells) in the place of bits.
//!
//! A line of memory has 128 cells: 16 for each of eight lanes. The cells of lane `i` are in word
//! `i`. In each round a key has at most one cell in each lane. The six bits that choose a bit in
//! [`crate::blocked`] choose the cell. Their lowest four bits choose the cell of a word, and the
//! next bit chooses one of the two lines of the key. So all lanes of a key are compared together,
//! one line at a time.

use std::{borrow::Borrow, fmt};

use fearless_simd::{Select, Simd, SimdBase, SimdFrom, SimdMask, u64x8};

use crate::{
    blocked::{self, BLOCK_BITS, Block, LANES, as_blocks, as_blocks_mut},
    cells::{CELL_BITS, Cell, MAX, Values},
    format::{Format, KeyArea},
    hash::{KeyHash, choose},
    shape::{Dimensions, Grain, Shape},
};

/// The cells of a line.
pub const LINE_CELLS: u64 = BLOCK_BITS / CELL_BITS;

/// The cells of a cache line.
pub type Line = Block;

const CELLS_A_WORD: usize = (64 / CELL_BITS) as usize;

/// The number of lines of a shard that the cells of a key lie in.
pub const LINES: usize = 2;
/// The greatest distance between the two lines of a key. A greater distance lets fewer keys share
/// both lines, which costs rate. It also puts the lines into different pages more often, which
/// costs time.
pub const REACH: u64 = 15;

/// A format with a cell in the place of each bit, whose keys have their cells in two lines.
pub trait TwoLines: Copy + fmt::Debug + From<Dimensions> + AsRef<Shape> {
    /// Returns the indices of the two lines of a key in its shard. The first is chosen as a block
    /// is. The rest of the hash chooses the distance from the first to the second, counting past
    /// the last line back to the first. A shard has at least four lines.
    #[inline]
    fn lines(&self, hash: KeyHash) -> [usize; LINES] {
        let (_, rest) = self.as_ref().choose(hash);
        let lines = self.as_ref().shard_bits() / LINE_CELLS;
        let (first, rest) = choose(rest, lines);
        let (further, _) = choose(rest, REACH.min(lines - 1));
        let second = first + 1 + further;
        let second = if second < lines {
            second
        } else {
            second - lines
        };
        [first as usize, second as usize]
    }

    /// Returns the [lines](Self::lines) of a key, given its shard.
    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and lines are chosen inside of it"
    )]
    #[inline(always)]
    fn lines_in<'a>(&self, words: &'a [u64], hash: KeyHash) -> [&'a Line; LINES] {
        self.lines(hash).map(|line| &as_blocks(words)[line])
    }

    /// Returns [`Self::lines_in`], as mutable. Every shard has them.
    #[inline(always)]
    fn lines_mut<'a>(&self, words: &'a mut [u64], hash: KeyHash) -> Option<[&'a mut Line; LINES]> {
        as_blocks_mut(words).get_disjoint_mut(self.lines(hash)).ok()
    }
}

impl<C: TwoLines> Format for C {
    const GRAIN: Grain = Grain {
        cell: Cell::FourBits,
        unit: BLOCK_BITS,
    };
    const KEY_AREA: KeyArea = KeyArea::Lines;

    fn key_lines(&self) -> usize {
        LINES
    }

    #[inline]
    fn visit_lines(&self, hash: KeyHash, mut visit: impl FnMut(usize)) {
        for line in self.lines(hash) {
            visit(line * LANES);
        }
    }

    fn bits(&self, hash: KeyHash) -> Vec<u64> {
        let lines = self.lines(hash);
        let line = |place: CellPlace| *lines.get(place.line).expect("a key has two lines");
        let bit = |place| line(place) as u64 * LINE_CELLS + place.cell();
        let mut bits: Vec<u64> = places(hash, self.shape().hash_count()).map(bit).collect();
        bits.sort_unstable();
        bits
    }
}

/// The cells of a key that has a cell in each of some lanes.
pub struct Picked<S: Simd> {
    simd: S,
    /// The values of the cells.
    pub values: u64x8<S>,
    /// 1 in each lane that has a cell, 0 in others.
    pub ones: u64x8<S>,
    /// The set of lanes that have a cell.
    pub active: u64,
    /// For each lane, the line of its cell, and the position in the word.
    line: u64x8<S>,
    shift: u64x8<S>,
}

impl<S: Simd> Picked<S> {
    /// Returns the cells of a key that has at most as many bits as there are lanes.
    #[inline(always)]
    pub fn of<L: Borrow<Line>>(
        simd: S,
        lines: &[L; LINES],
        hash: KeyHash,
        hash_count: u32,
    ) -> Self {
        let all = |value| u64x8::splat(simd, value);
        let (ones, index) = blocked::round(simd, hash, hash_count, 0);
        let line = (index >> 4) & all(LINES as u64 - 1);
        let shift = (index & all(15)) << 2;
        let mut values = all(0);
        for (number, words) in lines.iter().enumerate() {
            let words = u64x8::simd_from(simd, *words.borrow()) >> shift;
            values = line.simd_eq(all(number as u64)).select(words, values);
        }
        Self {
            simd,
            values: values & all(MAX),
            ones,
            active: ones.simd_eq(all(1)).to_bitmask(),
            line,
            shift,
        }
    }

    /// Returns the same value in all lanes.
    #[inline(always)]
    pub fn all(&self, value: u64) -> u64x8<S> {
        u64x8::splat(self.simd, value)
    }

    /// Returns the lanes whose cells have a value.
    #[inline(always)]
    pub fn with(&self, value: u64) -> u64 {
        self.values.simd_eq(self.all(value)).to_bitmask() & self.active
    }

    /// Marks the lanes whose cells have one of a set of values: 1 in such a lane, 0 in others.
    #[inline(always)]
    pub fn among(&self, values: Values) -> u64x8<S> {
        (self.all(values.0) >> self.values) & self.ones
    }

    /// Changes the words of each line with the value in `lanes`, shifted to the position of the
    /// cell.
    #[inline(always)]
    pub fn change(
        &self,
        lines: [&mut Line; LINES],
        lanes: u64x8<S>,
        change: impl Fn(u64x8<S>, u64x8<S>) -> u64x8<S>,
    ) {
        let simd = self.simd;
        let moved = lanes << self.shift;
        for (number, words) in lines.into_iter().enumerate() {
            let number = self.all(number as u64);
            let moved = self.line.simd_eq(number).select(moved, self.all(0));
            *words = change(u64x8::simd_from(simd, *words), moved).into();
        }
    }
}

/// The place of a cell of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellPlace {
    /// The index of the line among the lines of the key.
    pub line: usize,
    lane: usize,
    shift: u64,
}

impl CellPlace {
    /// Returns the number of the cell in its line, in the order of memory.
    pub fn cell(self) -> u64 {
        (self.lane * CELLS_A_WORD) as u64 + self.shift / CELL_BITS
    }

    /// Returns the value of the cell.
    #[expect(clippy::indexing_slicing, reason = "`places` gives those of two lines")]
    pub fn get<L: Borrow<Line>>(self, lines: &[L]) -> u64 {
        lines[self.line].borrow()[self.lane] >> self.shift & MAX
    }

    /// Gives the cell a value.
    #[expect(clippy::indexing_slicing, reason = "`places` gives those of two lines")]
    pub fn set(self, lines: &mut [&mut Line], value: u64) {
        let word = &mut lines[self.line][self.lane];
        *word = *word & !(MAX << self.shift) | value << self.shift;
    }
}

/// Returns the cells of a key. Each cell comes once, even if two rounds have chosen it.
pub fn places(hash: KeyHash, hash_count: u32) -> impl Iterator<Item = CellPlace> {
    let lanes = blocked::bits(hash, hash_count).into_iter().enumerate();
    lanes.flat_map(move |(lane, bits)| {
        // Bits that differ only in the highest of the six bits are one cell.
        let chosen = bits & u64::from(u32::MAX) | bits >> 32;
        let is_chosen = move |cell: &usize| chosen >> cell & 1 == 1;
        (0..64).filter(is_chosen).map(move |cell| CellPlace {
            line: cell / CELLS_A_WORD,
            lane,
            shift: cell as u64 % CELLS_A_WORD as u64 * CELL_BITS,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;

    /// Checked in the smallest shard too, and past its end.
    #[test]
    fn two_lines_are_two_near_each_other_and_all_are_chosen_alike() {
        for (cells, reach) in [(512, 3), (3 * 512, 11), (1 << 15, 15)] {
            let counters = Counters::new(cells, 8);
            let lines = (cells / LINE_CELLS) as usize;
            let mut counts = vec![0_u32; lines];
            let mut distances = vec![0_u32; reach];
            let seed = KeyHash { low: 1, high: 1 };
            let keys = 2000 * lines as u32;
            for i in 0..keys {
                let hash = KeyHash {
                    low: 0,
                    high: seed.value(i + 1),
                };
                let [first, second] = counters.lines(hash);
                counts[first] += 1;
                counts[second] += 1;
                distances[(second + lines - first) % lines - 1] += 1;
            }
            let all_near = |counts: &[u32], mean: u32| {
                let near = |count: &u32| count.abs_diff(mean) < 6 * mean.isqrt();
                assert!(counts.iter().all(near), "{cells}: {counts:?}, not {mean}");
            };
            all_near(&counts, 4000);
            all_near(&distances, keys / reach as u32);
        }
    }
}
