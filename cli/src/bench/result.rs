//! The result of a load, as text and as JSON.

use serde_json::{Value, json};

use super::{
    histogram,
    target::Target,
    units::{count, rate, time},
};
use seenset_client::CapacityWarning;
use seenset_load::{Calls, Load, Outcome};

use crate::{args::Bench, report::warning_json};

/// The latencies that are shown: quantile, name in the text, name in JSON.
const QUANTILES: [(f64, &str, &str); 4] = [
    (0.5, "p50", "latency_p50_us"),
    (0.9, "p90", "latency_p90_us"),
    (0.99, "p99", "latency_p99_us"),
    (0.999, "p99.9", "latency_p999_us"),
];

/// The result of a load.
pub(super) struct Measured<'a> {
    pub(super) args: &'a Bench,
    pub(super) load: Load,
    pub(super) target: &'a Target,
    /// The number of new keys of the warm-up. They count only for the capacity.
    pub(super) warmup_keys: u64,
    pub(super) outcome: &'a Outcome,
    /// The warning about the filter, if it is nearly at its capacity, or past it.
    pub(super) warning: Option<CapacityWarning>,
}

impl Measured<'_> {
    /// Returns the result as text that fits on one screen.
    pub(super) fn text(&self) -> String {
        let outcome = self.outcome;
        let latency = &outcome.latencies;
        let quantiles = QUANTILES.map(|(quantile, name, _)| {
            format!("{name} {}", time(latency.value_at_quantile(quantile)))
        });
        format!(
            "{}\n{}\n\n\
             {:>15} keys/s   {} keys in {:.2} s\n{:>15} calls/s  {} calls\n\n{}\n\n\
             latency of a {}: min {}, {}, max {}\n\n{}",
            self.heading(),
            self.target.text(),
            rate(outcome.per_second(outcome.keys())),
            count(outcome.keys()),
            outcome.elapsed.as_secs_f64(),
            rate(outcome.per_second(outcome.calls())),
            count(outcome.calls()),
            self.answers(),
            match self.load.calls {
                Calls::Stream { .. } => "batch",
                _ => "call",
            },
            time(latency.min()),
            quantiles.join(", "),
            time(latency.max()),
            histogram::text(latency),
        )
    }

    fn heading(&self) -> String {
        let keys = |keys: usize| {
            let keys = count(keys as u64);
            format!("batches of {keys} keys of {} bytes", self.args.key_bytes)
        };
        let single = |how: &str| format!("{how} of one key of {} bytes", self.args.key_bytes);
        let what = match self.load.calls {
            Calls::Stream { keys: n, window } => format!(
                "stream: {}, {window} in flight; streams: {}",
                keys(n),
                self.load.callers
            ),
            Calls::Batch { keys: n } => {
                format!("batch: {}; callers: {}", keys(n), self.load.callers)
            }
            Calls::Single => format!(
                "{}; callers: {}",
                single("single: calls"),
                self.load.callers
            ),
            Calls::Coalesced => format!(
                "{}, sent together; callers: {}",
                single("coalesced: calls"),
                self.load.callers
            ),
        };
        format!("{what}, connections: {}", self.load.connections)
    }

    /// Returns the text about the correctness of the answers.
    fn answers(&self) -> String {
        let outcome = self.outcome;
        let mut lines = Vec::new();
        if outcome.new_keys > 0 {
            lines.push(format!(
                "false positives: {} of {} new keys ({})",
                count(outcome.false_positives),
                count(outcome.new_keys),
                share(outcome.false_positives, outcome.new_keys),
            ));
        }
        if outcome.seen_keys > 0 {
            lines.push(format!(
                "forgotten: {} of {} keys that were answered before",
                count(outcome.forgotten),
                count(outcome.seen_keys)
            ));
        }
        if lines.is_empty() {
            lines.push("nothing was answered".to_owned());
        }
        lines.extend(
            self.warning
                .iter()
                .map(|warning| format!("warning: {warning}")),
        );
        lines.join("\n")
    }

    /// Returns all figures as one JSON object.
    pub(super) fn json(&self) -> Value {
        let outcome = self.outcome;
        let latency = &outcome.latencies;
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let mut all = json!({
            "mode": match self.load.calls {
                Calls::Stream { .. } => "stream",
                Calls::Batch { .. } => "batch",
                Calls::Single => "single",
                Calls::Coalesced => "coalesced",
            },
            "filter": self.target.name(),
            "connections": self.load.connections,
            "callers": self.load.callers,
            "key_bytes": self.args.key_bytes,
            "seen_share": self.args.seen,
            "seconds": outcome.elapsed.as_secs_f64(),
            "keys": outcome.keys(),
            "keys_per_second": outcome.per_second(outcome.keys()),
            "calls": outcome.calls(),
            "calls_per_second": outcome.per_second(outcome.calls()),
            "warmup_keys": self.warmup_keys,
            "new_keys": outcome.new_keys,
            "false_positives": outcome.false_positives,
            "seen_keys": outcome.seen_keys,
            "forgotten": outcome.forgotten,
            "latency_min_us": us(latency.min()),
            "latency_max_us": us(latency.max()),
            "latency_mean_us": latency.mean() / 1000.0,
            "latency_histogram": histogram::json(latency),
        });
        if let Some(all) = all.as_object_mut() {
            if let Some(warning) = &self.warning {
                all.insert(
                    "capacity_warnings".to_owned(),
                    vec![warning_json(warning)].into(),
                );
            }
            for (quantile, _, name) in QUANTILES {
                all.insert(
                    name.to_owned(),
                    us(latency.value_at_quantile(quantile)).into(),
                );
            }
            if let Calls::Stream { keys, .. } | Calls::Batch { keys } = self.load.calls {
                all.insert("batch_keys".to_owned(), keys.into());
            }
            if let Calls::Stream { window, .. } = self.load.calls {
                all.insert("window".to_owned(), window.into());
            }
        }
        all
    }
}

fn share(part: u64, whole: u64) -> String {
    match part {
        0 => "0".to_owned(),
        _ => format!("{:.2e}", part as f64 / whole as f64),
    }
}
