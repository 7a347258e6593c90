//! The rate of the blocked layout, as [`crate::blocked`] deals bits to lanes.
//!
//! With `n` keys on `B` blocks the number of keys of a block is distributed binomially, Bin(n,
//! 1/B). Putze, Sanders and Singler (2007) average the rate of one block over that distribution. We
//! do the same, with the exact rate of this kind of block.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use super::fill::{ByDraws, FULL, Fill, LANES};
use crate::{
    blocked::{BLOCK_BITS, Blocked},
    format::{Format, Rates},
};

/// The bits of a lane.
pub const LANE_BITS: f64 = 64.0;
/// The probability that a random bit misses a given bit of its lane.
const MISS: f64 = 1.0 - 1.0 / LANE_BITS;

impl Rates for Blocked {
    fn rate(&self, keys: f64) -> f64 {
        rate(blocks(self), self.shape().hash_count(), keys)
    }

    fn keys_at_fill(&self, fill_ratio: f64) -> f64 {
        fill(self).keys_at(fill_ratio)
    }
}

/// Returns how the blocks of a filter fill.
pub fn fill(blocked: &Blocked) -> Fill {
    Fill::new(blocks(blocked), LANE_BITS, blocked.shape().hash_count())
}

fn blocks(blocked: &Blocked) -> f64 {
    (blocked.shape().bit_count() / BLOCK_BITS) as f64
}

/// Returns the false-positive rate of `blocks` blocks with `hash_count` hashes after `keys` keys.
pub fn rate(blocks: f64, hash_count: u32, keys: f64) -> f64 {
    let load = keys / blocks;
    if load * f64::from(hash_count) / f64::from(LANES) > FULL {
        1.0
    } else if hash_count < LANES {
        rate_of_neighbours(blocks, hash_count, keys)
    } else {
        rate_of_rounds(blocks, hash_count, keys)
    }
}

/// Returns the rate for `k < 8`, where a key sets one bit in each of `k` neighbouring lanes.
///
/// The lanes are not independent, because neighbours get the same keys. The rate is computed by
/// inclusion and exclusion over the sets T of the looked-up bits that are all unset. One key misses
/// all of T with probability a(T) = mean over its first lane of MISS^|T ∩ its lanes|. The n keys of
/// the filter miss it with probability ((1 - 1/B) + a(T)/B)^n. The rate is the sum of these with
/// alternating signs. Sets with the same a(T) are added up first, so that few values remain.
fn rate_of_neighbours(blocks: f64, hash_count: u32, keys: f64) -> f64 {
    let terms = terms(hash_count).iter();
    terms
        .map(|(hit, sign)| sign * (keys * (-hit / blocks).ln_1p()).exp())
        .sum::<f64>()
        .max(0.0)
}

/// Returns the terms for `hash_count < 8`: the probability that a key of the block hits some bit of
/// a set, and the number of sets with that probability, each with its sign.
fn terms(hash_count: u32) -> &'static [(f64, f64)] {
    static TERMS: [OnceLock<Vec<(f64, f64)>>; LANES as usize] = [const { OnceLock::new() }; 8];
    let compute = || {
        let lanes = (1_u8 << hash_count) - 1;
        let mut signs: BTreeMap<u64, f64> = BTreeMap::new();
        for unset in 0..=lanes {
            let of_key = |key: u32| (unset & lanes.rotate_left(key)).count_ones() as i32;
            let misses = (0..LANES).map(|key| MISS.powi(of_key(key)));
            let miss = misses.sum::<f64>() / f64::from(LANES);
            *signs.entry(miss.to_bits()).or_default() += sign_of(unset.count_ones());
        }
        let signs = signs.into_iter();
        signs
            .map(|(miss, sign)| (1.0 - f64::from_bits(miss), sign))
            .collect()
    };
    let terms = TERMS.get(hash_count as usize);
    terms.map_or(&[], |terms| terms.get_or_init(compute))
}

fn sign_of(count: u32) -> f64 {
    match count % 2 {
        0 => 1.0,
        _ => -1.0,
    }
}

/// Returns the rate for `k ≥ 8`, where every lane gets one bit in each round and the lowest lanes
/// one more. If the keys of a block are given, its lanes are independent, and their rates multiply.
fn rate_of_rounds(blocks: f64, hash_count: u32, keys: f64) -> f64 {
    let (rounds, more) = (hash_count / LANES, hash_count % LANES);
    let full = RATES.of(rounds);
    let fuller = RATES.of(rounds + 1);
    mean_over_binomial(keys, 1.0 / blocks, |keys| {
        let rest = full.at(keys).powi((LANES - more) as i32);
        if more == 0 {
            rest
        } else {
            rest * fuller.at(keys).powi(more as i32)
        }
    })
}

static RATES: LazyLock<ByDraws<LaneRate>> = LazyLock::new(|| ByDraws::new(LaneRate::new));

/// The probability that `draws` random bits of a lane are all set, after each key of the block has
/// set `draws` random bits of it.
struct LaneRate {
    draws: u32,
    /// For each number of bits: the weight of "these bits are all unset", and the logarithm of the
    /// probability that one draw leaves them unset.
    weights: Vec<(f64, f64)>,
}

impl LaneRate {
    /// Computes the weights by inclusion and exclusion over the unset bits among the distinct bits
    /// looked up. The number of distinct bits follows from drawing the `draws` bits one after the
    /// other.
    #[expect(
        clippy::indexing_slicing,
        reason = "`next` is longer than `distinct` by one"
    )]
    fn new(draws: u32) -> Self {
        let mut distinct = vec![1.0];
        for _ in 0..draws {
            let mut next = vec![0.0; distinct.len() + 1];
            for (count, probability) in distinct.iter().enumerate() {
                next[count] += probability * count as f64 / LANE_BITS;
                next[count + 1] += probability * (1.0 - count as f64 / LANE_BITS);
            }
            distinct = next;
        }
        let mut weights = vec![0.0; distinct.len()];
        for (count, probability) in distinct.iter().enumerate() {
            let mut choices = 1.0;
            for (unset, weight) in weights.iter_mut().enumerate().take(count + 1) {
                *weight += probability * choices;
                choices *= -((count - unset) as f64) / (unset + 1) as f64;
            }
        }
        let logarithm = |unset: usize| (-(unset as f64) / LANE_BITS).ln_1p();
        let weights = weights.into_iter().enumerate();
        Self {
            draws,
            weights: weights
                .map(|(unset, weight)| (weight, logarithm(unset)))
                .collect(),
        }
    }

    fn at(&self, keys: f64) -> f64 {
        let draws = keys * f64::from(self.draws);
        let terms = self.weights.iter();
        terms
            .map(|(weight, missed)| weight * (draws * missed).exp())
            .sum::<f64>()
            .max(0.0)
    }
}

/// Returns the mean of `value` over Bin(`count`, `probability`). The time is proportional to the
/// square root of the mean.
fn mean_over_binomial(count: f64, probability: f64, value: impl Fn(f64) -> f64) -> f64 {
    let counts = weights_of_binomial(count, probability, 1);
    counts.iter().map(|&(at, weight)| weight * value(at)).sum()
}

/// Returns the numbers that Bin(`count`, `probability`) gives, in ascending order, with their
/// probabilities. It goes from the mode in both directions until the rest is negligible. Where the
/// distribution is smooth, every `step`-th number stands for those around it.
pub fn weights_of_binomial(count: f64, probability: f64, step: usize) -> Vec<(f64, f64)> {
    if probability >= 1.0 {
        return vec![(count, 1.0)];
    }
    let odds = probability / (1.0 - probability);
    let mode = (count * probability).floor();
    let counts = |weight: f64| weight > 1e-18;
    let mut below: Vec<(f64, f64)> = Vec::new();
    let (mut at, mut weight) = (mode, 1.0);
    while at > 0.0 && counts(weight) {
        weight *= at / (count - at + 1.0) / odds;
        at -= 1.0;
        below.push((at, weight));
    }
    let from_mode = below.len() % step;
    let mut all: Vec<(f64, f64)> = below.into_iter().rev().collect();
    (at, weight) = (mode, 1.0);
    all.push((at, weight));
    while at < count && counts(weight) {
        weight *= (count - at) / (at + 1.0) * odds;
        at += 1.0;
        all.push((at, weight));
    }
    let mut chosen: Vec<(f64, f64)> = all.into_iter().skip(from_mode).step_by(step).collect();
    let sum: f64 = chosen.iter().map(|(_, weight)| weight).sum();
    chosen.iter_mut().for_each(|(_, weight)| *weight /= sum);
    chosen
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::{super::fill::Fill, *};
    use crate::{blocked, hash::KeyHash};

    /// Checks the formulas against the code that they describe, for every kind of `k`.
    #[test]
    fn the_computed_rate_is_the_measured_one() {
        const BLOCKS: usize = 20_000;
        let seed = KeyHash {
            low: 0x5eed,
            high: 0xfeed,
        };
        for (hash_count, per_block) in [
            (1, 40),
            (3, 90),
            (5, 60),
            (7, 50),
            (8, 50),
            (9, 45),
            (13, 30),
            (16, 25),
            (22, 20),
        ] {
            let keys = BLOCKS * per_block;
            let mut blocks = vec![[0; blocked::LANES]; BLOCKS];
            let place = |i: u32| {
                let hash = KeyHash {
                    low: seed.value(2 * i + 1),
                    high: seed.value(2 * i + 2),
                };
                ((hash.high % BLOCKS as u64) as usize, hash)
            };
            let mut ones = 0_u64;
            for i in 0..keys as u32 {
                let (block, hash) = place(i);
                let block = &mut blocks[block];
                ones += u64::from(
                    dispatch!(Level::new(), simd => blocked::insert(simd, block, hash, hash_count)),
                );
            }
            let queries = 1_000_000_u32;
            let found = (0..queries)
                .filter(|i| {
                    let (block, hash) = place(1_900_000_000 + i);
                    let block = &blocks[block];
                    dispatch!(Level::new(), simd => blocked::contains(simd, block, hash, hash_count))
                })
                .count() as f64;

            let expected = rate(BLOCKS as f64, hash_count, keys as f64);
            let mean = expected * f64::from(queries);
            // 4.5 standard deviations, and a little for the chance in the filter itself.
            let bound = 4.5 * (mean * (1.0 - expected)).sqrt() + 0.004 * mean;
            assert!(
                (found - mean).abs() < bound,
                "k = {hash_count}: {found} for {mean}"
            );

            let fill = ones as f64 / (BLOCKS * 512) as f64;
            let estimate = Fill::new(BLOCKS as f64, LANE_BITS, hash_count).keys_at(fill);
            assert!(
                (estimate / keys as f64 - 1.0).abs() < 0.005,
                "k = {hash_count}: {estimate} of {keys}"
            );
        }
    }

    #[test]
    fn one_block_gets_every_key() {
        let expected = (1.0 - MISS.powi(30)).powi(8);
        assert!((rate(1.0, 8, 30.0) - expected).abs() < 1e-12);
    }
}
