//! The outcome of a load.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::numbers::Batch;

/// The longest latency that is recorded, an hour, in nanoseconds.
const LONGEST: u64 = 3600 * 1_000_000_000;

/// The outcome of a load.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The number of keys that were asked for the first time.
    pub new_keys: u64,
    /// The number of new keys that the server reported as seen.
    pub false_positives: u64,
    /// The number of keys that were asked again.
    pub seen_keys: u64,
    /// The number of repeated keys that the server reported as not seen. More than 0 is a fault of
    /// the server.
    pub forgotten: u64,
    /// The time from the first call to the last answer.
    pub elapsed: Duration,
    /// The latency of each call, or of each batch of a stream, until its whole answer had come, in
    /// nanoseconds.
    pub latencies: Histogram<u64>,
}

impl Outcome {
    /// Creates the outcome of a load that has not begun.
    pub(super) fn new() -> Self {
        Self {
            new_keys: 0,
            false_positives: 0,
            seen_keys: 0,
            forgotten: 0,
            elapsed: Duration::ZERO,
            latencies: Histogram::new_with_max(LONGEST, 3).expect("fixed, and within the bounds"),
        }
    }

    /// Returns the number of keys that were answered.
    pub fn keys(&self) -> u64 {
        self.new_keys + self.seen_keys
    }

    /// Returns the number of calls, or of batches of streams, that were answered.
    pub fn calls(&self) -> u64 {
        self.latencies.len()
    }

    /// Returns `count` divided by the elapsed time in seconds.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Counts the answers to a batch, a byte for each key.
    pub(super) fn count(&mut self, batch: Batch, latency: Duration, answers: &[u8]) {
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(latency);
        let keys = answers.len() as u64;
        let seen = answers
            .iter()
            .map(|&seen| u64::from(seen != 0))
            .sum::<u64>();
        if batch.seen {
            self.seen_keys += keys;
            self.forgotten += keys - seen;
        } else {
            self.new_keys += keys;
            self.false_positives += seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_told_apart() {
        let mut outcome = Outcome::new();
        let new = Batch {
            first: 0,
            seen: false,
        };
        let seen = Batch { seen: true, ..new };
        outcome.count(new, Duration::from_micros(5), &[0, 1, 0, 0]);
        outcome.count(seen, Duration::from_secs(100_000), &[1, 0, 0]);
        assert_eq!((outcome.new_keys, outcome.false_positives), (4, 1));
        assert_eq!((outcome.seen_keys, outcome.forgotten), (3, 2));
        assert_eq!((outcome.keys(), outcome.calls()), (7, 2));
        assert!(outcome.latencies.max() >= LONGEST);
    }
}
