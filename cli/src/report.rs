//! The report of a run over files: bad lines, progress, and the summary.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{
    lines::{Observer, Position},
    notes::note,
    output::OutputFormat,
};
use seenset_client::{CapacityWarning, Client};

/// The number of bad lines that are named. The others are counted.
const BAD_LINES_NAMED: u64 = 10;

/// The kind of the run, which decides the words for its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dedup,
    /// This run does not learn which lines were new.
    Load,
    Match,
}

impl Kind {
    /// Returns the names of the lines with the one answer and of the lines with the other answer.
    fn answers(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Dedup => ("new", Some("seen")),
            Self::Load => ("added", None),
            Self::Match => ("matching", Some("other")),
        }
    }
}

/// Counts the lines of a run. Shared by the threads of the run.
#[derive(Debug)]
pub(super) struct Report {
    kind: Kind,
    started: Instant,
    bar: ProgressBar,
    one: AtomicU64,
    other: AtomicU64,
    empty: AtomicU64,
    bad: AtomicU64,
    long_words: AtomicU64,
}

impl Report {
    /// Starts the clock. Progress is shown on standard error if that is a terminal and `quiet` is
    /// false.
    pub(super) fn new(kind: Kind, quiet: bool) -> Self {
        Self {
            kind,
            started: Instant::now(),
            bar: if quiet {
                ProgressBar::hidden()
            } else {
                ProgressBar::no_length()
            },
            one: AtomicU64::new(0),
            other: AtomicU64::new(0),
            empty: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            long_words: AtomicU64::new(0),
        }
    }

    /// Shows progress towards `total` bytes, if that number is known.
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

    /// Adds to the number of bytes read. The answers follow soon.
    pub(super) fn read(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// Adds to the numbers of lines with the one answer and with the other answer.
    pub(super) fn answered(&self, one: usize, other: usize) {
        self.one.fetch_add(one as u64, Relaxed);
        self.other.fetch_add(other as u64, Relaxed);
        if !self.bar.is_hidden() {
            let counts = self.summary().answers();
            let counts = counts.map(|(name, count)| format!("{count} {name}"));
            self.bar.set_message(counts.collect::<Vec<_>>().join(", "));
        }
    }

    /// Adds to the number of words that were too long to be queried.
    pub(super) fn long_words(&self, count: u64) {
        self.long_words.fetch_add(count, Relaxed);
    }

    /// Removes the progress bar and stops the clock. The summary contains the warnings that the
    /// client received.
    pub(super) fn finish(&self, client: &Client) -> Summary {
        self.bar.finish_and_clear();
        let summary = Summary {
            warnings: client.capacity_warnings(),
            ..self.summary()
        };
        if summary.bad > BAD_LINES_NAMED {
            let more = summary.bad - BAD_LINES_NAMED;
            note(&format!("… and {more} more bad lines"));
        }
        summary
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: self.kind,
            one: self.one.load(Relaxed),
            other: self.other.load(Relaxed),
            empty: self.empty.load(Relaxed),
            bad: self.bad.load(Relaxed),
            long_words: self.long_words.load(Relaxed),
            elapsed: self.started.elapsed(),
            warnings: Vec::new(),
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
#[derive(Debug, Clone)]
pub(super) struct Summary {
    kind: Kind,
    /// The number of lines with the one answer.
    pub(super) one: u64,
    /// The number of lines with the other answer.
    pub(super) other: u64,
    /// The number of lines without content, if these are left out.
    empty: u64,
    /// The number of lines that cannot be keys.
    pub(super) bad: u64,
    /// The number of words that cannot be keys.
    long_words: u64,
    /// The duration of the run.
    elapsed: Duration,
    /// The filters that are nearly at their capacity, or past it.
    warnings: Vec<CapacityWarning>,
}

impl Summary {
    /// Writes the summary to standard error.
    pub(super) fn note(&self, format: OutputFormat) {
        match format {
            OutputFormat::Text => note(&self.text()),
            OutputFormat::Json => note(&self.json().to_string()),
        }
    }

    pub(super) fn text(&self) -> String {
        let counts: Vec<_> = self
            .counts()
            .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
            .collect();
        let mut text = format!(
            "{} lines: {}; {:.3} seconds, {:.0} lines per second",
            self.lines(),
            counts.join(", "),
            self.elapsed.as_secs_f64(),
            self.lines_per_second()
        );
        for warning in &self.warnings {
            text += &format!("\nwarning: {warning}");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let mut json = json!({
            "lines": self.lines(),
            "seconds": self.elapsed.as_secs_f64(),
            "lines_per_second": self.lines_per_second(),
        });
        if let Value::Object(fields) = &mut json {
            fields.extend(
                self.counts()
                    .map(|(name, count)| (name.into(), count.into())),
            );
            if !self.warnings.is_empty() {
                let warnings = self.warnings.iter().map(warning_json).collect();
                fields.insert("capacity_warnings".to_owned(), warnings);
            }
        }
        json
    }

    fn lines(&self) -> u64 {
        self.one + self.other + self.empty + self.bad
    }

    fn lines_per_second(&self) -> f64 {
        self.lines() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let (one, other) = self.kind.answers();
        let other = other.map(|other| (other, self.other));
        [(one, self.one)].into_iter().chain(other)
    }

    fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let rest = match self.kind {
            Kind::Dedup | Kind::Load => [("empty", self.empty), ("bad", self.bad)],
            Kind::Match => [("bad", self.bad), ("long_words", self.long_words)],
        };
        self.answers().chain(rest)
    }
}

/// Returns a warning as a JSON object.
pub(super) fn warning_json(warning: &CapacityWarning) -> Value {
    json!({
        "filter": warning.filter,
        "keys": warning.keys,
        "capacity": warning.capacity,
        "false_positive_rate": warning.false_positive_rate,
        "predicted_false_positive_rate": warning.predicted_false_positive_rate,
    })
}
