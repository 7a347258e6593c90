//! The measurements in tables.

use std::fmt;

use crate::{
    series::{Point, Prediction, Series},
    subject::Subject,
};

/// The text for filters with sizes of other programs.
const NOT_PROMISED: &str = "not promised";

/// The table of all points.
pub struct Points<'a>(pub &'a [Series]);

/// The table with a row for each kind.
pub struct Summary<'a>(pub &'a [Series]);

impl fmt::Display for Points<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| filter | p | fill | probes | found | measured | by keys | 99.9 % of chance | inside \
             | by fill | 99.9 % of chance | inside | at most p |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for series in self.0 {
            for point in &series.points {
                row(f, series, point)?;
            }
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, series: &Series, point: &Point) -> fmt::Result {
    let Point {
        percent,
        probes,
        found,
        ..
    } = *point;
    let (name, asked, measured) = (series.subject.name(), series.asked, point.measured());
    write!(
        f,
        "| {name} | {asked} | {percent} % | {probes:.1e} | {found} | {measured:.3e} |"
    )?;
    for prediction in [&point.by_keys, &point.by_fill] {
        let Prediction {
            rate,
            interval: (low, high),
        } = *prediction;
        let inside = yes(prediction.allows(found));
        write!(f, " {rate:.3e} | {low} to {high} | {inside} |")?;
    }
    let kept = match series.keeps_rate_at(point) {
        true => yes(measured <= asked),
        false if series.subject.keeps_rate() => "past capacity",
        false => NOT_PROMISED,
    };
    writeln!(f, " {kept} |")
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "NO" }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates: Vec<String> = (self.0.iter())
            .filter(|series| series.subject == Subject::Blocked)
            .map(|series| format!(" p = {} |", series.asked))
            .collect();
        writeln!(
            f,
            "| filter |{} at | inside by keys | by fill |",
            rates.concat()
        )?;
        writeln!(f, "|---|{}---|---|---|", "---|".repeat(rates.len()))?;
        for subject in Subject::ALL {
            let own = || {
                self.0
                    .iter()
                    .filter(move |series| series.subject == subject)
            };
            let points = || own().flat_map(|series| &series.points);
            write!(f, "| {} |", subject.name())?;
            for series in own() {
                match series.worst() {
                    Some(worst) => write!(f, " {worst:.3} |")?,
                    None => write!(f, " |")?,
                }
            }
            let inside = |prediction: fn(&Point) -> &Prediction| {
                points()
                    .filter(|point| prediction(point).allows(point.found))
                    .count()
            };
            let all = points().count();
            let by_keys = inside(|point| &point.by_keys);
            let by_fill = inside(|point| &point.by_fill);
            write!(f, " up to {} %", subject.full_percent())?;
            if !subject.keeps_rate() {
                write!(f, ", {NOT_PROMISED}")?;
            }
            writeln!(f, " | {by_keys} of {all} | {by_fill} of {all} |")?;
        }
        Ok(())
    }
}
