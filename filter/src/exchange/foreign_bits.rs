//! The parts of the array of another program's filter.
//!
//! The array of Guava is one part. The array of RedisBloom has one part for each layer, one after
//! the other. A key is present if all of its bits in any part are set. New keys are added to the
//! last part.

use std::{
    ops::Range,
    slice,
    sync::{Arc, OnceLock},
};

use super::{array, guava, redisbloom};
use crate::{
    hash::KeyHash,
    sizing::{classic, spaced::Spaced, uneven::Uneven},
};

/// All parts of an array.
#[derive(Debug, Clone)]
pub struct ForeignBits {
    /// All parts except the last.
    old: Vec<Part>,
    last: Part,
    /// The coincidences of positions in each part. They take some milliseconds to compute.
    spaced: Arc<OnceLock<Vec<Option<Spaced>>>>,
}

/// A part, and the rule for the bits that a key sets in it.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    rule: Rule,
    /// The index of its first word in the array.
    first_word: u64,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Guava(guava::Shape),
    RedisBloom(redisbloom::ChainLayer),
}

impl Part {
    /// Returns the range of the part's words in the array.
    pub fn words(&self) -> Range<u64> {
        let count = match &self.rule {
            Rule::Guava(shape) => shape.word_count(),
            Rule::RedisBloom(layer) => layer.word_count(),
        };
        self.first_word..self.first_word + count
    }

    /// Returns the number of bits that each key sets, if none of them coincide.
    pub fn hash_count(&self) -> u32 {
        match &self.rule {
            Rule::Guava(shape) => shape.hash_count(),
            Rule::RedisBloom(layer) => layer.hash_count(),
        }
    }

    /// Returns the number of bits that any key can set.
    pub fn used_bits(&self) -> u64 {
        match &self.rule {
            Rule::Guava(shape) => shape.used_bits(),
            Rule::RedisBloom(layer) => layer.used_bits(),
        }
    }

    /// Returns the places of a key's bits, as (word of the array, mask). Some can coincide.
    #[inline]
    pub fn positions(&self, hash: KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let part = *self;
        (0..self.hash_count()).map(move |index| {
            let position = match &part.rule {
                Rule::Guava(shape) => shape.position(hash, index),
                Rule::RedisBloom(layer) => layer.position(hash, index),
            };
            let (word, mask) = array::place(position);
            (part.first_word as usize + word, mask)
        })
    }

    /// Returns the expected false-positive rate of this part alone after `keys` distinct keys were
    /// added to it.
    pub fn false_positive_rate(&self, keys: f64) -> f64 {
        let (bits, hash_count) = (self.used_bits() as f64, self.hash_count());
        let more = self
            .uneven()
            .map_or(1.0, |uneven| uneven.advantage(f64::from(hash_count) * keys));
        let rate = classic::rate(1.0, bits, hash_count, keys) * more.powi(hash_count as i32);
        let fill = classic::fill(bits, f64::from(hash_count) * keys);
        let excess = self
            .spaced()
            .map_or(0.0, |spaced| spaced.excess(fill, keys));
        (rate + excess).clamp(0.0, 1.0)
    }

    fn false_positive_rate_at_fill(&self, bits_set: u64, spaced: Option<&Spaced>) -> f64 {
        let fill_ratio = self.fill_ratio(bits_set);
        let hit = match self.uneven() {
            Some(uneven) if fill_ratio < 1.0 => uneven.hit(uneven.draws_at(fill_ratio)),
            _ => fill_ratio,
        };
        let keys = self.keys_at_fill(bits_set).zip(spaced);
        let excess = keys.map_or(0.0, |(keys, spaced)| spaced.excess(fill_ratio, keys));
        (hit.powi(self.hash_count() as i32) + excess).min(1.0)
    }

    /// See [`ForeignBits::keys_at_fill`].
    fn keys_at_fill(&self, bits_set: u64) -> Option<f64> {
        let fill_ratio = self.fill_ratio(bits_set);
        let hash_count = self.hash_count();
        (fill_ratio < 1.0).then(|| match self.uneven() {
            Some(uneven) => uneven.draws_at(fill_ratio) / f64::from(hash_count),
            None => classic::keys_at_fill(self.used_bits() as f64, hash_count, fill_ratio),
        })
    }

    /// Returns the share of the usable bits that is set if `bits_set` bits are set.
    fn fill_ratio(&self, bits_set: u64) -> f64 {
        (bits_set as f64 / self.used_bits() as f64).clamp(0.0, 1.0)
    }

    /// Returns the coincidences of positions.
    fn spaced(&self) -> Option<Spaced> {
        match &self.rule {
            Rule::Guava(shape) => shape.spaced(),
            Rule::RedisBloom(layer) => Some(layer.spaced()),
        }
    }

    /// Returns how often each bit is chosen, if not all are chosen equally often.
    fn uneven(&self) -> Option<Uneven> {
        match &self.rule {
            Rule::Guava(shape) => shape.uneven(),
            // With 64 bits of the hash each position is nearly as likely as any other.
            Rule::RedisBloom(_) => None,
        }
    }
}

impl ForeignBits {
    /// Returns the one part of a filter of Guava.
    pub fn of_guava(shape: guava::Shape) -> Self {
        Self {
            old: Vec::new(),
            last: Part {
                rule: Rule::Guava(shape),
                first_word: 0,
            },
            spaced: Arc::default(),
        }
    }

    /// Returns a part for each layer of a filter of RedisBloom.
    pub fn of_chain(chain: &redisbloom::Chain) -> Self {
        let mut first_word = 0;
        let mut old: Vec<Part> = Vec::new();
        for layer in chain.layers() {
            let rule = Rule::RedisBloom(*layer);
            old.push(Part { rule, first_word });
            first_word += layer.word_count();
        }
        let last = old.pop().expect("a chain has at least one layer");
        Self {
            old,
            last,
            spaced: Arc::default(),
        }
    }

    /// Returns the part that new keys are added to.
    pub fn last(&self) -> &Part {
        &self.last
    }

    /// Returns all parts except the last, the oldest first.
    pub fn old(&self) -> &[Part] {
        &self.old
    }

    /// Returns whether the parts are the layers of a chain of RedisBloom's.
    pub fn is_chain(&self) -> bool {
        matches!(self.last.rule, Rule::RedisBloom(_))
    }

    /// Returns all parts, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Part> {
        self.old.iter().chain(slice::from_ref(&self.last))
    }

    /// Returns the expected false-positive rate when the given number of bits of each part is set.
    pub fn false_positive_rate_at_fill(&self, bits_set: &[u64]) -> f64 {
        let spaced = self
            .spaced
            .get_or_init(|| self.iter().map(Part::spaced).collect());
        let parts = self.iter().zip(spaced).zip(bits_set);
        either(
            parts.map(|((part, spaced), &bits)| {
                part.false_positive_rate_at_fill(bits, spaced.as_ref())
            }),
        )
    }

    /// Returns the expected number of distinct keys when the given number of bits of each part is
    /// set. Returns `None` if all bits of a part are set, because the number is then unknown.
    pub fn keys_at_fill(&self, bits_set: &[u64]) -> Option<f64> {
        let parts = self.iter().zip(bits_set);
        parts.map(|(part, &bits)| part.keys_at_fill(bits)).sum()
    }
}

/// Returns the probability that at least one of several independent events happens.
pub(crate) fn either(probabilities: impl Iterator<Item = f64>) -> f64 {
    // So that small probabilities are not lost next to 1.
    let neither: f64 = probabilities.map(|one| (-one).ln_1p()).sum();
    -neither.exp_m1()
}

#[cfg(test)]
mod tests;
