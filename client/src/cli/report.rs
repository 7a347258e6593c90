//! What a run over files tells about itself: bad lines, progress, and the summary.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{
    lines::{Observer, Position},
    output::note,
};

/// How many bad lines are named; the others are counted.
const BAD_LINES_NAMED: u64 = 10;

/// Counts the lines of a run. Shared by the threads of the run.
#[derive(Debug)]
pub(super) struct Report {
    started: Instant,
    bar: ProgressBar,
    new: AtomicU64,
    seen: AtomicU64,
    empty: AtomicU64,
    bad: AtomicU64,
}

impl Report {
    /// Starts the clock. Progress is shown on standard error if that is a terminal and
    /// `quiet` does not forbid it.
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            started: Instant::now(),
            bar: if quiet {
                ProgressBar::hidden()
            } else {
                ProgressBar::no_length()
            },
            new: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            empty: AtomicU64::new(0),
            bad: AtomicU64::new(0),
        }
    }

    /// Shows progress towards `total` bytes, if so many are known to come.
    pub(super) fn start(&self, total: Option<u64>) {
        if self.bar.is_hidden() {
            return;
        }
        let template = match total {
            Some(total) => {
                self.bar.set_length(total);
                "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg} ETA {eta}"
            }
            None => "{spinner} {bytes} {bytes_per_sec} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// So many bytes of the files were read. The answers to them are not far behind.
    pub(super) fn read(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// A batch was answered.
    pub(super) fn answered(&self, new: u64, seen: u64) {
        let new = self.new.fetch_add(new, Relaxed) + new;
        let seen = self.seen.fetch_add(seen, Relaxed) + seen;
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{new} new, {seen} seen"));
        }
    }

    /// Removes the progress bar and stops the clock.
    pub(super) fn finish(&self) -> Summary {
        self.bar.finish_and_clear();
        let bad = self.bad.load(Relaxed);
        if bad > BAD_LINES_NAMED {
            note(&format!("… and {} more bad lines", bad - BAD_LINES_NAMED));
        }
        Summary {
            new: self.new.load(Relaxed),
            seen: self.seen.load(Relaxed),
            empty: self.empty.load(Relaxed),
            bad,
            elapsed: self.started.elapsed(),
        }
    }
}

impl Observer for Report {
    fn empty(&self) {
        self.empty.fetch_add(1, Relaxed);
    }

    fn bad(&self, position: &Position, reason: &str) {
        if self.bad.fetch_add(1, Relaxed) < BAD_LINES_NAMED {
            self.bar
                .suspend(|| note(&format!("{position}: {reason}; left out")));
        }
    }
}

/// The numbers of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    /// Lines never seen before.
    pub(super) new: u64,
    /// Lines seen before.
    pub(super) seen: u64,
    /// Lines without content.
    pub(super) empty: u64,
    /// Lines that can't be keys.
    pub(super) bad: u64,
    /// How long the run took.
    pub(super) elapsed: Duration,
}

impl Summary {
    fn lines(&self) -> u64 {
        self.new + self.seen + self.empty + self.bad
    }

    fn lines_per_second(&self) -> f64 {
        self.lines() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The summary of `dedup`.
    pub(super) fn dedup_text(&self) -> String {
        format!(
            "{} lines: {} new, {} seen, {}",
            self.lines(),
            self.new,
            self.seen,
            self.rest()
        )
    }

    /// The summary of `dedup`.
    pub(super) fn dedup_json(&self) -> Value {
        json!({
            "lines": self.lines(),
            "new": self.new,
            "seen": self.seen,
            "empty": self.empty,
            "bad": self.bad,
            "seconds": self.elapsed.as_secs_f64(),
            "lines_per_second": self.lines_per_second(),
        })
    }

    /// The summary of `load`, which does not learn what was new.
    pub(super) fn load_text(&self) -> String {
        format!(
            "{} lines: {} added, {}",
            self.lines(),
            self.new,
            self.rest()
        )
    }

    /// The summary of `load`.
    pub(super) fn load_json(&self) -> Value {
        json!({
            "lines": self.lines(),
            "added": self.new,
            "empty": self.empty,
            "bad": self.bad,
            "seconds": self.elapsed.as_secs_f64(),
            "lines_per_second": self.lines_per_second(),
        })
    }

    fn rest(&self) -> String {
        format!(
            "{} empty, {} bad; {:.3} seconds, {:.0} lines per second",
            self.empty,
            self.bad,
            self.elapsed.as_secs_f64(),
            self.lines_per_second()
        )
    }
}
