//! One filter, measured at several fills in turn.

use std::ops::Range;

use crate::{filter::Filter, interval::interval, keys::hash_batches, subject::Subject};

/// The distance from the first added key to the first key that is looked up and never added.
const PROBES: u64 = 1 << 40;
/// The number of false positives that are wanted where the rate is near the one asked for: chance
/// changes this number by 1 %, and sizes are computed for a rate that is 4 % lower.
const FALSE_POSITIVES: f64 = 1e4;
/// The part of the rate asked for above which a rate counts as near.
const NEAR: f64 = 0.25;
/// The number of points that a curve has between two fills.
const STEPS: u32 = 48;

/// The amount of work.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The number of keys that the filter is made for.
    pub capacity: u64,
    /// The least number of keys that are looked up at each fill.
    pub probes: u64,
}

/// The measurements of one filter.
#[derive(Debug, Clone)]
pub struct Series {
    pub subject: Subject,
    /// The rate asked for.
    pub asked: f64,
    pub points: Vec<Point>,
    /// The fills in per cent of the capacity, and the expected rates.
    pub curve: Vec<(f64, f64)>,
}

/// The measurement at one fill.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The fill, in per cent of the capacity.
    pub percent: u64,
    pub probes: u64,
    /// The number of probes that were found.
    pub found: u64,
    /// The prediction from the number of keys.
    pub by_keys: Prediction,
    /// The prediction from the bits that are set.
    pub by_fill: Prediction,
}

/// The prediction for one fill.
#[derive(Debug, Clone, Copy)]
pub struct Prediction {
    pub rate: f64,
    /// The least and the greatest number of found probes that chance allows, 999 times in 1000.
    pub interval: (f64, f64),
}

impl Prediction {
    fn new(rate: f64, probes: u64) -> Self {
        Self {
            rate,
            interval: interval(probes as f64, rate),
        }
    }

    /// Whether chance alone can have found `found` probes.
    pub fn allows(&self, found: u64) -> bool {
        let (low, high) = self.interval;
        (low..=high).contains(&(found as f64))
    }
}

impl Point {
    /// Returns the measured rate.
    pub fn measured(&self) -> f64 {
        self.found as f64 / self.probes as f64
    }
}

impl Series {
    /// Measures a filter that is still empty.
    pub fn measure(subject: Subject, asked: f64, effort: Effort, filter: &mut dyn Filter) -> Self {
        let hasher = subject.hasher(asked);
        let first = subject.first_key(asked);
        let (mut added, mut probed) = (0, first + PROBES);
        let mut points = Vec::new();
        for percent in subject.percents() {
            let keys = effort.capacity * percent / 100;
            filter.pass();
            hash_batches(&hasher, first + added..first + keys, |hashes| {
                filter.add(hashes);
            });
            added = keys;

            let by_keys = filter.rate_by_keys(keys);
            let probes = probes(asked, by_keys, effort.probes);
            let mut found = 0;
            hash_batches(&hasher, next(&mut probed, probes), |hashes| {
                found += filter.found(hashes);
            });
            points.push(Point {
                percent,
                probes,
                found,
                by_keys: Prediction::new(by_keys, probes),
                by_fill: Prediction::new(filter.rate_by_fill(), probes),
            });
        }
        Self {
            subject,
            asked,
            points,
            curve: curve(subject, effort.capacity, filter),
        }
    }
}

impl Series {
    /// Returns the greatest rate that was measured until the filter was full, as a multiple of the
    /// one asked for.
    pub fn worst(&self) -> Option<f64> {
        let until_full = (self.points.iter())
            .filter(|point| point.percent <= self.subject.full_percent())
            .map(|point| point.measured() / self.asked);
        until_full.max_by(f64::total_cmp)
    }

    /// Whether the rate asked for is promised at a point.
    pub fn keeps_rate_at(&self, point: &Point) -> bool {
        self.subject.keeps_rate() && point.percent <= self.subject.full_percent()
    }
}

/// Returns the number of keys to look up where such a rate is expected.
fn probes(asked: f64, expected: f64, least: u64) -> u64 {
    if expected < asked * NEAR {
        return least;
    }
    least.max((FALSE_POSITIVES / expected.max(asked)) as u64)
}

/// Returns keys that were not looked up before.
fn next(probed: &mut u64, probes: u64) -> Range<u64> {
    let first = *probed;
    *probed += probes;
    first..*probed
}

fn curve(subject: Subject, capacity: u64, filter: &dyn Filter) -> Vec<(f64, f64)> {
    let percents: Vec<f64> = subject.percents().map(|percent| percent as f64).collect();
    let (Some(&first), Some(&last)) = (percents.first(), percents.last()) else {
        return Vec::new();
    };
    let step = (last / first).powf(1.0 / f64::from(STEPS));
    (0..=STEPS)
        .map(|number| {
            let percent = first * step.powi(number as i32);
            let keys = (capacity as f64 * percent / 100.0).round();
            (percent, filter.rate_by_keys(keys as u64))
        })
        .collect()
}
