//! Checks the measurements against the promises.
//!
//! By chance a point lies outside a 99.9 % interval once in a thousand times, and there are
//! hundreds of points. So the points outside are counted. Less than one is expected. As many are
//! allowed as chance leaves with a probability of 99.9 %. No point may lie so far outside that,
//! with the same probability, no point of all would by chance. The rate asked for is checked
//! separately: where it is promised, no point may lie above it.

use std::fmt;

use crate::{
    interval::{interval, interval_at},
    series::{Point, Prediction, Series},
};

/// The probability below which a result is not explained by chance.
const TAIL: f64 = 0.001;

pub struct Verdict {
    points: usize,
    /// The points at which the rate asked for is promised.
    kept: usize,
    /// The points among them that are above it.
    above: Vec<String>,
    by_keys: Agreement,
    by_fill: Agreement,
}

/// The agreement of a prediction with the measurements.
struct Agreement {
    from: &'static str,
    outside: Vec<String>,
    /// The points outside that chance does not explain.
    far: Vec<String>,
    allowed: f64,
}

impl Verdict {
    pub fn of<'a>(all: &'a [Series]) -> Self {
        let points = || {
            let points =
                |series: &'a Series| series.points.iter().map(move |point| (series, point));
            all.iter().flat_map(points)
        };
        let is_kept = |(series, point): &(&Series, &Point)| series.keeps_rate_at(point);
        let is_above = |(series, point): &(&Series, &Point)| point.measured() > series.asked;
        Self {
            points: points().count(),
            kept: points().filter(is_kept).count(),
            above: points()
                .filter(is_kept)
                .filter(is_above)
                .map(|(series, point)| describe(series, point))
                .collect(),
            by_keys: Agreement::of("keys", points(), |point| point.by_keys),
            by_fill: Agreement::of("fill", points(), |point| point.by_fill),
        }
    }

    pub fn is_good(&self) -> bool {
        self.above.is_empty() && self.by_keys.is_good() && self.by_fill.is_good()
    }
}

impl Agreement {
    fn of<'a>(
        from: &'static str,
        points: impl Iterator<Item = (&'a Series, &'a Point)> + Clone,
        prediction: impl Fn(&Point) -> Prediction,
    ) -> Self {
        let count = points.clone().count() as f64;
        let (_, allowed) = interval(count, TAIL);
        let outside = points.filter(|(_, point)| !prediction(point).allows(point.found));
        let is_far = |(_, point): &(&Series, &Point)| {
            let rate = prediction(point).rate;
            let (low, high) = interval_at(point.probes as f64, rate, 1.0 - TAIL / count);
            !(low..=high).contains(&(point.found as f64))
        };
        let describe = |(series, point)| describe(series, point);
        Self {
            from,
            outside: outside.clone().map(describe).collect(),
            far: outside.filter(is_far).map(describe).collect(),
            allowed,
        }
    }

    fn is_good(&self) -> bool {
        self.far.is_empty() && self.outside.len() as f64 <= self.allowed
    }
}

fn describe(series: &Series, point: &Point) -> String {
    format!(
        "{} at {} %, {} asked: {} of {}",
        series.subject.name(),
        point.percent,
        series.asked,
        point.found,
        point.probes,
    )
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (above, kept) = (self.above.len(), self.kept);
        writeln!(
            f,
            "Above the rate asked for, where it is kept: {above} of {kept} points."
        )?;
        list(f, &self.above)?;
        for agreement in [&self.by_keys, &self.by_fill] {
            let (outside, from) = (agreement.outside.len(), agreement.from);
            writeln!(
                f,
                "Outside the 99.9 % interval of the rate predicted by {from}: {outside} of {} \
                 points; {:.2} are expected by chance, and {} allowed.",
                self.points,
                self.points as f64 * TAIL,
                agreement.allowed,
            )?;
            list(f, &agreement.outside)?;
            if !agreement.far.is_empty() {
                writeln!(f, "Farther outside than any by chance:")?;
                list(f, &agreement.far)?;
            }
        }
        write!(
            f,
            "{}",
            if self.is_good() {
                "All is as it should be."
            } else {
                "FAILED."
            }
        )
    }
}

fn list(f: &mut fmt::Formatter<'_>, points: &[String]) -> fmt::Result {
    points.iter().try_for_each(|point| writeln!(f, "- {point}"))
}
