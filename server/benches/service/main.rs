//! What the service costs beside moving the bytes:
//! `cargo bench -p seenset-server --bench service [-- SCENARIO...]`.
//!
//! The real server against a tonic server that decodes the same messages the ordinary way and
//! answers without a look at them. Keys of 60 bytes, a filter of 1 GiB; the servers on one core,
//! the client on another. They are loaded in turns of a second, so that what the machine does
//! besides falls on both alike; what counts is the ratios within one run.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

mod echo;
mod messages;
mod process;

use std::{env, ops::ControlFlow, thread, time::Duration};

use seenset_client::{
    Options,
    load::{Calls, Generator, Load, Outcome},
};
use tokio::runtime::Runtime;

use self::process::Process;

const FILTER_MIB: u64 = 1024;
const ROUNDS: usize = 11;
/// How long each turn takes.
const TURN: Duration = Duration::from_secs(1);
/// No snapshot takes as long.
const STORE_TIMEOUT: Duration = Duration::from_secs(100);
/// The batches of a stream that are under way at once.
const WINDOW: usize = 16;
/// The length of every key.
const KEY_BYTES: usize = 60;
/// Which latencies are told.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// Those never asked for before.
    New,
    /// Those asked for before, again and again.
    Seen,
}

/// Each with the words that choose it, separated by a space.
const SCENARIOS: [(&str, Load, Keys); 11] = {
    use Keys::*;
    const fn load(calls: Calls, connections: usize, callers: usize) -> Load {
        Load {
            calls,
            connections,
            callers,
        }
    }
    const fn stream(keys: usize) -> Load {
        let window = WINDOW;
        load(Calls::Stream { keys, window }, 1, 1)
    }
    const fn single(connections: usize, callers: usize) -> Load {
        load(Calls::Single, connections, callers)
    }
    const BATCH: Load = load(Calls::Batch { keys: 1000 }, 1, WINDOW);
    const COALESCED: Load = load(Calls::Coalesced, 1, 512);
    [
        ("stream 1000 new", stream(1000), New),
        ("stream 1000 seen", stream(1000), Seen),
        ("stream 100 new", stream(100), New),
        ("stream 10000 new", stream(10_000), New),
        ("batch 1000 new", BATCH, New),
        ("single 1 new", single(1, 1), New),
        ("single 50 new", single(50, 50), New),
        ("single 4x100 new", single(4, 400), New),
        ("single 512 new", single(4, 512), New),
        ("single 50 seen", single(50, 50), Seen),
        ("coalesced 512 new", COALESCED, New),
    ]
};

fn main() {
    if env::args().any(|argument| argument == "--echo") {
        echo::serve().unwrap();
        return;
    }
    process::pin_client();
    let arguments: Vec<String> = env::args().skip(1).filter(|a| a != "--bench").collect();
    let dir = tempfile::tempdir().unwrap();
    let mut contenders = [
        Contender::new("echo", Process::echo()),
        Contender::new("seenset", Process::seenset(dir.path(), FILTER_MIB)),
    ];
    // All memory touched, as that of a server at work is, and keys to ask for again.
    for contender in &mut contenders {
        contender.turn(SCENARIOS[0].1, Keys::New, 3 * TURN);
    }
    let chosen = |name: &str| {
        arguments.is_empty() || arguments.iter().any(|argument| name.contains(argument))
    };
    for (name, load, keys) in SCENARIOS {
        if chosen(name) {
            run(name, load, keys, &mut contenders);
        }
    }
    let [_, seenset] = &mut contenders;
    if chosen("store") {
        store(seenset);
    }
}

/// A server, and the client that loads it.
struct Contender {
    name: &'static str,
    server: Process,
    runtime: Runtime,
    generator: Generator,
}

impl Contender {
    fn new(name: &'static str, server: Process) -> Self {
        let generator = Generator::new(&server.address, Options::default(), "", KEY_BYTES);
        Self {
            name,
            server,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            generator: generator.unwrap(),
        }
    }

    /// What came of a load, and the CPU time that the server took for it.
    fn turn(&mut self, load: Load, keys: Keys, time: Duration) -> (Outcome, Duration) {
        self.turn_until(load, keys, time, || false)
    }

    /// The same, until `end` says so, if that is sooner.
    fn turn_until(
        &mut self,
        load: Load,
        keys: Keys,
        time: Duration,
        end: impl Fn() -> bool,
    ) -> (Outcome, Duration) {
        let share = if keys == Keys::Seen { 1.0 } else { 0.0 };
        let before = self.server.cpu_time();
        let run = self.generator.run(load, share, time, |_| {
            if end() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let outcome = self.runtime.block_on(run).unwrap();
        (outcome, self.server.cpu_time() - before)
    }

    /// Stores the filter, on a thread of its own.
    fn store(&self) -> thread::JoinHandle<()> {
        let address = self.server.address.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let options = Options {
                    deadline: STORE_TIMEOUT,
                    ..Options::default()
                };
                let client = seenset_client::Client::connect_with(&address, options)
                    .await
                    .unwrap();
                client.store("default").await.unwrap();
            });
        })
    }
}

/// All turns of a contender in a scenario.
struct Row {
    name: &'static str,
    keys_per_second: Vec<f64>,
    /// In microseconds, at each of [`QUANTILES`].
    latencies: [Vec<f64>; QUANTILES.len()],
    keys: u64,
    cpu_time: Duration,
}

impl Row {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            keys_per_second: Vec::new(),
            latencies: Default::default(),
            keys: 0,
            cpu_time: Duration::ZERO,
        }
    }

    fn add(&mut self, (outcome, cpu_time): (Outcome, Duration)) {
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

fn run(name: &str, load: Load, keys: Keys, contenders: &mut [Contender]) {
    let mut rows: Vec<Row> = contenders
        .iter()
        .map(|contender| Row::new(contender.name))
        .collect();
    for _ in 0..ROUNDS {
        for (contender, row) in contenders.iter_mut().zip(&mut rows) {
            let (outcome, cpu_time) = contender.turn(load, keys, TURN);
            if contender.name == "seenset" {
                let wrong = outcome.false_positives;
                assert!(wrong <= outcome.keys() / 100, "{wrong} false positives");
                assert_eq!(outcome.forgotten, 0, "forgotten");
            }
            row.add((outcome, cpu_time));
        }
    }
    print(name, &rows);
}

/// The stream by itself, and while all of the filter is stored.
fn store(seenset: &mut Contender) {
    let (_, load, keys) = SCENARIOS[0];
    let (mut alone, mut storing) = (Row::new("alone"), Row::new("while storing"));
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        alone.add(seenset.turn(load, keys, 2 * TURN));
        let store = seenset.store();
        let turn = seenset.turn_until(load, keys, STORE_TIMEOUT, || store.is_finished());
        store.join().unwrap();
        seconds.push(turn.0.elapsed.as_secs_f64());
        storing.add(turn);
    }
    print("stream 1000 new", &[alone, storing]);
    let [low, median, high] = quantiles(&seconds);
    println!("  {FILTER_MIB} MiB are stored in {median:.1} ({low:.1}, {high:.1}) seconds");
}

/// Medians of the turns, and of their ratios to the first row's; the CPU time is that of all.
fn print(name: &str, rows: &[Row]) {
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

/// The values at 10 %, 50 % and 90 %.
fn quantiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [10, 50, 90].map(|percent| sorted[(sorted.len() - 1) * percent / 100])
}
