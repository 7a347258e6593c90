//! The line on standard error while a load runs.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::units::{rate, time};
use crate::load::Outcome;

/// How much time the shown rate is of: less would jump.
const INTERVAL: Duration = Duration::from_millis(500);

/// A line with how far the run is, the rate of the last interval and the latency so far.
/// Nothing, if standard error is no terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    total: Duration,
    keys: u64,
    since: Instant,
}

impl Progress {
    /// Of a run that takes `total`; `name` says which.
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

    /// Shows what has come of it so far.
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

/// The line goes when the run does.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
