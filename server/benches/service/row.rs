//! The results of the turns of each contender.

use std::time::Duration;

use seenset_load::Outcome;

/// The quantiles of the printed latencies.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The results of all turns of a contender in a scenario.
pub struct Row {
    pub name: &'static str,
    pub keys_per_second: Vec<f64>,
    /// The latencies in microseconds, at each of [`QUANTILES`].
    latencies: [Vec<f64>; QUANTILES.len()],
    keys: u64,
    cpu_time: Duration,
}

impl Row {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            keys_per_second: Vec::new(),
            latencies: Default::default(),
            keys: 0,
            cpu_time: Duration::ZERO,
        }
    }

    pub fn add(&mut self, (outcome, cpu_time): (Outcome, Duration)) {
        self.keys_per_second
            .push(outcome.per_second(outcome.keys()));
        self.keys += outcome.keys();
        for (latencies, quantile) in self.latencies.iter_mut().zip(QUANTILES) {
            let nanoseconds = outcome.latencies.value_at_quantile(quantile);
            latencies.push(nanoseconds as f64 / 1000.0);
        }
        self.cpu_time += cpu_time;
    }
}

/// Prints the medians of the turns, and of their ratios to the first row. The CPU time is that of
/// all turns.
pub fn print(name: &str, rows: &[Row]) {
    println!(
        "\n{name:18} {:>12} {:>8} {:>8} {:>8} {:>10}   {:22} p99 ratio",
        "keys/s", "p50 us", "p99", "p99.9", "CPU ns/key", "ratio (10 %, 90 %)"
    );
    let ratio = |own: &[f64], first: &[f64]| {
        let ratios = own.iter().zip(first).map(|(own, first)| own / first);
        let [low, median, high] = quantiles(&ratios.collect::<Vec<_>>());
        format!("{median:.2} ({low:.2}, {high:.2})")
    };
    let median = |values: &[f64]| quantiles(values)[1];
    for row in rows {
        let [p50, p99, p999] = &row.latencies;
        println!(
            "  {:16} {:>12.0} {:>8.0} {:>8.0} {:>8.0} {:>10.1}   {:22} {}",
            row.name,
            median(&row.keys_per_second),
            median(p50),
            median(p99),
            median(p999),
            row.cpu_time.as_nanos() as f64 / row.keys as f64,
            ratio(&row.keys_per_second, &rows[0].keys_per_second),
            ratio(p99, &rows[0].latencies[1]),
        );
    }
}

/// Returns the values at 10 %, 50 % and 90 %.
pub fn quantiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [10, 50, 90].map(|percent| sorted[(sorted.len() - 1) * percent / 100])
}
