//! Cells of four bits in the place of bits, for filters that know more of a key than that it is
//! there.
//!
//! A line of memory has 128 cells: 16 for each of eight lanes, those of lane `i` in its word `i`. A
//! key has at most one in each lane a round. Which that is the six bits say that choose a bit in
//! [`crate::blocked`]: cell `c` of a word, its bits `4·c` to `4·c + 3`, with the lowest four of them,
//! and with those above one of the lines that the key has ([`CellLines`]). So all lanes of a key are
//! looked at together, a line at a time.
//!
//! A bit is set where its cell is above 0. What the values are is told in [`crate::counting`] and
//! in [`crate::aging`].

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

/// Which lines of a shard the cells of a key lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CellLines {
    /// Two that are no more than [`Self::REACH`] apart: half as many lines of memory to wait for as
    /// a block has, for the same rate.
    #[default]
    Two,
    /// The four of a block. Filters that were made before there was anything else.
    Four,
}

impl CellLines {
    /// How far the second of two lines may be from the first. The further, the fewer keys share
    /// both, which costs rate; and the more often they lie in different pages, which costs time.
    pub const REACH: u64 = 15;

    /// The number of lines.
    pub fn count(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// The cells of a key that has one in each of some lanes.
pub struct Picked<S: Simd> {
    simd: S,
    /// Their values.
    pub values: u64x8<S>,
    /// 1 in each lane that has one, 0 in others.
    pub ones: u64x8<S>,
    /// The lanes that have one, as a set.
    pub active: u64,
    /// For each lane, in which line its cell is, and where in the word.
    line: u64x8<S>,
    shift: u64x8<S>,
}

impl<S: Simd> Picked<S> {
    /// Those of a key with at most as many bits as there are lanes, in two lines or in four.
    #[inline(always)]
    pub fn of<L: Borrow<Line>, const LINES: usize>(
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

    /// The same value in all lanes.
    #[inline(always)]
    pub fn all(&self, value: u64) -> u64x8<S> {
        u64x8::splat(self.simd, value)
    }

    /// The lanes whose cells have a value.
    #[inline(always)]
    pub fn with(&self, value: u64) -> u64 {
        self.values.simd_eq(self.all(value)).to_bitmask() & self.active
    }

    /// The lanes whose cells have one of a set of values, 1 in each lane and 0 in others.
    #[inline(always)]
    pub fn among(&self, values: Values) -> u64x8<S> {
        (self.all(values.0) >> self.values) & self.ones
    }

    /// Changes the words of each line with what a lane has for its cell, moved to where that is.
    #[inline(always)]
    pub fn change<const LINES: usize>(
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
    /// All but 0.
    pub const SET: Self = Self(0xfffe);

    /// Whether a value is one of them.
    pub fn has(self, value: u64) -> bool {
        self.0 >> value & 1 == 1
    }
}

/// How many cells of these words are above 0.
pub fn above_zero(words: &[u64]) -> u64 {
    count(words, |word| word | word >> 1 | word >> 2 | word >> 3)
}

/// How many cells of these words have the greatest value.
pub fn at_most(words: &[u64]) -> u64 {
    count(words, |word| word & word >> 1 & word >> 2 & word >> 3)
}

/// How many cells there are for whose lowest bit this holds.
fn count(words: &[u64], holds: impl Fn(u64) -> u64) -> u64 {
    let ones = words
        .iter()
        .map(|&word| u64::from((holds(word) & ONES).count_ones()));
    ones.sum()
}

/// Sets the cells of a word to 0 that have one of these values.
#[inline]
pub fn clear(word: &mut u64, values: &[u64]) {
    for value in values {
        // 0 in each cell that has the value, and then 1 in the lowest bit of all others.
        let other = *word ^ (value * ONES);
        let others = (other | other >> 1 | other >> 2 | other >> 3) & ONES;
        *word &= others * MAX;
    }
}

/// Where a cell of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which of the key's lines.
    pub line: usize,
    lane: usize,
    shift: u64,
}

impl Place {
    /// Its number in its line, in the order of memory.
    pub fn cell(self) -> u64 {
        (self.lane * CELLS_A_WORD) as u64 + self.shift / CELL_BITS
    }

    /// The value of the cell.
    #[expect(
        clippy::indexing_slicing,
        reason = "`places` gives those of so many lines"
    )]
    pub fn get<L: Borrow<Line>>(self, lines: &[L]) -> u64 {
        lines[self.line].borrow()[self.lane] >> self.shift & MAX
    }

    /// Gives the cell a value.
    #[expect(
        clippy::indexing_slicing,
        reason = "`places` gives those of so many lines"
    )]
    pub fn set(self, lines: &mut [&mut Line], value: u64) {
        let word = &mut lines[self.line][self.lane];
        *word = *word & !(MAX << self.shift) | value << self.shift;
    }
}

/// The cells of a key in so many lines, two or four: each once, also if two rounds have chosen it.
pub fn places(lines: usize, hash: KeyHash, hash_count: u32) -> impl Iterator<Item = Place> {
    let lanes = blocked::bits(hash, hash_count).into_iter().enumerate();
    lanes.flat_map(move |(lane, bits)| {
        let chosen = match lines {
            // Those that the highest bit of the six tells apart are one.
            2 => bits & u64::from(u32::MAX) | bits >> 32,
            _ => bits,
        };
        let is_chosen = move |cell: &usize| chosen >> cell & 1 == 1;
        (0..64).filter(is_chosen).map(move |cell| Place {
            line: cell / CELLS_A_WORD,
            lane,
            shift: cell as u64 % CELLS_A_WORD as u64 * CELL_BITS,
        })
    })
}

/// The value of a cell of these words, by its number in the order of memory.
pub fn get(words: &[u64], cell: u64) -> Option<u64> {
    let (word, cell) = (cell as usize / CELLS_A_WORD, cell % CELLS_A_WORD as u64);
    Some(words.get(word)? >> (CELL_BITS * cell) & MAX)
}
