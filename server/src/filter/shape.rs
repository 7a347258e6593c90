//! How a filter's bits are divided into shards, and which of them a key sets.
//!
//! All bits of a key lie in one shard, so that one lock, the shard's, makes "was it there?
//! now it is" one step. Shards are equal in size, at most 4 MiB: small enough to copy under
//! a lock in well under a millisecond, large enough that a filter of hundreds of GiB has
//! few enough of them to list. Filters of other programs are divided as well, but their keys have
//! bits in several shards ([`Parts`](crate::exchange::Parts)).

use fearless_simd::{Level, Simd, dispatch};

use crate::{
    aging::{self, Stamping},
    blocked::{self, BLOCK_BITS, Block, LANES},
    cells::{self, Cells, Values},
    classic,
    counting::{self, Change, Step},
    hash::{KeyHash, choose},
    spec::{FilterSpec, Kind, Layout},
};

/// The most bytes that a shard may have.
pub const MAX_SHARD_BYTES: u64 = 4 << 20;
pub(crate) const MAX_SHARD_BITS: u64 = MAX_SHARD_BYTES * 8;

/// What the memory of a filter holds, and where in it a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Bits, those of a key in one block.
    Blocked,
    /// Bits, those of a key anywhere in a shard.
    Classic,
    /// A counter in the place of each bit of [`Form::Blocked`].
    Counting,
    /// A stamp in the place of each bit of [`Form::Blocked`].
    Aging,
    /// Bits, those of a key anywhere in all shards: where, [`Parts`](crate::exchange::Parts) tells.
    Array,
}

impl From<Layout> for Form {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Blocked => Self::Blocked,
            Layout::Classic => Self::Classic,
            Layout::Guava | Layout::GuavaMitz32 | Layout::RedisBloom => Self::Array,
        }
    }
}

impl Form {
    /// The form of a kind, which has it in this layout or in no other.
    pub fn of(kind: Kind, layout: Layout) -> Self {
        match kind {
            Kind::Plain | Kind::Scaling(_) => layout.into(),
            Kind::Counting => Self::Counting,
            Kind::Aging(_) => Self::Aging,
        }
    }

    /// Whether all bits of a key lie in one block.
    pub(crate) fn has_blocks(self) -> bool {
        match self {
            Self::Blocked | Self::Counting | Self::Aging => true,
            Self::Classic | Self::Array => false,
        }
    }

    /// The bits of memory for each bit of the filter.
    pub(crate) fn cell_bits(self) -> u64 {
        match self {
            Self::Blocked | Self::Classic | Self::Array => 1,
            Self::Counting | Self::Aging => cells::CELL_BITS,
        }
    }

    /// The number of bits comes in multiples of this.
    pub(crate) fn unit(self) -> u64 {
        match self.has_blocks() {
            true => BLOCK_BITS,
            false => 64,
        }
    }
}

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
        let max_shard_bits = MAX_SHARD_BITS / form.cell_bits();
        let shard_count = bit_count.div_ceil(max_shard_bits).max(1);
        let shard_bits = bit_count
            .div_ceil(shard_count)
            .max(1)
            .next_multiple_of(form.unit());
        Self {
            form,
            hash_count,
            shard_count,
            shard_bits,
        }
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
        Self::new(
            Form::of(spec.kind, spec.layout),
            spec.bit_count,
            spec.hash_count,
        )
    }

    /// The number of bits in all shards together: what was asked for, rounded up.
    pub fn bit_count(&self) -> u64 {
        self.shard_count * self.shard_bits
    }

    /// Whether all bits of a key lie in one block.
    pub(crate) fn has_blocks(&self) -> bool {
        self.form.has_blocks()
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
            Form::Counting | Form::Aging => cells::above_zero(words),
        }
    }

    /// How many counters stand at their greatest value in the words of a shard.
    pub fn saturated(&self, words: &[u64]) -> u64 {
        match self.form {
            Form::Blocked | Form::Classic | Form::Aging | Form::Array => 0,
            Form::Counting => cells::at_most(words),
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
    /// `first_shard` on. `decide` says for a key of a number what is to be done with it, and `tell`
    /// is told what that did.
    pub fn take_each<W: AsMut<[u64]>>(
        &self,
        shards: &mut [W],
        first_shard: usize,
        keys: impl Iterator<Item = (usize, KeyHash)>,
        decide: impl FnMut(KeyHash) -> Step,
        tell: impl FnMut((usize, KeyHash), &mut W, Option<Change>),
    ) {
        dispatch!(Level::new(), simd => {
            take_each(simd, self, shards, first_shard, keys, decide, tell)
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
        let block = match self.form {
            Form::Counting => as_cells_mut(words).get_mut(self.block(hash))?,
            Form::Blocked | Form::Classic | Form::Aging | Form::Array => return None,
        };
        counting::take(simd, block, hash, self.hash_count, step)
    }

    /// Calls `visit` with the index of a word in each cache line that a key's bits lie in,
    /// so that the caller can fetch them ahead of use.
    #[inline]
    pub fn visit_lines(&self, hash: KeyHash, mut visit: impl FnMut(usize)) {
        match self.form {
            Form::Blocked => visit(self.block(hash) * LANES),
            Form::Counting | Form::Aging => {
                let first = self.block(hash) * cells::WORDS;
                (0..cells::LINES).for_each(|line| visit(first + line * LANES));
            }
            Form::Classic => {
                for (word, _) in classic::positions(hash, self.hash_count, self.shard_bits) {
                    visit(word);
                }
            }
            Form::Array => {}
        }
    }

    /// The indices of a key's bits in its shard, in their order; one that two of its values meet
    /// at stands there once.
    pub fn bits(&self, hash: KeyHash) -> Vec<u64> {
        let mut bits: Vec<u64> = match self.has_blocks() {
            true => {
                let block = blocked::bits(hash, self.hash_count);
                let first = self.block(hash) as u64 * BLOCK_BITS;
                let in_block = |bit: &u64| {
                    let lane = block.get((bit / 64) as usize);
                    lane.is_some_and(|lane| lane >> (bit % 64) & 1 == 1)
                };
                let set = (0..BLOCK_BITS).filter(in_block);
                set.map(|bit| first + bit).collect()
            }
            false => classic::positions(hash, self.hash_count, self.shard_bits)
                .map(|(word, mask)| word as u64 * 64 + u64::from(mask.trailing_zeros()))
                .collect(),
        };
        bits.sort_unstable();
        bits.dedup();
        bits
    }

    /// Whether a bit of a shard is set, given the shard's [words](Self::shard_words). Where there
    /// are stamps, it must have one of some.
    pub fn is_set(&self, words: &[u64], bit: u64, stamps: Values) -> bool {
        match self.form {
            Form::Blocked | Form::Classic | Form::Array => {
                let word = words.get((bit / 64) as usize);
                word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
            }
            Form::Counting | Form::Aging => {
                let cells = as_cells(words).get((bit / BLOCK_BITS) as usize);
                cells.is_some_and(|cells| stamps.has(cells::get(cells, bit % BLOCK_BITS)))
            }
        }
    }

    /// The index of the block in its shard that all bits of a key lie in, if there are blocks.
    pub fn block_of(&self, hash: KeyHash) -> Option<usize> {
        self.has_blocks().then(|| self.block(hash))
    }

    /// The index of a key's block in its shard. What the choice of the shard leaves of the
    /// high half chooses the block, so that all blocks of all shards are equally likely.
    #[inline]
    fn block(&self, hash: KeyHash) -> usize {
        let (_, rest) = choose(hash.high, self.shard_count);
        choose(rest, self.shard_bits / BLOCK_BITS).0 as usize
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
            Form::Counting | Form::Aging => {
                counting::contains(simd, &as_cells(words)[self.block(hash)], hash, count)
            }
            Form::Classic => classic::contains(words, hash, count, self.shard_bits),
            // No shard alone tells.
            Form::Array => false,
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
            Form::Counting => {
                let change = self.take_with(simd, words, hash, Step::AddNew);
                change.map_or(0, |change| change.bits)
            }
            // Nothing is added without a stamp, nor to one shard alone.
            Form::Aging | Form::Array => 0,
            Form::Classic => classic::insert(words, hash, count, self.shard_bits),
        }
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
#[inline(always)]
fn contains_each<S: Simd, W: AsRef<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &[W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut tell: impl FnMut(usize, &W, bool),
) {
    for (number, hash) in keys {
        let shard = &shards[shape.shard(hash) - first_shard];
        tell(
            number,
            shard,
            shape.contains_with(simd, shard.as_ref(), hash),
        );
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
#[inline(always)]
fn insert_each<S: Simd, W: AsMut<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &mut [W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut tell: impl FnMut(usize, &mut W, u32),
) {
    for (number, hash) in keys {
        let shard = &mut shards[shape.shard(hash) - first_shard];
        let bits_added = shape.insert_with(simd, shard.as_mut(), hash);
        tell(number, shard, bits_added);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys"
)]
#[inline(always)]
fn take_each<S: Simd, W: AsMut<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &mut [W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut decide: impl FnMut(KeyHash) -> Step,
    mut tell: impl FnMut((usize, KeyHash), &mut W, Option<Change>),
) {
    for (number, hash) in keys {
        let shard = &mut shards[shape.shard(hash) - first_shard];
        let change = shape.take_with(simd, shard.as_mut(), hash, decide(hash));
        tell((number, hash), shard, change);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys, and blocks are chosen inside of them"
)]
#[inline(always)]
fn contains_stamped<S: Simd, W: AsRef<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &[W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    mut there: impl FnMut(&W) -> Values,
    mut tell: impl FnMut(usize, &W, bool),
) {
    for (number, hash) in keys {
        let shard = &shards[shape.shard(hash) - first_shard];
        let cells = &as_cells(shard.as_ref())[shape.block(hash)];
        let seen = aging::contains(simd, cells, hash, shape.hash_count, there(shard));
        tell(number, shard, seen);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the caller gives the shards of its keys, and blocks are chosen inside of them"
)]
#[expect(
    clippy::too_many_arguments,
    reason = "those of the method, and two more"
)]
#[inline(always)]
fn stamp_each<S: Simd, W: AsMut<[u64]>>(
    simd: S,
    shape: &Shape,
    shards: &mut [W],
    first_shard: usize,
    keys: impl Iterator<Item = (usize, KeyHash)>,
    renews: bool,
    mut how: impl FnMut(&mut W) -> Stamping,
    mut tell: impl FnMut((usize, KeyHash), &mut W, Option<aging::Change>),
) {
    for (number, hash) in keys {
        let shard = &mut shards[shape.shard(hash) - first_shard];
        let how = how(shard);
        let cells = &mut as_cells_mut(shard.as_mut())[shape.block(hash)];
        let change = aging::stamp_key(simd, cells, hash, shape.hash_count, how, renews);
        tell((number, hash), shard, change);
    }
}

pub(crate) fn as_blocks(words: &[u64]) -> &[Block] {
    words.as_chunks().0
}

pub(crate) fn as_blocks_mut(words: &mut [u64]) -> &mut [Block] {
    words.as_chunks_mut().0
}

fn as_cells(words: &[u64]) -> &[Cells] {
    words.as_chunks().0
}

fn as_cells_mut(words: &mut [u64]) -> &mut [Cells] {
    words.as_chunks_mut().0
}

#[cfg(test)]
mod tests;
