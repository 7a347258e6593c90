//! Arrays whose bits are not chosen equally often.
//!
//! If a position is a number below some range, modulo the number of bits, the low bits are chosen
//! once more often than the others. If the range is far greater than the number of bits, the
//! difference does not matter. If it is two and a quarter times as great, a quarter of the bits is
//! chosen three times where the others are chosen twice. So these bits are set more often, and
//! looked up more often too: the rate is higher than the share of set bits predicts.
//!
//! One effect is not computed. The positions of a key are evenly spaced, and so are the bits that
//! are chosen more often. So a key can have more of those bits, or fewer, than by chance.
//! `docs/rates.md` shows how much that raises the rate.

use super::classic;

/// The number of halvings that find a number of choices to the last digit.
const HALVINGS: u32 = 64;

/// The frequencies with which bits are chosen.
#[derive(Debug, Clone, Copy)]
pub struct Uneven {
    /// The bits that are chosen once more often, and the others.
    groups: [Group; 2],
}

/// Bits that are chosen equally often.
#[derive(Debug, Clone, Copy)]
struct Group {
    bits: f64,
    /// The probability that one of them is chosen.
    chance: f64,
}

impl Group {
    /// Returns the expected share of the bits that is set after `draws` choices.
    fn fill(&self, draws: f64) -> f64 {
        -(draws * (-self.chance).ln_1p()).exp_m1()
    }
}

impl Uneven {
    /// Returns the frequencies for `bits` bits that are chosen by a number below `range`, modulo
    /// `bits`.
    pub fn new(range: u64, bits: u64) -> Self {
        let (times, low) = (range / bits, range % bits);
        let group = |bits: u64, times: u64| Group {
            bits: bits as f64,
            chance: times as f64 / range as f64,
        };
        Self {
            groups: [group(low, times + 1), group(bits - low, times)],
        }
    }

    /// Returns the number of bits that are ever chosen.
    fn used_bits(&self) -> f64 {
        let used = self.groups.iter().filter(|group| group.chance > 0.0);
        used.map(|group| group.bits).sum()
    }

    /// Returns the expected share, among the bits that are ever chosen, that is set after `draws`
    /// choices.
    fn fill(&self, draws: f64) -> f64 {
        let set = self.groups.map(|group| group.bits * group.fill(draws));
        set.iter().sum::<f64>() / self.used_bits()
    }

    /// Returns the probability that one more choice, after `draws` choices, is a bit that is set.
    pub fn hit(&self, draws: f64) -> f64 {
        let hit = |group: Group| group.bits * group.chance * group.fill(draws);
        self.groups.map(hit).iter().sum()
    }

    /// Returns the ratio of that probability to the one with all bits chosen equally often.
    pub fn advantage(&self, draws: f64) -> f64 {
        if draws <= 0.0 {
            return 1.0;
        }
        self.hit(draws) / classic::fill(self.used_bits(), draws)
    }

    /// Returns the number of choices after which this share of the bits that are ever chosen is
    /// expected to be set. `fill_ratio` lies between 0 and 1, 1 not included.
    pub fn draws_at(&self, fill_ratio: f64) -> f64 {
        // The upper bound: as many as if all bits were chosen as rarely as the rarest.
        let chances = self.groups.map(|group| group.chance);
        let seldom = chances.into_iter().filter(|chance| *chance > 0.0);
        let seldom = seldom.fold(1.0, f64::min);
        let (mut few, mut many) = (0.0, (-fill_ratio).ln_1p() / (-seldom).ln_1p());
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(few, many);
            if self.fill(middle) < fill_ratio {
                few = middle;
            } else {
                many = middle;
            }
        }
        f64::midpoint(few, many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    /// Ranges of all sorts, one that the bits divide and one that is smaller among them.
    const RANGES: [u64; 5] = [60_000, 90_000, 120_000, 135_000, 1 << 40];
    const BITS: u64 = 60_000;

    fn random(number: u64) -> u64 {
        KeyHash { low: 7, high: 9 }.value(number as u32 + 1)
    }

    /// Chooses bits at random, and counts how many other choices hit a set bit.
    #[test]
    fn bits_are_chosen_as_often_as_they_are() {
        for range in RANGES {
            let uneven = Uneven::new(range, BITS);
            let position = |number| (random(number) % range % BITS) as usize;
            let mut set = vec![false; BITS as usize];
            let mut last = 0;
            for draws in [6_000, 40_000, 80_000] {
                (last..draws).for_each(|number| set[position(number)] = true);
                last = draws;
                let fill = set.iter().filter(|set| **set).count() as f64 / BITS as f64;
                let expected = uneven.fill(draws as f64);
                assert!(
                    (fill / expected - 1.0).abs() < 0.02,
                    "{range}: {fill}, {expected}"
                );

                let probes = 1_000_000;
                let hit = |number: &u64| set[position(1 << 30 | number)];
                let hit = (0..probes).filter(hit).count() as f64 / probes as f64;
                let expected = uneven.hit(draws as f64);
                assert!(
                    (hit / expected - 1.0).abs() < 0.02,
                    "{range}: {hit}, {expected}"
                );
                let from_fill = uneven.hit(uneven.draws_at(fill));
                assert!(
                    (hit / from_fill - 1.0).abs() < 0.01,
                    "{range}: {hit}, {from_fill}"
                );
            }
        }
    }

    #[test]
    fn choices_are_told_by_the_fill() {
        for range in [40_000, 60_000, 90_000, 135_000] {
            let uneven = Uneven::new(range, BITS);
            for draws in [1.0, 100.0, 6e4, 4e5] {
                let found = uneven.draws_at(uneven.fill(draws));
                assert!(
                    (found / draws - 1.0).abs() < 1e-6,
                    "{range}: {found}, {draws}"
                );
            }
            assert_eq!(uneven.draws_at(0.0), 0.0);
        }
    }

    #[test]
    fn there_is_an_advantage_where_some_bits_are_chosen_more_often() {
        for (range, least, most) in [
            (40_000, 1.0, 1.0),
            (60_000, 1.0, 1.0),
            // Half of the bits get two thirds of the choices: 2/3 · 4/3 + 1/3 · 2/3.
            (90_000, 1.11, 1.112),
            (120_000, 1.0, 1.0),
            (1 << 40, 1.0, 1.0),
        ] {
            let advantage = Uneven::new(range, BITS).advantage(100.0);
            let rounded = (advantage * 1e6).round() / 1e6;
            assert!((least..=most).contains(&rounded), "{range}: {advantage}");
        }
    }
}
