//! Bits in one whole array of words. Bit 0 is the lowest bit of the first word.

/// Returns the place of a bit: the index of its word, and its mask there.
#[inline]
pub fn place(position: u64) -> (usize, u64) {
    ((position / 64) as usize, 1 << (position % 64))
}

/// Whether all of the given bits are set.
#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the whole array, and positions are inside of it"
)]
#[inline]
pub fn contains(words: &[u64], mut positions: impl Iterator<Item = (usize, u64)>) -> bool {
    positions.all(|(word, mask)| words[word] & mask != 0)
}

/// Sets the given bits, and returns the number of bits that were not set before.
#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the whole array, and positions are inside of it"
)]
#[inline]
pub fn insert(words: &mut [u64], positions: impl Iterator<Item = (usize, u64)>) -> u32 {
    positions
        .map(|(word, mask)| {
            let added = u32::from(words[word] & mask == 0);
            words[word] |= mask;
            added
        })
        .sum()
}
