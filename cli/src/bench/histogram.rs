//! Latencies in buckets that grow by a factor: bars as text, numbers as JSON.

use std::fmt::Write;

use hdrhistogram::Histogram;
use indicatif::HumanCount;
use serde_json::{Value, json};

use super::units::time;

/// The upper end of the first bucket, in nanoseconds: nothing over a network is faster.
const FIRST: u64 = 1000;
/// The factor from one bucket to the next, at the finest: the fourth root of 2.
const FINEST: f64 = 1.189_207_115_002_721;
/// The maximum number of bars, so that the whole result fits on a screen.
const BARS: usize = 11;
/// The length of the longest bar.
const BAR: u64 = 40;

/// The calls that took longer than the bucket before allows, and at most `up_to`.
struct Bucket {
    up_to: u64,
    calls: u64,
}

/// Returns the buckets from the fastest call to the slowest.
fn buckets(latencies: &Histogram<u64>, factor: f64) -> Vec<Bucket> {
    let all: Vec<_> = latencies
        .iter_log(FIRST, factor)
        .map(|step| Bucket {
            up_to: step.value_iterated_to() + 1,
            calls: step.count_since_last_iteration(),
        })
        .skip_while(|bucket| bucket.calls == 0)
        .collect();
    let used = all.iter().rposition(|bucket| bucket.calls > 0);
    let used = used.map_or(0, |last| last + 1);
    all.into_iter().take(used).collect()
}

/// Returns a bar for each bucket, with buckets as fine as fit.
pub(super) fn text(latencies: &Histogram<u64>) -> String {
    let mut factor = FINEST;
    let mut bars = buckets(latencies, factor);
    while bars.len() > BARS {
        factor *= factor;
        bars = buckets(latencies, factor);
    }
    let most = bars.iter().map(|bucket| bucket.calls).max().unwrap_or(1);
    let mut text = format!("{:>10}  {:>13}", "up to", "calls");
    for Bucket { up_to, calls } in bars {
        // A single call among millions must be visible.
        let bar = "#".repeat((calls.saturating_mul(BAR)).div_ceil(most) as usize);
        let row = format!(
            "\n{:>10}  {:>13}  {bar}",
            time(up_to),
            HumanCount(calls).to_string()
        );
        // Writing to a string does not fail.
        let _ = write!(text, "{}", row.trim_end());
    }
    text
}

/// Returns the buckets at the finest factor.
pub(super) fn json(latencies: &Histogram<u64>) -> Value {
    buckets(latencies, FINEST)
        .into_iter()
        .map(|Bucket { up_to, calls }| json!({"up_to_us": up_to as f64 / 1000.0, "calls": calls}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(calls: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_max(3600 * 1_000_000_000, 3).unwrap();
        for &(nanoseconds, calls) in calls {
            histogram.saturating_record_n(nanoseconds, calls);
        }
        histogram
    }

    #[test]
    fn every_call_is_in_the_bucket_of_its_latency() {
        for factor in [FINEST, 2.0, 16.0] {
            for latencies in [
                &[(1, 3)][..],
                &[(900, 1), (1_100, 2)],
                &[(250_000, 7), (400_000, 9), (2_000_000_000, 1)],
                &[(u64::MAX, 1)],
            ] {
                let buckets = buckets(&histogram(latencies), factor);
                let mut from = 0;
                for bucket in &buckets {
                    let within = |latency: u64| {
                        let latency = latency.min(3600 * 1_000_000_000);
                        (from..=bucket.up_to).contains(&latency)
                    };
                    let expected: u64 = latencies
                        .iter()
                        .filter(|(latency, _)| within(*latency))
                        .map(|(_, calls)| calls)
                        .sum();
                    assert_eq!(
                        bucket.calls, expected,
                        "{latencies:?} up to {}",
                        bucket.up_to
                    );
                    from = bucket.up_to + 1;
                }
                assert!(buckets.first().unwrap().calls > 0);
                assert!(buckets.last().unwrap().calls > 0);
            }
        }
        assert!(buckets(&histogram(&[]), FINEST).is_empty());
    }

    #[test]
    fn bars_are_as_long_as_their_share_and_fit_a_screen() {
        let narrow = text(&histogram(&[(1_100, 2_000), (1_300, 1_000), (1_600, 1)]));
        let expected = "     up to          calls
   1.19 us          2,000  ########################################
   1.41 us          1,000  ####################
   1.68 us              1  #";
        assert_eq!(narrow, expected);

        let wide: Vec<_> = (0..42).map(|bit| (1 << bit, 5)).collect();
        let wide = text(&histogram(&wide));
        assert!(wide.lines().count() <= BARS + 1, "{wide}");
        assert_eq!(text(&histogram(&[])), "     up to          calls");
    }
}
