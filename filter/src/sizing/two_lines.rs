//! The rate where the cells of a key lie in two lines, as [`crate::two_lines`] deals them.
//!
//! For a key that is looked up, with its two lines, there are three sorts of other keys: keys that
//! have the first line, keys that have the second, and the few that have both. The number of keys
//! of each line is distributed binomially. A lane of the two lines has 32 cells. A key that has one
//! of the lines hits a given cell of it with a probability of 1/32. For a key that has both lines
//! the probability is the same: it goes to one of them, and there to one of 16 cells.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use super::{
    blocked::weights_of_binomial,
    fill::{ByDraws, FULL, Fill, LANES},
};
use crate::{
    format::{Format, Rates},
    shape::Shape,
    two_lines::{LINE_CELLS, REACH, TwoLines},
};

/// The cells of a lane in two lines.
pub const LANE_CELLS: f64 = 32.0;
/// The probability that a key with a line misses a given cell of one of its lanes there.
const MISS: f64 = 1.0 - 1.0 / LANE_CELLS;

/// The lines that keys choose from.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// The number of lines of all shards.
    pub all: f64,
    /// The number of lines of each shard.
    pub of_shard: f64,
}

impl Lines {
    fn of(shape: &Shape) -> Self {
        Self {
            all: (shape.bit_count() / LINE_CELLS) as f64,
            of_shard: (shape.shard_bits() / LINE_CELLS) as f64,
        }
    }

    /// Returns the probability that a key has a given line.
    fn chance(self) -> f64 {
        2.0 / self.all
    }

    /// Returns the probability that a key has both lines of another key: it has chosen the same way
    /// or, in a shard with few lines, the other way round.
    fn chance_of_both(self) -> f64 {
        let reach = (REACH as f64).min(self.of_shard - 1.0);
        let other_way = (2.0 * reach - self.of_shard + 1.0).max(0.0) / reach;
        (1.0 + other_way) / (self.all * reach)
    }
}

impl<C: TwoLines> Rates for C {
    fn rate(&self, keys: f64) -> f64 {
        let shape = self.shape();
        rate(Lines::of(shape), shape.hash_count(), keys)
    }

    fn keys_at_fill(&self, fill_ratio: f64) -> f64 {
        let shape = self.shape();
        // A key has two lines.
        let places = Lines::of(shape).all / 2.0;
        Fill::new(places, LANE_CELLS, shape.hash_count()).keys_at(fill_ratio)
    }
}

/// Returns the false-positive rate with `hash_count` hashes after `keys` keys.
pub fn rate(lines: Lines, hash_count: u32, keys: f64) -> f64 {
    let load = keys * lines.chance();
    if load * f64::from(hash_count) / f64::from(LANES) > FULL {
        1.0
    } else if hash_count < LANES {
        rate_of_neighbours(lines, hash_count, keys)
    } else {
        rate_of_rounds(lines, hash_count, keys)
    }
}

/// Returns the rate for `k < 8`, where a key has one cell in each of `k` neighbouring lanes. It is
/// computed by inclusion and exclusion as in a block ([`super::blocked`]), but here also over the
/// lines that the lanes go to.
fn rate_of_neighbours(lines: Lines, hash_count: u32, keys: f64) -> f64 {
    let both = lines.chance_of_both();
    let one = lines.chance() - both;
    let rate = terms(hash_count).iter().map(|term| {
        let hit = one * term.hit_by_one + both * term.hit_by_both;
        term.weight * (keys * (-hit).ln_1p()).exp()
    });
    rate.sum::<f64>().max(0.0)
}

/// Sets of looked-up cells, all of them unset, that keys hit with the same probabilities.
struct Term {
    /// The number of sets, each with its sign, multiplied by the probability that their lanes go to
    /// these lines.
    weight: f64,
    /// The sum of two probabilities: that a key with only the first line hits some of the cells,
    /// and that a key with only the second line does.
    hit_by_one: f64,
    /// The same probability for a key that has both lines.
    hit_by_both: f64,
}

/// Returns the terms for `hash_count < 8`. There are 3^k sets, and some hundred different ones.
fn terms(hash_count: u32) -> &'static [Term] {
    static TERMS: [OnceLock<Vec<Term>>; LANES as usize] = [const { OnceLock::new() }; 8];
    let compute = || {
        let lanes = (1_u8 << hash_count) - 1;
        let mut weights: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for first in 0..=lanes {
            for second in (0..=lanes).filter(|second| first & second == 0) {
                let hit = |set: u8| {
                    let of_key = |key: u32| (set & lanes.rotate_left(key)).count_ones() as i32;
                    let misses = (0..LANES).map(|key| MISS.powi(of_key(key)));
                    1.0 - misses.sum::<f64>() / f64::from(LANES)
                };
                let (by_one, by_both) = (hit(first) + hit(second), hit(first | second));
                let count = (first | second).count_ones() as i32;
                *weights
                    .entry((by_one.to_bits(), by_both.to_bits()))
                    .or_default() += (-0.5_f64).powi(count);
            }
        }
        let terms = weights.into_iter().map(|((one, both), weight)| Term {
            weight,
            hit_by_one: f64::from_bits(one),
            hit_by_both: f64::from_bits(both),
        });
        terms.collect()
    };
    let terms = TERMS.get(hash_count as usize);
    terms.map_or(&[], |terms| terms.get_or_init(compute))
}

/// Returns the rate for `k >= 8`, where every lane gets one cell in each round and the lowest lanes
/// one more. If the keys of the two lines are given, the lanes are independent, and their rates
/// multiply.
///
/// The keys of the two lines are counted as if they were independent. Then the effect of their
/// common keys is added, by covariance: for counts that depend on each other a little, the mean of
/// a function grows by the covariance times its mixed second difference.
fn rate_of_rounds(lines: Lines, hash_count: u32, keys: f64) -> f64 {
    let (rounds, more) = (hash_count / LANES, hash_count % LANES);
    let (full, fuller) = (RATES.of(rounds), RATES.of(rounds + 1));
    let chance = lines.chance();
    let deviation = (keys * chance * (1.0 - chance)).sqrt();
    // Where the distribution is smooth, some of its counts stand for all.
    let step = (deviation / 1.5).floor().max(1.0);
    let counts: Vec<_> = weights_of_binomial(keys, chance, step as usize)
        .into_iter()
        .map(|(count, weight)| (full.missed(count), fuller.missed(count), weight))
        .collect();
    let covariance = keys * (lines.chance_of_both() - chance * chance);
    let mut mean = 0.0;
    for (index, (one, more_of_one, weight)) in counts.iter().enumerate() {
        for (others_index, (other, more_of_other, others_weight)) in
            counts.iter().enumerate().take(index + 1)
        {
            let rest = full.at(one, other);
            let mut rates = rest.map(|rate| rate.powi((LANES - more) as i32));
            if more > 0 {
                let more_rates = fuller.at(more_of_one, more_of_other);
                for (rate, lane) in rates.iter_mut().zip(more_rates) {
                    *rate *= lane.powi(more as i32);
                }
            }
            let [rate, one_more, other_more, both_more] = rates;
            let mixed = both_more - one_more - other_more + rate;
            // Counts the pair for both orders.
            let times = if others_index < index { 2.0 } else { 1.0 };
            mean += times * weight * others_weight * (rate + covariance * mixed);
        }
    }
    mean.max(0.0)
}

static RATES: LazyLock<ByDraws<LaneRate>> = LazyLock::new(|| ByDraws::new(LaneRate::new));

/// The probability that `draws` random cells of a lane are all set, after each key of its two lines
/// has set as many random cells of it.
struct LaneRate {
    /// For each pair of numbers of cells in the two lines: the probability that a key of the line
    /// misses its cells, for each line, and the weight of "these are all unset".
    terms: Vec<(f64, f64, f64)>,
}

impl LaneRate {
    /// Computes the terms by inclusion and exclusion over the unset cells among the distinct cells
    /// looked up. The number of distinct cells in each line follows from drawing the cells one
    /// after the other.
    #[expect(
        clippy::indexing_slicing,
        reason = "no more cells are drawn than there are draws"
    )]
    fn new(draws: u32) -> Self {
        let size = draws as usize + 1;
        let mut distinct = vec![vec![0.0; size + 1]; size + 1];
        distinct[0][0] = 1.0;
        for _ in 0..draws {
            let mut next = vec![vec![0.0; size + 1]; size + 1];
            for first in 0..size {
                for second in 0..size - first {
                    let probability = distinct[first][second] / LANE_CELLS;
                    next[first][second] += probability * (first + second) as f64;
                    next[first + 1][second] += probability * (LANE_CELLS / 2.0 - first as f64);
                    next[first][second + 1] += probability * (LANE_CELLS / 2.0 - second as f64);
                }
            }
            distinct = next;
        }
        let choices = |of: usize, chosen: usize| {
            (0..chosen).fold(1.0, |choices, index| {
                choices * (of - index) as f64 / (index + 1) as f64
            })
        };
        let miss = |cells: usize| (1.0 - cells as f64 / LANE_CELLS).powi(draws as i32);
        let mut terms = Vec::new();
        for first in 0..size {
            for second in 0..size - first {
                let mut weight = 0.0;
                for (of_first, row) in distinct.iter().enumerate().skip(first) {
                    for (of_second, probability) in row.iter().enumerate().skip(second) {
                        weight +=
                            probability * choices(of_first, first) * choices(of_second, second);
                    }
                }
                let sign = (-1.0_f64).powi((first + second) as i32);
                terms.push((miss(first), miss(second), sign * weight));
            }
        }
        Self { terms }
    }

    /// Returns, for each term, the probability that `keys` keys of the first line miss its cells
    /// there, and the same for the second line.
    fn missed(&self, keys: f64) -> Vec<(f64, f64)> {
        let terms = self.terms.iter();
        terms
            .map(|(first, second, _)| (first.powf(keys), second.powf(keys)))
            .collect()
    }

    /// Returns the probability for the keys of the first line and of the second, from their
    /// [missed](Self::missed) probabilities: with these keys, with one more in the first, with one
    /// more in the second, and with one more in both.
    fn at(&self, of_first: &[(f64, f64)], of_second: &[(f64, f64)]) -> [f64; 4] {
        let mut rates = [0.0; 4];
        let missed = of_first.iter().zip(of_second);
        for ((first, second, weight), ((by_first, _), (_, by_second))) in
            self.terms.iter().zip(missed)
        {
            let rate = weight * by_first * by_second;
            let more = [1.0, *first, *second, first * second];
            for (sum, more) in rates.iter_mut().zip(more) {
                *sum += rate * more;
            }
        }
        rates.map(|rate| rate.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        counters::Counters,
        format::Format,
        hash::KeyHash,
        key_set::KeySet,
        sizing::{false_positive_rate, false_positive_rate_at_fill, keys_at_fill},
        two_lines::LINE_CELLS,
    };

    fn key(number: u64) -> KeyHash {
        let seed = KeyHash {
            low: 0x5eed,
            high: 0xfeed,
        };
        let [low, high] = [number, number + (1 << 31)].map(|number| seed.value(number as u32));
        KeyHash { low, high }
    }

    /// Checks the formulas against the code that they describe, for every kind of `k`: in many
    /// shards, and in shards with so few lines that most keys share some.
    #[test]
    fn the_computed_rate_is_the_measured_one() {
        for (lines, fills) in [(40_000, 1), (60, 400), (20, 1000), (12, 1500), (4, 4000)] {
            for (hash_count, per_line) in [
                (1, 20),
                (3, 26),
                (5, 15),
                (7, 13),
                (8, 13),
                (9, 11),
                (13, 8),
                (16, 6),
                (24, 5),
            ] {
                check(lines, fills, hash_count, per_line);
            }
        }
    }

    fn check(lines: u64, fills: u64, hash_count: u32, per_line: u64) {
        let counters = Counters::new(lines * LINE_CELLS, hash_count);
        let shape = counters.shape();
        let keys = lines * per_line;
        let queries = 500_000 / fills;
        let (mut found, mut set, mut number) = (0, 0, 0);
        for _ in 0..fills {
            let mut shards = vec![vec![0; shape.shard_words()]; shape.shard_count()];
            for _ in 0..keys {
                number += 1;
                let hash = key(number);
                counters.insert(&mut shards[shape.shard(hash)], hash);
            }
            for _ in 0..queries {
                number += 1;
                let hash = key(number);
                found += u64::from(counters.contains(&shards[shape.shard(hash)], hash));
            }
            set += shards
                .iter()
                .map(|words| shape.bits_set(words))
                .sum::<u64>();
        }
        let (found, queries) = (found as f64, (queries * fills) as f64);
        let expected = false_positive_rate(&counters, keys as f64);
        let mean = expected * queries;
        // 4.5 standard deviations, and a little for the chance in the filters.
        let bound = 4.5 * (mean * (1.0 - expected)).sqrt() + 0.004 * mean;
        let case = format!("{lines} lines, k = {hash_count}");
        assert!((found - mean).abs() < bound, "{case}: {found} for {mean}");

        let fill = set as f64 / (shape.bit_count() * fills) as f64;
        let estimate = keys_at_fill(&counters, fill).unwrap();
        assert!(
            (estimate / keys as f64 - 1.0).abs() < 0.005,
            "{case}: {estimate} of {keys}"
        );
        let at_fill = false_positive_rate_at_fill(&counters, fill);
        assert!((at_fill / expected - 1.0).abs() < 0.03, "{case}: {at_fill}");
    }
}
