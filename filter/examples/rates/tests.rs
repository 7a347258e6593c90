//! The measurement itself, with small filters, and with filters that are wrong on purpose.

use std::collections::HashSet;

use seenset_filter::hash::KeyHash;

use super::*;
use crate::{
    filter::Filter,
    interval::{interval, interval_at},
    series::{Point, Prediction},
};

const SMALL: Effort = Effort {
    capacity: 40_000,
    probes: 200_000,
};

fn small(subject: Subject) -> Effort {
    Effort {
        capacity: subject.capacity(SMALL.capacity),
        ..SMALL
    }
}

/// A filter with a planted error.
struct Planted {
    inner: Box<dyn Filter>,
    /// Each key is added this number of times, as different keys.
    times: u64,
    /// Whether the prediction takes these extra keys into account.
    foretold: bool,
}

impl Filter for Planted {
    fn add(&mut self, hashes: &mut [KeyHash]) {
        for time in 0..self.times {
            let of_others = |hash: &KeyHash| KeyHash {
                low: hash.low.rotate_left(time as u32),
                high: hash.high.rotate_left(time as u32),
            };
            let mut hashes: Vec<_> = hashes.iter().map(of_others).collect();
            self.inner.add(&mut hashes);
        }
    }

    fn found(&self, hashes: &mut [KeyHash]) -> u64 {
        self.inner.found(hashes)
    }

    fn rate_by_keys(&self, keys: u64) -> f64 {
        match self.foretold {
            true => self.inner.rate_by_keys(keys * self.times),
            false => self.inner.rate_by_keys(keys),
        }
    }

    fn rate_by_fill(&self) -> f64 {
        self.inner.rate_by_fill()
    }
}

fn with_planted(times: u64, foretold: bool) -> Series {
    let inner = Subject::Classic.filter(SMALL.capacity, 0.01).unwrap();
    let mut planted = Planted {
        inner,
        times,
        foretold,
    };
    Series::measure(Subject::Classic, 0.01, SMALL, &mut planted)
}

#[test]
fn every_kind_is_as_good_as_it_should_be() {
    let all: Vec<Series> = Subject::ALL
        .into_iter()
        .map(|subject| {
            let mut filter = subject.filter(small(subject).capacity, 0.1).unwrap();
            Series::measure(subject, 0.1, small(subject), filter.as_mut())
        })
        .collect();
    let verdict = Verdict::of(&all);
    assert!(verdict.is_good(), "{verdict}\n{}", Points(&all));

    let percents: Vec<u64> = all[0].points.iter().map(|point| point.percent).collect();
    assert_eq!(percents, [1, 2, 5, 10, 25, 50, 75, 100, 150, 200]);
    let (growing, others): (Vec<_>, Vec<_>) =
        (all.iter()).partition(|series| series.subject.grows());
    for series in &growing {
        let last = series.points.last().unwrap();
        assert_eq!((series.points.len(), last.percent), (15, 6400));
    }
    assert_eq!((growing.len(), others.len()), (2, 9));
    // Near the rate asked for there are enough false positives to detect a difference of 4 %.
    assert!(others.iter().all(|series| series.points[7].found > 8000));

    // RedisBloom's own size misses the rate, which is not a failure.
    let of_redisbloom = |series: &&Series| series.subject == Subject::RedisBloom;
    let worst = others
        .into_iter()
        .find(of_redisbloom)
        .and_then(Series::worst);
    assert!(worst.unwrap() > 1.0, "{worst:?}");

    let svg = plot::draw(&all).unwrap();
    let drawn = all.iter().flat_map(|series| &series.points);
    let drawn = drawn.filter(|point| point.found > 0).count();
    // The legend has one more.
    assert_eq!(svg.matches("<circle").count(), drawn + 1);
    assert!(
        svg.contains("<title")
            && svg.contains("</desc>")
            && !svg.contains("http://www.w3.org/1999/xlink")
    );
    assert!(!svg.contains("NaN"));
}

/// Otherwise chance would affect several filters in the same way.
#[test]
fn no_two_filters_hash_a_key_alike() {
    let filters = Subject::ALL
        .into_iter()
        .flat_map(|subject| RATES.map(|rate| (subject, rate)));
    let hashes: HashSet<(u64, u64)> = filters
        .map(|(subject, rate)| {
            let key = subject.first_key(rate).to_le_bytes();
            let hash = subject.hasher(rate).hash(&key);
            (hash.low, hash.high)
        })
        .collect();
    assert_eq!(hashes.len(), Subject::ALL.len() * RATES.len());
}

#[test]
fn a_filter_that_has_more_keys_than_it_says_is_found() {
    assert!(Verdict::of(&[with_planted(1, false)]).is_good());
    let verdict = Verdict::of(&[with_planted(2, false)]).to_string();
    assert!(
        verdict.contains("classic at 100 %, 0.01 asked: "),
        "{verdict}"
    );
    assert!(verdict.contains("Farther outside"), "{verdict}");
    assert!(verdict.ends_with("FAILED."), "{verdict}");
}

/// A correct prediction can still be above the rate asked for.
#[test]
fn a_filter_above_the_rate_asked_for_is_found() {
    let series = with_planted(2, true);
    assert!(series.worst().unwrap() > 5.0);
    let verdict = Verdict::of(&[series]).to_string();
    assert!(
        verdict.starts_with("Above the rate asked for, where it is kept: 2 of 8 points."),
        "{verdict}"
    );
    assert!(!verdict.contains("Farther outside"), "{verdict}");
    assert!(verdict.ends_with("FAILED."), "{verdict}");
}

/// As many points outside as chance allows are not a failure. One more is.
#[test]
fn points_that_chance_leaves_outside_are_allowed() {
    let prediction = Prediction {
        rate: 0.005,
        interval: interval(100_000.0, 0.005),
    };
    let point = |found| Point {
        percent: 50,
        probes: 100_000,
        found,
        by_keys: prediction,
        by_fill: prediction,
    };
    let with_outside = |outside: usize| Series {
        subject: Subject::Blocked,
        asked: 0.01,
        points: (0..200)
            .map(|number| point(if number < outside { 580 } else { 500 }))
            .collect(),
        curve: Vec::new(),
    };
    assert_eq!(interval(200.0, 0.001), (0.0, 3.0));
    assert!(Verdict::of(&[with_outside(3)]).is_good());
    assert!(!Verdict::of(&[with_outside(4)]).is_good());
}

/// The quantiles of `scipy.stats.binom`.
const INTERVALS: [(f64, f64, (f64, f64)); 7] = [
    (1e3, 0.5, (448.0, 552.0)),
    (1e7, 0.1, (996_880.0, 1_003_123.0)),
    (1e7, 0.7, (6_995_231.0, 7_004_768.0)),
    (1e8, 9.6e-5, (9279.0, 9924.0)),
    (1e7, 3e-8, (0.0, 3.0)),
    (1e7, 0.0, (0.0, 0.0)),
    (200.0, 0.001, (0.0, 3.0)),
];

#[test]
fn intervals_are_those_of_the_binomial_distribution() {
    for (trials, probability, expected) in INTERVALS {
        assert_eq!(interval(trials, probability), expected);
    }
    let (low, high) = interval(1000.0, 0.5);
    let (lower, higher) = interval_at(1000.0, 0.5, 0.999_999);
    assert!(lower < low && high < higher);
}

/// Where a rate can come to be above the one asked for, there are enough probes to detect it.
#[test]
fn rates_near_the_one_asked_for_are_measured_closely() {
    let subject = Subject::Blocked;
    let mut filter = subject.filter(SMALL.capacity, 0.01).unwrap();
    let series = Series::measure(subject, 0.01, SMALL, filter.as_mut());
    let probes: Vec<u64> = series.points.iter().map(|point| point.probes).collect();
    let far = SMALL.probes;
    assert_eq!(probes[..6], [far; 6]);
    assert_eq!(probes[6..8], [1_000_000; 2]);
    assert!(series.points[7].found > 9000);
    assert!(probes[8] < 1_000_000 && probes[9] == far, "{probes:?}");
}
