//! The line on standard error while a load runs.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::units::{rate, time};
use seenset_load::Outcome;

/// The time span of the shown rate. With a shorter one the rate would jump.
const INTERVAL: Duration = Duration::from_millis(500);

/// A line with the progress of the run, the rate of the last interval and the latency so far. It is
/// hidden if standard error is no terminal.
pub(super) struct ProgressLine {
    bar: ProgressBar,
    total: Duration,
    keys: u64,
    since: Instant,
}

impl ProgressLine {
    /// Creates the line for a run that takes `total`. `name` is the name of the phase.
    pub(super) fn new(name: &'static str, total: Duration) -> Self {
        let milliseconds = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::new(milliseconds).with_prefix(name);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:20} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            total,
            keys: 0,
            since: Instant::now(),
        }
    }

    /// Shows the outcome so far.
    pub(super) fn show(&mut self, outcome: &Outcome) {
        let interval = self.since.elapsed();
        if self.bar.is_hidden() || interval < INTERVAL {
            return;
        }
        let elapsed = outcome.elapsed.min(self.total);
        let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let keys = outcome.keys().saturating_sub(self.keys);
        (self.keys, self.since) = (outcome.keys(), Instant::now());
        self.bar.set_position(milliseconds);
        self.bar.set_message(format!(
            "{:.1} of {:.1} s, {} keys/s, p99 {}",
            elapsed.as_secs_f64(),
            self.total.as_secs_f64(),
            rate(keys as f64 / interval.as_secs_f64()),
            time(outcome.latencies.value_at_quantile(0.99)),
        ));
    }
}

/// Removes the line when the run ends.
impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
