//! The result of an attack, as a row of a table.

use std::fmt;

use crate::{attacks::Attack, polite::Latencies, server::CLIENT_MEMORY_BYTES};

/// The head of the table.
pub const HEAD: &str = "| attack | p50, p99 before, ms | during | after | errors | memory before, \
                        during, after, most, MiB | |\n|---|---|---|---|---|---|---|";

/// The highest accepted latency of the other client during an attack, at 99 %. The real latency is
/// far lower, but other programs may use the cores now and then.
const MOST_LATENCY_MS: f64 = 500.0;

/// The memory that an attack can take in addition to the limit: copies, and bytes that arrive
/// before the server notices them.
const SLACK_BYTES: u64 = 96 << 20;

/// The measures of one attack.
pub struct Report {
    pub attack: &'static Attack,
    pub before: Latencies,
    pub during: Latencies,
    pub after: Latencies,
    pub idle_bytes: u64,
    pub held_bytes: u64,
    pub left_bytes: u64,
    pub peak_bytes: u64,
    pub is_alive: bool,
    /// The attack's own description of its result.
    pub outcome: String,
}

fn milliseconds(latencies: &Latencies, part: f64) -> f64 {
    latencies.quantile(part).as_secs_f64() * 1e3
}

impl Report {
    /// Returns the results that exceed the accepted values.
    pub fn harm(&self) -> Vec<String> {
        let name = self.attack.name;
        let mut harm = Vec::new();
        if !self.is_alive {
            harm.push(format!("{name}: the server is dead"));
        }
        for (when, latencies) in [("during", &self.during), ("after", &self.after)] {
            if latencies.errors > 0 {
                let last = latencies.last_error.as_deref().unwrap_or_default();
                harm.push(format!(
                    "{name}: {} errors {when}: {last}",
                    latencies.errors
                ));
            }
            let late = milliseconds(latencies, 0.99);
            if late > MOST_LATENCY_MS {
                harm.push(format!("{name}: p99 {when} is {late:.0} ms"));
            }
        }
        let most = self.idle_bytes + CLIENT_MEMORY_BYTES + SLACK_BYTES + self.attack.engine_bytes;
        if self.peak_bytes > most {
            let [peak, most] = [self.peak_bytes, most].map(|bytes| bytes >> 20);
            harm.push(format!("{name}: {peak} MiB of memory, more than {most}"));
        }
        harm
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |", self.attack.name)?;
        for latencies in [&self.before, &self.during, &self.after] {
            let [half, most] = [0.5, 0.99].map(|part| milliseconds(latencies, part));
            write!(f, " {half:.2}, {most:.1} |")?;
        }
        let bytes = [
            self.idle_bytes,
            self.held_bytes,
            self.left_bytes,
            self.peak_bytes,
        ];
        let [idle, held, left, peak] = bytes.map(|bytes| bytes >> 20);
        let dead = if self.is_alive { "" } else { "**dead** " };
        let error = [&self.during, &self.after].map(|latencies| latencies.last_error.as_deref());
        let [during, after] = error.map(Option::unwrap_or_default);
        write!(
            f,
            " {} {during}{after} | {idle}, {held}, {left}, {peak} | {dead}{} |",
            self.during.errors + self.after.errors,
            self.outcome
        )
    }
}
