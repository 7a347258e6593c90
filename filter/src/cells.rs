//! Cells of four bits in the place of bits, for filters that store more about a key than that it
//! was added.
//!
//! A line of memory has 128 cells: 16 for each of eight lanes. The cells of lane `i` are in word
//! `i`. In each round a key has at most one cell in each lane. The six bits that choose a bit in
//! [`crate::blocked`] choose the cell. Their lowest four bits choose cell `c` of a word, which is
//! its bits `4·c` to `4·c + 3`. The next bit chooses one of the two lines of the key.
//! So all lanes of a key are compared together, one line at a time.
//!
//! A bit is set if its cell is above 0. [`crate::counting`] and [`crate::aging`] describe the
//! meaning of the values.

use std::borrow::Borrow;

use fearless_simd::{Select, Simd, SimdBase, SimdFrom, SimdMask, u64x8};

use crate::{
    blocked::{self, Block},
    hash::KeyHash,
};

/// The bits of a cell.
pub const CELL_BITS: u64 = 4;
/// The cells of a line.
pub const LINE_CELLS: u64 = blocked::BLOCK_BITS / CELL_BITS;
/// The greatest value of a cell.
pub const MAX: u64 = (1 << CELL_BITS) - 1;

/// The cells of a cache line.
pub type Line = Block;

const CELLS_A_WORD: usize = (64 / CELL_BITS) as usize;
/// The lowest bit of each cell of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

/// The number of lines of a shard that the cells of a key lie in.
pub const LINES: usize = 2;
/// The greatest distance between the two lines of a key. A greater distance lets fewer keys share
/// both lines, which costs rate. It also puts the lines into different pages more often, which
/// costs time.
pub const REACH: u64 = 15;

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

/// A set of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Values(pub u64);

impl Values {
    /// All values but 0.
    pub const SET: Self = Self(0xfffe);

    /// Whether a value is in the set.
    pub fn has(self, value: u64) -> bool {
        self.0 >> value & 1 == 1
    }
}

/// Returns the number of cells in these words that are above 0.
pub fn above_zero(words: &[u64]) -> u64 {
    count(words, |word| word | word >> 1 | word >> 2 | word >> 3)
}

/// Returns the number of cells in these words that have the greatest value.
pub fn at_most(words: &[u64]) -> u64 {
    count(words, |word| word & word >> 1 & word >> 2 & word >> 3)
}

/// Returns the number of cells whose lowest bit is set in `holds`.
fn count(words: &[u64], holds: impl Fn(u64) -> u64) -> u64 {
    let ones = words
        .iter()
        .map(|&word| u64::from((holds(word) & ONES).count_ones()));
    ones.sum()
}

/// Sets each cell of a word to 0 if it has one of these values.
#[inline]
pub fn clear(word: &mut u64, values: &[u64]) {
    for value in values {
        // 0 in each cell that has the value, and then 1 in the lowest bit of all others.
        let other = *word ^ (value * ONES);
        let others = (other | other >> 1 | other >> 2 | other >> 3) & ONES;
        *word &= others * MAX;
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

/// Returns the value of a cell of these words, by its number in the order of memory.
pub fn get(words: &[u64], cell: u64) -> Option<u64> {
    let (word, cell) = (cell as usize / CELLS_A_WORD, cell % CELLS_A_WORD as u64);
    Some(words.get(word)? >> (CELL_BITS * cell) & MAX)
}
