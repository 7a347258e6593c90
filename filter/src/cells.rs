//! Cells in the place of bits, for filters that store more about a key than that it was added.
//!
//! A cell has four bits: cell `c` of a word is its bits `4·c` to `4·c + 3`. A bit is set if its
//! cell is above 0. [`crate::two_lines`] describes which cells a key has, and [`crate::counters`]
//! and [`crate::stamps`] the meaning of the values.

/// The bits of a cell.
pub const CELL_BITS: u64 = 4;
/// The greatest value of a cell.
pub const MAX: u64 = (1 << CELL_BITS) - 1;

/// The lowest bit of each cell of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

/// The memory in the place of each bit of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// One bit.
    Bit,
    /// A cell of [`CELL_BITS`].
    FourBits,
}

impl Cell {
    /// Returns the number of bits of memory.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Self::Bit => 1,
            Self::FourBits => CELL_BITS,
        }
    }

    /// Returns the number of values in these words that are above 0.
    pub(crate) fn above_zero(self, words: &[u64]) -> u64 {
        match self {
            Self::Bit => words.iter().map(|word| u64::from(word.count_ones())).sum(),
            Self::FourBits => above_zero(words),
        }
    }

    /// Returns a value in these words, by its number in the order of memory.
    pub(crate) fn value(self, words: &[u64], number: u64) -> Option<u64> {
        let bit = number * self.bits();
        let word = words.get((bit / 64) as usize)?;
        Some(word >> (bit % 64) & ((1 << self.bits()) - 1))
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

/// Returns the number of cells whose lowest bit is set in `holds`.
pub(crate) fn count(words: &[u64], holds: impl Fn(u64) -> u64) -> u64 {
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
