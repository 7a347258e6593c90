//! Arrays whose bits are not chosen equally often.
//!
//! A position that is a number below some range, modulo the number of bits, is one of the low bits
//! once more often than one of the others. Where the range is far greater, nobody can tell. Where
//! it is twice as great and a quarter, a quarter of the bits are chosen three times where the
//! others are chosen twice. So they are set more often, and asked for more often too: the rate is
//! higher than what the share of the bits that are set lets expect.
//!
//! What is not computed: the positions of a key are evenly spaced, as the bits that are chosen more
//! often are, so a key may have more of those, or fewer, than chance would give it. `docs/rates.md`
//! tells by how much that raises the rate.

use super::classic;

/// How many halvings find a number of choices to the last digit.
const HALVINGS: u32 = 64;

/// How often bits are chosen.
#[derive(Debug, Clone, Copy)]
pub struct Uneven {
    /// Those that are chosen once more often, and the others.
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
    /// The share of the bits that is to be expected to be set after so many choices.
    fn fill(&self, draws: f64) -> f64 {
        -(draws * (-self.chance).ln_1p()).exp_m1()
    }
}

impl Uneven {
    /// `bits` bits that are chosen by a number below `range`, modulo `bits`.
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

    /// The bits that are ever chosen.
    fn used_bits(&self) -> f64 {
        let used = self.groups.iter().filter(|group| group.chance > 0.0);
        used.map(|group| group.bits).sum()
    }

    /// The share of the bits that are ever chosen that is to be expected to be set after so many
    /// choices.
    fn fill(&self, draws: f64) -> f64 {
        let set = self.groups.map(|group| group.bits * group.fill(draws));
        set.iter().sum::<f64>() / self.used_bits()
    }

    /// How likely one more choice is a bit that is set, after so many.
    pub fn hit(&self, draws: f64) -> f64 {
        let hit = |group: Group| group.bits * group.chance * group.fill(draws);
        self.groups.map(hit).iter().sum()
    }

    /// How much likelier that is than if all bits were chosen equally often.
    pub fn advantage(&self, draws: f64) -> f64 {
        if draws <= 0.0 {
            return 1.0;
        }
        self.hit(draws) / classic::fill(self.used_bits(), draws)
    }

    /// The number of choices after which this share of the bits that are ever chosen is to be
    /// expected to be set. It lies between 0 and 1, 1 not included.
    pub fn draws_at(&self, fill_ratio: f64) -> f64 {
        // As many as if all bits were chosen as seldom as the seldomest.
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

    /// Whatever the range, one that the bits divide and one that is smaller among them.
    const RANGES: [u64; 5] = [60_000, 90_000, 120_000, 135_000, 1 << 40];
    const BITS: u64 = 60_000;

    fn random(number: u64) -> u64 {
        KeyHash { low: 7, high: 9 }.value(number as u32 + 1)
    }

    /// Bits that are chosen at random, and how many of them are found set by others.
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
            // Half of the bits are two thirds of the choices: 2/3 · 4/3 + 1/3 · 2/3.
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
