//! Arrays in which the positions of a key are evenly spaced: double hashing.
//!
//! A key has a start and a step, and its positions are start + i · step, modulo the number of bits
//! m. That makes about m² different keys, where independent positions make m^k. So in a small
//! array, or at a low rate, the rate is higher than the classic formula's, by an amount that falls
//! with 1/m: P. C. Dillinger and P. Manolios, "Bloom Filters in Probabilistic Verification", 2004;
//! A. Kirsch and M. Mitzenmacher, "Less Hashing, Same Performance", 2006. Two terms make up most of
//! it:
//!
//! - **Positions of one key coincide.** A step of 0, or one that shares a factor with m, gives a
//!   key few bits, and such a key is found easily. Steps for which index i meets index i + t solve
//!   t · step = 0 (mod m).
//! - **Two keys have many bits in common,** because one has the step of the other, the opposite
//!   step, or a small fraction of it.
//!
//! The sum itself wraps at 2^63, 2^64 or 2^32. If m does not divide that, each wrap shifts the
//! positions after it, by c. The first term then has the steps with t · step = v · c for v wraps.
//! Keys of both terms are then only alike as far as they wrap alike. So the first term is summed
//! over samples of the real positions, and the second over samples of wraps.

use std::ops::Range;

/// The range of the sums of a key's start and steps.
#[derive(Debug, Clone, Copy)]
pub struct Wrapping {
    /// The number at which the sums wrap.
    pub range: u128,
    /// Whether they run backwards in the upper half of the range.
    pub is_mirrored: bool,
}

/// The greatest distance between two indices that is checked. If no two indices nearer than this
/// coincide, a key has at least as many bits, and its rate hardly differs.
const MAX_DISTANCE: u64 = 12;
/// The number of keys that are sampled for each step, each with other wraps.
const SAMPLES: u32 = 32;
/// The number of pairs of keys whose wraps are compared.
const PAIRS: u32 = 100;
/// The greatest length of runs of positions that are compared.
const MAX_RUN: usize = 24;

/// The coincidences of positions in an array.
#[derive(Debug, Clone)]
pub struct Spaced {
    bits: f64,
    hash_count: usize,
    /// For each number of distinct positions, the number of steps that give a key that number.
    by_distinct: Vec<f64>,
    /// The number of pairs of positions of one key that coincide, in all of these steps.
    own_pairs: f64,
    /// For each number of common positions, the number of ways in which two keys can have them.
    by_common: Vec<f64>,
    /// The number of pairs of common positions beyond those of independent positions.
    common_pairs: f64,
}

impl Spaced {
    /// Returns the coincidences of an array of `bits` bits if a key has `hash_count` positions.
    /// `position` returns the position for a start, a step and an index.
    pub fn new(
        bits: u64,
        hash_count: u32,
        wrapping: Wrapping,
        position: impl Fn(u64, u64, u32) -> u64,
    ) -> Self {
        let hash_count = hash_count as usize;
        let mut spaced = Self {
            bits: bits as f64,
            hash_count,
            by_distinct: vec![0.0; hash_count + 1],
            own_pairs: 0.0,
            by_common: vec![0.0; hash_count + 1],
            common_pairs: 0.0,
        };
        spaced.add_own(bits, wrapping, position);
        spaced.add_common(bits, wrapping);
        spaced
    }

    /// Returns the part of the false-positive rate that the classic formula leaves out, when `keys`
    /// keys have set the share `fill` of the bits.
    pub fn excess(&self, fill: f64, keys: f64) -> f64 {
        let k = self.hash_count;
        let all = fill.powi(k as i32);
        let all_but_one = fill.powi(k as i32 - 1) * (1.0 - fill);
        let own = sum(&self.by_distinct, |distinct| {
            fill.powi(distinct as i32) - all
        });
        let own = own - self.own_pairs * all_but_one;
        // The amount by which a key that sets `common` bits of another raises that key's rate, if
        // the share of set bits stays the same.
        let gain = |common: usize| {
            fill.powi(k.saturating_sub(common) as i32) - all - common as f64 * all_but_one
        };
        let pair = if k < 2 { 0.0 } else { gain(2) };
        let pairs = |common: usize| (common * common.saturating_sub(1) / 2) as f64;
        let common = sum(&self.by_common, |common| {
            gain(common) - pairs(common) * pair
        });
        let common = common + self.common_pairs * pair;
        (own / self.bits + keys * common / (self.bits * self.bits)).max(0.0)
    }

    /// Counts the coinciding positions of single keys.
    fn add_own(&mut self, bits: u64, wrapping: Wrapping, position: impl Fn(u64, u64, u32) -> u64) {
        let shift = (wrapping.range % u128::from(bits)) as u64;
        let mut steps: Vec<u64> = (1..MAX_DISTANCE.min(self.hash_count as u64))
            .flat_map(|distance| (0..=distance).map(move |wraps| (distance, wraps)))
            .flat_map(|(distance, wraps)| solutions(distance, product(wraps, shift, bits), bits))
            .collect();
        steps.sort_unstable();
        steps.dedup();
        // If no wrap has an effect, all keys of a step are alike.
        let is_exact = shift == 0 && !wrapping.is_mirrored;
        let samples = if is_exact { 1 } else { SAMPLES };
        let mut positions = Vec::with_capacity(self.hash_count);
        for (number, step) in (0_u32..).zip(steps) {
            for sample in 0..samples {
                let speed = (f64::from(sample) + 0.5) / f64::from(samples);
                let start = f64::from(sample) * 0.618_033_988_749_895
                    + f64::from(number) * 0.754_877_666_246_693;
                let rounds = wrapping.range / u128::from(bits);
                let rounds = (rounds as f64 * speed) as u128 * u128::from(bits);
                let step = (rounds + u128::from(step)) as u64;
                let start = (wrapping.range as f64 * start.fract()) as u64;
                positions.clear();
                positions.extend((0..self.hash_count as u32).map(|i| position(start, step, i)));
                positions.sort_unstable();
                let runs = positions.chunk_by(|left, right| left == right);
                let (distinct, pairs) = runs.fold((0, 0), |(distinct, pairs), run| {
                    (distinct + 1, pairs + run.len() * (run.len() - 1) / 2)
                });
                let weight = 1.0 / f64::from(samples);
                add(&mut self.by_distinct, distinct, weight);
                self.own_pairs += pairs as f64 * weight;
            }
        }
    }

    /// Counts the ways in which two keys can have positions in common: every `theirs`-th position
    /// of one key is every `ours`-th of the other, as far as both wrap alike.
    fn add_common(&mut self, bits: u64, wrapping: Wrapping) {
        let k = self.hash_count;
        let is_exact = wrapping.range.is_multiple_of(u128::from(bits)) && !wrapping.is_mirrored;
        let mut by_length = vec![0.0; k + 1];
        for ours in 1..k {
            for theirs in 1..k {
                let ways = ways(gcd(ours as u64, theirs as u64), bits, is_exact);
                let distances = (k - ours) * 2 * (k - theirs);
                let factor = gcd(gcd(ours as u64, theirs as u64), bits);
                let factor = if is_exact {
                    factor
                } else {
                    power_of_two(factor)
                };
                self.common_pairs += distances as f64 * (factor - 1) as f64;
                // Runs of two are counted with the pairs.
                if ways == 0.0 || 2 * ours.max(theirs) >= k {
                    continue;
                }
                for (i, j) in (0..k).flat_map(|i| (0..k).map(move |j| (i, j))) {
                    let before = (i / theirs).min(j / ours);
                    let behind = ((k - 1 - i) / theirs).min((k - 1 - j) / ours);
                    let length = 1 + before + behind;
                    add(&mut by_length, length, 2.0 * ways / length as f64);
                }
            }
        }
        if is_exact {
            self.by_common = by_length;
            self.by_common
                .iter_mut()
                .take(3)
                .for_each(|ways| *ways = 0.0);
        } else {
            let alike = Alike::sample(k.min(MAX_RUN), wrapping.is_mirrored);
            for (length, ways) in by_length.iter().enumerate().skip(3) {
                alike.add(length, *ways, &mut self.by_common);
            }
        }
    }
}

/// The number of common positions in runs of positions, for two keys that wrap independently.
struct Alike {
    /// Indexed by the length of the run, and by the number of positions in common.
    by_length: Vec<Vec<f64>>,
}

impl Alike {
    fn sample(longest: usize, is_mirrored: bool) -> Self {
        let mut by_length = vec![vec![0.0; longest + 1]; longest + 1];
        let mut state = 77_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        // In a mirrored range, keys that run in opposite directions are alike as often.
        let (halves, weight) = if is_mirrored { (2.0, 2.0) } else { (1.0, 1.0) };
        for _ in 0..PAIRS {
            let [mut one, mut other] = [(); 2].map(|()| {
                let (start, speed) = (random(), random());
                (0..longest).map(move |i| ((start + i as f64 * speed) * halves).floor() as i64)
            });
            let wraps = |halves: i64| if is_mirrored { halves >> 1 } else { halves };
            let same_half = |one: i64, other: i64| !is_mirrored || (one ^ other) & 1 == 0;
            let both = one.by_ref().zip(other.by_ref());
            let ahead: Vec<Option<i64>> = both
                .map(|(one, other)| same_half(one, other).then(|| wraps(other) - wraps(one)))
                .collect();
            for (length, counts) in by_length.iter_mut().enumerate().skip(3) {
                for slope in -1..=1 {
                    let run = (0..).zip(ahead.iter().take(length));
                    let mut lines: Vec<i64> = run
                        .filter_map(|(i, ahead)| ahead.map(|ahead| ahead - slope * i))
                        .collect();
                    lines.sort_unstable();
                    for line in lines.chunk_by(|left, right| left == right) {
                        if line.len() > 2 {
                            add(counts, line.len(), weight / f64::from(PAIRS));
                        }
                    }
                }
            }
        }
        Self { by_length }
    }

    /// Adds the common positions of runs of a length that occur in `ways` ways.
    fn add(&self, length: usize, ways: f64, by_common: &mut [f64]) {
        let counts = self.by_length.get(length).or(self.by_length.last());
        for (common, count) in counts.into_iter().flatten().enumerate() {
            add(by_common, common, ways * count);
        }
    }
}

/// Returns the number of steps, on average, that put every n-th position of one key on every n-th
/// position of another, if `common` divides both distances and no finer step does the same. It
/// includes steps that differ by a fraction of a round, m / `common`, and, if sums wrap, by a
/// fraction of a wrap. m and the shift of a wrap have the factor 64 in common, and no odd factor.
fn ways(common: u64, bits: u64, is_exact: bool) -> f64 {
    let coprime = |number: u64| {
        (1..=number)
            .filter(|&other| gcd(number, other) == 1)
            .count() as f64
    };
    if is_exact {
        return if bits.is_multiple_of(common) {
            coprime(common)
        } else {
            0.0
        };
    }
    let even = power_of_two(common);
    let odd = common / even;
    let of_even = if even > 1 { 0.75 * even as f64 } else { 1.0 };
    of_even * coprime(odd) / odd as f64
}

/// Returns the numbers below `modulus` that give `product` when multiplied by `factor`.
fn solutions(factor: u64, product: u64, modulus: u64) -> impl Iterator<Item = u64> {
    let common = gcd(factor, modulus);
    let period = modulus / common;
    let count = if product.is_multiple_of(common) {
        common
    } else {
        0
    };
    let range: Range<u64> = 0..factor / common;
    // The first solution is the quotient of the first multiple of the factor that is `product`
    // after some rounds. The number of rounds to try is at most the factor.
    let first = range
        .map(|round| u128::from(product / common) + u128::from(round) * u128::from(period))
        .find(|multiple| multiple.is_multiple_of(u128::from(factor / common)))
        .map_or(0, |multiple| {
            (multiple / u128::from(factor / common)) as u64
        });
    (0..count).map(move |number| first + number * period)
}

fn product(left: u64, right: u64, modulus: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(modulus)) as u64
}

fn gcd(left: u64, right: u64) -> u64 {
    if right == 0 {
        left
    } else {
        gcd(right, left % right)
    }
}

/// Returns the greatest power of two that divides a number.
fn power_of_two(number: u64) -> u64 {
    1 << number.trailing_zeros()
}

fn add(counts: &mut [f64], at: usize, weight: f64) {
    if let Some(count) = counts.get_mut(at) {
        *count += weight;
    }
}

/// Returns the sum of a value of each number, multiplied by its count.
fn sum(counts: &[f64], value: impl Fn(usize) -> f64) -> f64 {
    let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0.0);
    counted.map(|(number, count)| count * value(number)).sum()
}
