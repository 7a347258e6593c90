//! Cells of four bits in the place of bits, for filters that know more of a key than that it is
//! there.
//!
//! The block is that of [`crate::blocked`], 512 bits, with a cell for each: 256 bytes, four
//! neighbouring cache lines. A line has a quarter of the cells of each lane, those of lane `i`
//! in its word `i`: the cell of bit `b` is bits `4·(b mod 16)` to `4·(b mod 16) + 3` of that word
//! of line `b / 16`. So all lanes of a key are looked at together, a line at a time.
//!
//! A bit is set where its cell is above 0. What the values are is told in [`crate::counting`] and
//! in [`crate::aging`].

use fearless_simd::{Select, Simd, SimdBase, SimdFrom, SimdMask, u64x8};

use crate::{
    blocked::{self, BLOCK_BITS, Block, LANES},
    hash::KeyHash,
};

/// The bits of a cell.
pub const CELL_BITS: u64 = 4;
/// The words of a block of cells.
pub const WORDS: usize = (BLOCK_BITS * CELL_BITS / 64) as usize;
/// The cache lines of a block of cells.
pub const LINES: usize = WORDS / 8;
/// The greatest value of a cell.
pub const MAX: u64 = (1 << CELL_BITS) - 1;

/// The cells of a block.
pub type Cells = [u64; WORDS];

const CELLS_A_WORD: usize = (64 / CELL_BITS) as usize;
/// The lowest bit of each cell of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

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
    /// Those of a key with at most as many bits as there are lanes.
    #[inline(always)]
    pub fn of(simd: S, cells: &Cells, hash: KeyHash, hash_count: u32) -> Self {
        let all = |value| u64x8::splat(simd, value);
        let (ones, index) = blocked::round(simd, hash, hash_count, 0);
        let (line, shift) = (index >> 4, (index & all(15)) << 2);
        let mut values = all(0);
        for (number, words) in lines(cells).iter().enumerate() {
            let words = u64x8::simd_from(simd, *words) >> shift;
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
    pub fn change(
        &self,
        cells: &mut Cells,
        lanes: u64x8<S>,
        change: impl Fn(u64x8<S>, u64x8<S>) -> u64x8<S>,
    ) {
        let simd = self.simd;
        let moved = lanes << self.shift;
        for (number, words) in lines_mut(cells).iter_mut().enumerate() {
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

fn lines(cells: &Cells) -> &[Block] {
    cells.as_chunks().0
}

fn lines_mut(cells: &mut Cells) -> &mut [Block] {
    cells.as_chunks_mut().0
}

/// The value of a bit's cell.
pub fn get(cells: &Cells, bit: u64) -> u64 {
    let bit = (bit % BLOCK_BITS) as usize;
    Place::of(bit / 64, bit % 64).get(cells)
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

/// Where a cell is in its block.
#[derive(Clone, Copy)]
pub struct Place {
    word: usize,
    shift: u64,
}

impl Place {
    /// That of a bit of a lane.
    fn of(lane: usize, bit: usize) -> Self {
        Self {
            word: bit / CELLS_A_WORD * LANES + lane,
            shift: bit as u64 % CELLS_A_WORD as u64 * CELL_BITS,
        }
    }

    /// The value of the cell.
    #[expect(
        clippy::indexing_slicing,
        reason = "`Place::of` gives those of a block"
    )]
    pub fn get(self, cells: &Cells) -> u64 {
        cells[self.word] >> self.shift & MAX
    }

    /// Gives the cell a value.
    #[expect(
        clippy::indexing_slicing,
        reason = "`Place::of` gives those of a block"
    )]
    pub fn set(self, cells: &mut Cells, value: u64) {
        let word = &mut cells[self.word];
        *word = *word & !(MAX << self.shift) | value << self.shift;
    }
}

/// The cells of a key's bits: one for each bit, also if two rounds have chosen it.
pub fn places(hash: KeyHash, hash_count: u32) -> impl Iterator<Item = Place> {
    let lanes = blocked::bits(hash, hash_count).into_iter().enumerate();
    lanes.flat_map(|(lane, bits)| {
        let is_set = move |bit: &usize| bits >> bit & 1 == 1;
        (0..64).filter(is_set).map(move |bit| Place::of(lane, bit))
    })
}
