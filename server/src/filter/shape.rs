//! How a filter's bits are divided into shards, and which of them a key sets.
//!
//! All bits of a key lie in one shard, so that one lock, the shard's, makes "was it there?
//! now it is" one step. Shards are equal in size, at most 4 MiB: small enough to copy under
//! a lock in well under a millisecond, large enough that a filter of hundreds of GiB has
//! few enough of them to list. A filter that fits into few of these has more, smaller ones, so that
//! cores need not wait for each other. Filters of other programs are divided as well, but their keys
//! have bits in several shards ([`Parts`](crate::exchange::Parts)), and so there are few.

mod each;
mod form;

use fearless_simd::{Level, Simd, dispatch};

use self::each::{contains_each, contains_stamped, insert_each, stamp_each, take_each};
pub use self::form::Form;
use crate::{
    aging::{self, Stamping},
    blocked::{self, BLOCK_BITS, Block, LANES},
    cells::{self, CellLines, LINE_CELLS, Line, Values},
    classic,
    counting::{self, Change, Step, Stepper},
    hash::{KeyHash, choose},
    spec::FilterSpec,
};

/// The most bytes that a shard may have.
pub const MAX_SHARD_BYTES: u64 = 4 << 20;
pub(crate) const MAX_SHARD_BITS: u64 = MAX_SHARD_BYTES * 8;
/// The fewest bytes that a shard may have where there are several.
pub const MIN_SHARD_BYTES: u64 = 16 << 10;
/// A filter has so many shards or more, if these are not too small
/// (`docs/decisions/0026-small-filters.md`).
const SHARDS: u64 = 256;

/// The division of a filter's bits, and the bits of each key in them. Where it is one of
/// counters or stamps, a bit is set when its counter is above 0, or when it has a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    form: Form,
    hash_count: u32,
    shard_count: u64,
    shard_bits: u64,
}

impl Shape {
    /// The shape of a filter with at least `bit_count` bits, which must be at least 1 and
    /// at most [`crate::spec::MAX_BIT_COUNT`].
    pub(crate) fn new(form: Form, bit_count: u64, hash_count: u32) -> Self {
        let fewest = fewest_shards(form, bit_count);
        let shard_count = match form {
            // Whoever adds a key has the locks of all shards that it has bits in.
            Form::Array => fewest,
            Form::Blocked | Form::Classic | Form::Counting(_) | Form::Aging(_) => {
                // What is rounded up may be enough for more.
                let unit = powers_of_two(form, bit_count) * form.unit();
                powers_of_two(form, bit_count.next_multiple_of(unit)).max(fewest)
            }
        };
        Self::divided(
            form,
            shard_count,
            bit_count.div_ceil(shard_count),
            hash_count,
        )
    }

    /// So many shards of at least so many bits each: at least 1 and 1, together at most
    /// [`crate::spec::MAX_BIT_COUNT`].
    pub(crate) fn divided(form: Form, shard_count: u64, shard_bits: u64, hash_count: u32) -> Self {
        Self {
            form,
            hash_count,
            shard_count,
            shard_bits: shard_bits.next_multiple_of(form.unit()),
        }
    }

    /// The shape that a spec asks for; of a filter in layers, that of the first.
    pub fn of(spec: &FilterSpec) -> Self {
        if let Some(layers) = &spec.layers {
            return *layers.layer_of(0).shape();
        }
        let bits = spec.bit_count.div_ceil(spec.shard_count);
        Self::divided(spec.form(), spec.shard_count, bits, spec.hash_count)
    }

    /// Whether there are no more shards than so many bits need. Until format 8 of snapshots all
    /// filters were like that.
    pub fn is_in_fewest_shards(&self) -> bool {
        self.shard_count == fewest_shards(self.form, self.bit_count())
    }

    /// Whether shards are neither larger nor smaller than they may be.
    pub fn has_good_shards(&self) -> bool {
        let is_small = self.shard_bytes() < MIN_SHARD_BYTES && self.shard_count > 1;
        self.shard_bytes() <= MAX_SHARD_BYTES && !is_small
    }

    /// The number of bits in all shards together: what was asked for, rounded up.
    pub fn bit_count(&self) -> u64 {
        self.shard_count * self.shard_bits
    }

    /// What the memory holds.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// The number of bits that each key sets.
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }

    /// The number of shards.
    pub fn shard_count(&self) -> usize {
        self.shard_count as usize
    }

    /// The number of bits in each shard.
    pub fn shard_bits(&self) -> u64 {
        self.shard_bits
    }

    /// The number of 64-bit words in each shard.
    pub fn shard_words(&self) -> usize {
        (self.shard_bits / 64 * self.form.cell_bits()) as usize
    }

    /// The memory of each shard, in bytes.
    pub fn shard_bytes(&self) -> u64 {
        self.shard_bits / 8 * self.form.cell_bits()
    }

    /// How many bits are set in the words of a shard.
    pub fn bits_set(&self, words: &[u64]) -> u64 {
        match self.form {
            Form::Blocked | Form::Classic | Form::Array => {
                words.iter().map(|word| u64::from(word.count_ones())).sum()
            }
            Form::Counting(_) | Form::Aging(_) => cells::above_zero(words),
        }
    }

    /// How many counters stand at their greatest value in the words of a shard.
    pub fn saturated(&self, words: &[u64]) -> u64 {
        match self.form {
            Form::Blocked | Form::Classic | Form::Aging(_) | Form::Array => 0,
            Form::Counting(_) => cells::at_most(words),
        }
    }

    /// The index of the shard that holds all bits of a key.
    #[inline]
    pub fn shard(&self, hash: KeyHash) -> usize {
        choose(hash.high, self.shard_count).0 as usize
    }

    /// Whether a key is in its shard, given the shard's [words](Self::shard_words).
    #[inline]
    pub fn contains(&self, words: &[u64], hash: KeyHash) -> bool {
        dispatch!(Level::new(), simd => self.contains_with(simd, words, hash))
    }

    /// Adds a key to its shard, and returns how many of its bits were not set before: 0
    /// means that it was there already (or seemed to be), anything else that it is new. A key
    /// that was there is not counted again.
    #[inline]
    pub fn insert(&self, words: &mut [u64], hash: KeyHash) -> u32 {
        dispatch!(Level::new(), simd => self.insert_with(simd, words, hash))
    }

    /// [`contains`](Self::contains) for many keys, one after the other, for less than as many
    /// calls. The shards are those from `first_shard` on; each key comes with its number, and
    /// is told by it.
    pub fn contains_each<W: AsRef<[u64]>>(
        &self,
        shards: &[W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        tell: impl FnMut(usize, &W, bool),
    ) {
        dispatch!(Level::new(), simd => {
            contains_each(simd, self, shards, first_shard, keys, tell)
        });
    }

    /// [`insert`](Self::insert) for many keys, one after the other, for less than as many
    /// calls. The shards are those from `first_shard` on; each key comes with its number, and
    /// is told by it.
    pub fn insert_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        tell: impl FnMut(usize, &mut W, u32),
    ) {
        dispatch!(Level::new(), simd => {
            insert_each(simd, self, shards, first_shard, keys, tell)
        });
    }

    /// Takes a step with each of many keys, where there are counters. The shards are those from
    /// `first_shard` on.
    pub fn take_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        stepper: &mut impl Stepper<W>,
    ) {
        dispatch!(Level::new(), simd => {
            take_each(simd, self, shards, first_shard, keys, stepper)
        });
    }

    /// [`contains`](Self::contains) for many keys, where there are stamps. `there` says of each
    /// shard which of them count. The shards are those from `first_shard` on.
    pub fn contains_stamped<W: AsRef<[u64]>>(
        &self,
        shards: &[W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        there: impl FnMut(&W) -> Values,
        tell: impl FnMut(usize, &W, bool),
    ) {
        dispatch!(Level::new(), simd => {
            contains_stamped(simd, self, shards, first_shard, keys, there, tell)
        });
    }

    /// Adds many keys, where there are stamps. The shards are those from `first_shard` on. `how`
    /// says of each shard how keys are stamped there; `renews`, whether those are stamped too that
    /// are there. `tell` is told what that did.
    pub fn stamp_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        renews: bool,
        how: impl FnMut(&mut W) -> Stamping,
        tell: impl FnMut((usize, KeyHash), &mut W, Option<aging::Change>),
    ) {
        dispatch!(Level::new(), simd => {
            stamp_each(simd, self, shards, first_shard, keys, renews, how, tell)
        });
    }

    /// Takes a step with a key, where there are counters; `None` if that changed nothing.
    #[inline(always)]
    fn take_with<S: Simd>(
        &self,
        simd: S,
        words: &mut [u64],
        hash: KeyHash,
        step: Step,
    ) -> Option<Change> {
        let count = self.hash_count;
        match self.form {
            Form::Counting(CellLines::Two) => {
                counting::take(simd, self.two_lines_mut(words, hash)?, hash, count, step)
            }
            Form::Counting(CellLines::Four) => {
                counting::take(simd, self.four_lines_mut(words, hash)?, hash, count, step)
            }
            Form::Blocked | Form::Classic | Form::Aging(_) | Form::Array => None,
        }
    }

    /// Adds a key, where there are stamps; `None` if that changed nothing.
    #[inline(always)]
    fn stamp_with<S: Simd>(
        &self,
        simd: S,
        words: &mut [u64],
        hash: KeyHash,
        how: Stamping,
        renews: bool,
    ) -> Option<aging::Change> {
        let count = self.hash_count;
        match self.form {
            Form::Aging(CellLines::Two) => {
                let lines = self.two_lines_mut(words, hash)?;
                aging::stamp_key(simd, lines, hash, count, how, renews)
            }
            Form::Aging(CellLines::Four) => {
                let lines = self.four_lines_mut(words, hash)?;
                aging::stamp_key(simd, lines, hash, count, how, renews)
            }
            Form::Blocked | Form::Classic | Form::Counting(_) | Form::Array => None,
        }
    }

    /// Calls `visit` with the index of a word in each cache line that a key's bits lie in,
    /// so that the caller can fetch them ahead of use.
    #[inline]
    pub fn visit_lines(&self, hash: KeyHash, mut visit: impl FnMut(usize)) {
        match self.form {
            Form::Blocked => visit(self.block(hash) * LANES),
            Form::Counting(lines) | Form::Aging(lines) => match lines {
                CellLines::Two => {
                    for line in self.two_lines(hash) {
                        visit(line * LANES);
                    }
                }
                CellLines::Four => {
                    for line in self.four_lines(hash) {
                        visit(line * LANES);
                    }
                }
            },
            Form::Classic => {
                for (word, _) in classic::positions(hash, self.hash_count, self.shard_bits) {
                    visit(word);
                }
            }
            Form::Array => {}
        }
    }

    /// The indices of a key's bits in its shard, in their order; one that two of its values meet
    /// at stands there once. Where there are cells in the place of bits, those of these; in a block
    /// they are counted as its bits are.
    pub fn bits(&self, hash: KeyHash) -> Vec<u64> {
        let mut bits: Vec<u64> = match self.form {
            Form::Counting(CellLines::Two) | Form::Aging(CellLines::Two) => {
                let lines = self.two_lines(hash);
                let places = cells::places(lines.len(), hash, self.hash_count);
                let line = |place: cells::Place| lines.get(place.line).copied().unwrap_or_default();
                let bit = |place| line(place) as u64 * LINE_CELLS + place.cell();
                places.map(bit).collect()
            }
            Form::Blocked | Form::Counting(CellLines::Four) | Form::Aging(CellLines::Four) => {
                let block = blocked::bits(hash, self.hash_count);
                let first = self.block(hash) as u64 * BLOCK_BITS;
                let in_block = |bit: &u64| {
                    let lane = block.get((bit / 64) as usize);
                    lane.is_some_and(|lane| lane >> (bit % 64) & 1 == 1)
                };
                let set = (0..BLOCK_BITS).filter(in_block);
                set.map(|bit| first + bit).collect()
            }
            Form::Classic | Form::Array => {
                classic::positions(hash, self.hash_count, self.shard_bits)
                    .map(|(word, mask)| word as u64 * 64 + u64::from(mask.trailing_zeros()))
                    .collect()
            }
        };
        bits.sort_unstable();
        bits.dedup();
        bits
    }

    /// Whether a bit of a shard is set, given the shard's [words](Self::shard_words). Where there
    /// are stamps, it must have one of some.
    pub fn is_set(&self, words: &[u64], bit: u64, stamps: Values) -> bool {
        let cell = match self.form {
            Form::Blocked | Form::Classic | Form::Array => {
                let word = words.get((bit / 64) as usize);
                return word.is_some_and(|word| word >> (bit % 64) & 1 == 1);
            }
            Form::Counting(CellLines::Two) | Form::Aging(CellLines::Two) => bit,
            Form::Counting(CellLines::Four) | Form::Aging(CellLines::Four) => {
                // Of four lines, each has 16 cells of every lane.
                let (block, lane, bit) = (bit / BLOCK_BITS, bit / 64 % 8, bit % 64);
                block * BLOCK_BITS + bit / 16 * LINE_CELLS + lane * 16 + bit % 16
            }
        };
        cells::get(words, cell).is_some_and(|value| stamps.has(value))
    }

    /// The index of the block in its shard that all bits of a key lie in, if there are blocks.
    pub fn block_of(&self, hash: KeyHash) -> Option<usize> {
        self.form.has_blocks().then(|| self.block(hash))
    }

    /// The indices in its shard of the lines of 64 bytes that the counters or stamps of a key lie in;
    /// none where it has bits.
    pub fn lines_of_cells(&self, hash: KeyHash) -> Vec<usize> {
        let mut lines = Vec::new();
        if let Form::Counting(_) | Form::Aging(_) = self.form {
            self.visit_lines(hash, |word| lines.push(word / LANES));
        }
        lines
    }

    /// The index of a key's block in its shard. What the choice of the shard leaves of the
    /// high half chooses the block, so that all blocks of all shards are equally likely.
    #[inline]
    fn block(&self, hash: KeyHash) -> usize {
        let (_, rest) = choose(hash.high, self.shard_count);
        choose(rest, self.shard_bits / BLOCK_BITS).0 as usize
    }

    /// The indices of the two lines of a key in its shard. The first is chosen as a block is, and what
    /// that leaves chooses how far behind it the second is, counting past the last line back to the
    /// first. A shard has four lines at least.
    #[inline]
    fn two_lines(&self, hash: KeyHash) -> [usize; 2] {
        let (_, rest) = choose(hash.high, self.shard_count);
        let lines = self.shard_bits / LINE_CELLS;
        let (first, rest) = choose(rest, lines);
        let (further, _) = choose(rest, CellLines::REACH.min(lines - 1));
        let second = first + 1 + further;
        let second = if second < lines {
            second
        } else {
            second - lines
        };
        [first as usize, second as usize]
    }

    #[inline]
    fn four_lines(&self, hash: KeyHash) -> [usize; 4] {
        let first = 4 * self.block(hash);
        [first, first + 1, first + 2, first + 3]
    }

    /// [`Self::two_lines`] in a shard that has them, and so every shard.
    #[inline(always)]
    fn two_lines_mut<'a>(&self, words: &'a mut [u64], hash: KeyHash) -> Option<[&'a mut Line; 2]> {
        let lines = as_blocks_mut(words);
        lines.get_disjoint_mut(self.two_lines(hash)).ok()
    }

    #[inline(always)]
    fn four_lines_mut<'a>(&self, words: &'a mut [u64], hash: KeyHash) -> Option<[&'a mut Line; 4]> {
        let blocks = as_blocks_mut(words).as_chunks_mut::<4>().0;
        Some(blocks.get_mut(self.block(hash))?.each_mut())
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and blocks are chosen inside of it"
    )]
    #[inline(always)]
    fn contains_with<S: Simd>(&self, simd: S, words: &[u64], hash: KeyHash) -> bool {
        let count = self.hash_count;
        match self.form {
            Form::Blocked => {
                blocked::contains(simd, &as_blocks(words)[self.block(hash)], hash, count)
            }
            Form::Counting(CellLines::Two) | Form::Aging(CellLines::Two) => {
                let lines = self.two_lines(hash).map(|line| &as_blocks(words)[line]);
                counting::contains(simd, lines, hash, count)
            }
            Form::Counting(CellLines::Four) | Form::Aging(CellLines::Four) => {
                let lines = self.four_lines(hash).map(|line| &as_blocks(words)[line]);
                counting::contains(simd, lines, hash, count)
            }
            Form::Classic => classic::contains(words, hash, count, self.shard_bits),
            // No shard alone tells.
            Form::Array => false,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and lines are chosen inside of it"
    )]
    #[inline(always)]
    fn contains_stamped_with<S: Simd>(
        &self,
        simd: S,
        words: &[u64],
        hash: KeyHash,
        there: Values,
    ) -> bool {
        let count = self.hash_count;
        match self.form {
            Form::Aging(CellLines::Two) => {
                let lines = self.two_lines(hash).map(|line| &as_blocks(words)[line]);
                aging::contains(simd, lines, hash, count, there)
            }
            Form::Aging(CellLines::Four) => {
                let lines = self.four_lines(hash).map(|line| &as_blocks(words)[line]);
                aging::contains(simd, lines, hash, count, there)
            }
            Form::Blocked | Form::Classic | Form::Counting(_) | Form::Array => false,
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller gives a whole shard, and blocks are chosen inside of it"
    )]
    #[inline(always)]
    fn insert_with<S: Simd>(&self, simd: S, words: &mut [u64], hash: KeyHash) -> u32 {
        let count = self.hash_count;
        match self.form {
            Form::Blocked => {
                let block = &mut as_blocks_mut(words)[self.block(hash)];
                blocked::insert(simd, block, hash, count)
            }
            Form::Counting(_) => {
                let change = self.take_with(simd, words, hash, Step::AddNew);
                change.map_or(0, |change| change.bits)
            }
            // Nothing is added without a stamp, nor to one shard alone.
            Form::Aging(_) | Form::Array => 0,
            Form::Classic => classic::insert(words, hash, count, self.shard_bits),
        }
    }
}

/// The least number of shards for so many bits.
pub(crate) fn fewest_shards(form: Form, bit_count: u64) -> u64 {
    bit_count.div_ceil(MAX_SHARD_BITS / form.cell_bits()).max(1)
}

/// The greatest power of two, up to [`SHARDS`], of shards that are not too small. Where the number
/// changes, bits are a multiple of both, so that more of them never come to be fewer when they are
/// rounded up.
fn powers_of_two(form: Form, bit_count: u64) -> u64 {
    let least = MIN_SHARD_BYTES * 8 / form.cell_bits();
    1 << (bit_count / least).clamp(1, SHARDS).ilog2()
}
pub(crate) fn as_blocks(words: &[u64]) -> &[Block] {
    words.as_chunks().0
}

pub(crate) fn as_blocks_mut(words: &mut [u64]) -> &mut [Block] {
    words.as_chunks_mut().0
}

#[cfg(test)]
mod tests;
