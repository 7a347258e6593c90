//! Filters of other programs, whose keys have bits in several shards.
//!
//! # One winner
//!
//! A call that adds a key locks all stripes that hold its bits. It locks them in ascending order,
//! so that no two calls ever wait for each other. It keeps the locks until it has found out whether
//! the key is new, has set its bits, and has noted its version in each shard that it has changed.
//! So of all calls that add one key, the first to hold the locks finds bits unset, and every other
//! call finds all bits set.
//!
//! Bits are never cleared. So a query takes one lock at a time. If it finds all bits of a key, each
//! was set by a call whose version is at most the version that its shard has then.
//!
//! # After a crash
//!
//! A snapshot that is written meanwhile can have some bits of a key and not others. Such a key is
//! not seen, and the log has it if it was acknowledged. Replay can count the key twice, if the
//! snapshot has the shard in which it was counted before. So after a crash `keys_added` can be too
//! great, by at most the keys that were added while the snapshot was written.

use std::time::Duration;

use parking_lot::Mutex;

use super::{
    Body,
    content::{Content, LayoutContent},
    group::Group,
    sharded::{Sharded, whole_in_shards},
    tally::Tally,
    whole::{KeyBits, Whole},
};
use crate::{
    engine::{
        call::Action,
        error::Full,
        filter::{mapping::Cache, one_or_many::OneOrMany, shard::Shard, stripes::Stripes},
    },
    filter::{
        exchange::{ForeignBits, Part},
        hash::KeyHash,
        shape::Shape,
        spec::FilterSpec,
    },
    store::{RecordHead, RecordKind},
    sync::{RwLockReadGuard, RwLockWriteGuard},
};

/// The bits of another program's filter.
#[derive(Debug)]
pub struct Foreign {
    pub sharded: Sharded<Shape>,
    parts: ForeignBits,
    /// The number of words of each shard.
    shard_words: usize,
    /// The number of bits that are set in each part but the last, from an earlier count. Keys
    /// change only the last part.
    old_bits: Mutex<Option<Vec<u64>>>,
}

/// The result of adding one key.
struct Found {
    is_new: bool,
    /// The latest version of the shards that the result depends on.
    version: u64,
}

impl Foreign {
    /// Creates a filter without keys.
    pub fn new(parts: ForeignBits, sharded: Sharded<Shape>) -> Self {
        let shard_words = sharded.format.shard_words();
        Self {
            sharded,
            parts,
            shard_words,
            old_bits: Mutex::default(),
        }
    }

    /// Returns the positions of the bits of a key in a part.
    #[inline]
    fn positions(&self, part: &Part, hash: KeyHash) -> impl Iterator<Item = Position> + use<> {
        let shard_words = self.shard_words;
        part.positions(hash).map(move |(word, mask)| Position {
            shard: word / shard_words,
            word: word % shard_words,
            mask,
        })
    }

    /// Returns the version that the presence of a key depends on; `None` if the key is not there.
    fn find(&self, hash: KeyHash) -> Option<u64> {
        let mut parts = self.parts.iter();
        parts.find_map(|part| self.find_in(part, hash))
    }

    #[expect(clippy::indexing_slicing, reason = "each position has a stripe")]
    fn find_in(&self, part: &Part, hash: KeyHash) -> Option<u64> {
        let shards = &self.sharded.shards;
        let mut held: Option<(usize, RwLockReadGuard<'_, OneOrMany<Shard>>)> = None;
        let mut version = 0;
        for position in self.positions(part, hash) {
            let number = shards.stripe_of(position.shard);
            if held.as_ref().is_none_or(|(held, _)| *held != number) {
                // Released before the next is locked: never two at once.
                drop(held.take());
                let stripe = shards.locks()[number].read();
                held = Some((number, stripe));
            }
            let (_, stripe) = held.as_ref()?;
            let shard = stripe.get(position.shard - shards.first_of(number))?;
            if !position.is_set(shard) {
                return None;
            }
            version = shard.state.version.max(version);
        }
        Some(version)
    }

    /// Adds a key if it is not there. Only then calls `version`, for the version of the call.
    fn add(&self, hash: KeyHash, version: impl FnOnce() -> u64) -> Found {
        // Old parts take no keys: a key that is not there now never gets there, except by a merge
        // of another filter.
        let old = self.parts.old().iter();
        if let Some(version) = old.filter_map(|part| self.find_in(part, hash)).next() {
            let is_new = false;
            return Found { is_new, version };
        }
        let positions = || self.positions(self.parts.last(), hash);
        let mut locked = Locked::new(&self.sharded.shards, positions());
        let (mut is_new, mut latest) = (false, 0);
        for position in positions() {
            if let Some(shard) = locked.shard(&position) {
                is_new |= !position.is_set(shard);
                latest = shard.state.version.max(latest);
            }
        }
        if !is_new {
            let version = latest;
            return Found { is_new, version };
        }
        let version = version();
        let mut keys = 1;
        for position in positions() {
            let Some(shard) = locked.shard(&position) else {
                continue;
            };
            if let Some(word) = shard.words.get_mut(position.word)
                && *word & position.mask == 0
            {
                *word |= position.mask;
                let state = &mut shard.state;
                state.version = state.version.max(version);
                state.bits_set += 1;
                // It is counted where its first bit was missing.
                state.keys_added += keys;
                keys = 0;
            }
        }
        Found { is_new, version }
    }

    /// Returns the number of bits that are set in each part, if `bits_set` are set in all parts
    /// together.
    fn bits_of_parts(&self, bits_set: u64) -> Vec<u64> {
        let count = || {
            let old = self.parts.old().iter();
            old.map(|part| self.count_bits(part)).collect()
        };
        let mut bits = self.old_bits.lock().get_or_insert_with(count).clone();
        let old: u64 = bits.iter().sum();
        bits.push(bits_set.saturating_sub(old));
        bits
    }

    fn count_bits(&self, part: &Part) -> u64 {
        let words = part.words();
        let (mut next, end) = (words.start as usize, words.end as usize);
        let mut bits = 0;
        while next < end {
            let shard = next / self.shard_words;
            let first = shard * self.shard_words;
            let upto = end.min(first + self.shard_words);
            let locked = self.sharded.shards.read(shard);
            let words = locked.words.get(next - first..upto - first);
            let words = words.expect("the part lies in the shard").iter();
            bits += words.map(|word| u64::from(word.count_ones())).sum::<u64>();
            next = upto;
        }
        bits
    }
}

/// The position of a bit.
#[derive(Debug, Clone, Copy)]
struct Position {
    shard: usize,
    word: usize,
    mask: u64,
}

impl Position {
    #[inline]
    fn is_set(&self, shard: &Shard) -> bool {
        let word = shard.words.get(self.word);
        word.is_some_and(|word| word & self.mask != 0)
    }
}

/// Exclusive locks on all stripes of a key.
struct Locked<'a> {
    shards: &'a Stripes<Shard>,
    /// The locked stripes, in ascending order.
    stripes: Vec<(usize, RwLockWriteGuard<'a, OneOrMany<Shard>>)>,
}

impl<'a> Locked<'a> {
    #[expect(clippy::indexing_slicing, reason = "each position has a stripe")]
    fn new(shards: &'a Stripes<Shard>, positions: impl Iterator<Item = Position>) -> Self {
        let mut numbers: Vec<usize> = positions
            .map(|position| shards.stripe_of(position.shard))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |number: usize| (number, shards.locks()[number].write());
        let stripes = numbers.into_iter().map(lock).collect();
        Self { shards, stripes }
    }

    /// Returns the shard of a position.
    #[inline]
    fn shard(&mut self, position: &Position) -> Option<&mut Shard> {
        let number = self.shards.stripe_of(position.shard);
        let index = self.stripes.binary_search_by_key(&number, |(key, _)| *key);
        let (_, stripe) = self.stripes.get_mut(index.ok()?)?;
        stripe.get_mut(position.shard - self.shards.first_of(number))
    }
}

impl Body for Foreign {
    /// Each key takes the locks of all its shards.
    type Lock = ();
    type Call = ();
    type Tag = ();
    type Replay = ();

    fn locks(&self) -> usize {
        1
    }

    fn lock(&self, _: usize) -> (&(), usize) {
        (&(), 0)
    }

    #[inline]
    fn lock_of(&self, _: KeyHash) -> usize {
        0
    }

    fn fetch_lock(&self, _: usize) {}

    #[inline]
    fn fetch(&self, hash: KeyHash, to: Cache) {
        for position in self.positions(self.parts.last(), hash) {
            self.sharded.fetch_word(position.shard, position.word, to);
        }
    }

    fn lines(&self, hash: KeyHash) -> usize {
        self.positions(self.parts.last(), hash).count()
    }

    fn is_untouched(&self, _: KeyHash) -> bool {
        false
    }

    fn begin_query(&self, _: Option<Duration>) {}

    fn begin_write(&self, _: Action, _: Option<Duration>) {}

    fn probe(
        &self,
        (): &(),
        _: usize,
        keys: Group<'_, '_, Self>,
        (): &(),
        mut found: impl FnMut(usize, u64, bool),
    ) {
        for (key, hash) in keys {
            let version = self.find(hash);
            found(key, version.unwrap_or(0), version.is_some());
        }
    }

    fn apply(
        &self,
        (): &(),
        _: usize,
        keys: Group<'_, '_, Self>,
        (): &mut (),
        tally: &mut Tally<'_, '_, Self>,
    ) {
        for key @ (_, hash) in keys {
            let found = self.add(hash, || tally.version());
            match found.is_new {
                true => tally.changed(key, ()),
                false => tally.depends_on(found.version),
            }
        }
    }

    fn record_kind(&self, _: Action, (): ()) -> RecordKind {
        RecordKind::Added
    }

    fn begin_replay(&self, _: &RecordHead) -> Result<Option<()>, Full> {
        Ok(Some(()))
    }

    fn replay(&self, (): &(), _: usize, keys: Group<'_, '_, Self>, version: u64, (): &()) {
        for (_, hash) in keys {
            self.add(hash, || version);
        }
    }
}

impl Whole for Foreign {
    whole_in_shards!();

    /// Drops the bit counts of old parts, because bits can have been set there.
    fn recount(&self) {
        *self.old_bits.lock() = None;
    }

    fn content(&self, spec: &FilterSpec) -> Content<'_> {
        let (keys_added, bits_set) = self.sharded.sums();
        Content {
            keys_added,
            bits_set,
            fill_ratio: bits_set as f64 / spec.body.bit_count() as f64,
            layout: LayoutContent::Foreign {
                parts: &self.parts,
                bits: self.bits_of_parts(bits_set),
            },
        }
    }

    /// Explains the part that holds the key, or the part that would take it.
    fn explain(&self, hash: KeyHash) -> KeyBits {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| self.find_in(part, hash).is_some());
        let part = part.unwrap_or(self.parts.last());
        let mut bits: Vec<(u64, bool)> = self
            .positions(part, hash)
            .map(|position| {
                let word = (position.shard * self.shard_words + position.word) as u64;
                let bit = word * 64 + u64::from(position.mask.trailing_zeros());
                let shard = self.sharded.shards.read(position.shard);
                (bit, position.is_set(&shard))
            })
            .collect();
        bits.sort_unstable();
        bits.dedup_by_key(|(bit, _)| *bit);
        let before = |other: &&Part| other.words().start < part.words().start;
        KeyBits {
            layer: self
                .parts
                .is_chain()
                .then(|| self.parts.iter().filter(before).count()),
            shard: None,
            block: None,
            lines: Vec::new(),
            bits,
        }
    }
}
