//! The cost of the service in addition to moving the bytes: `cargo bench -p seenset-server --bench
//! service [-- SCENARIO...]`.
//!
//! Compares the real server with a tonic server that decodes the same messages with prost and
//! answers without a look at them. Keys have 60 bytes, the filter has 1 GiB. The servers run on one
//! core, the client on another. The load alternates between the servers in turns of a second, so
//! that other activity of the machine affects both alike. Only the ratios within one run are
//! meaningful.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

mod contender;
mod echo;
mod log;
mod messages;
mod process;
mod row;

use std::{env, time::Duration};

use seenset_load::{Calls, Load};

use self::{
    contender::{Contender, STORE_TIMEOUT},
    process::Process,
    row::{Row, print, quantiles},
};

const FILTER_MIB: u64 = 1024;
const ROUNDS: usize = 11;
/// The length of a turn.
const TURN: Duration = Duration::from_secs(1);
/// The number of batches of a stream that are in flight at once.
const WINDOW: usize = 16;

/// The keys that are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// Keys that were never requested before.
    New,
    /// Keys that were requested before, again and again.
    Seen,
}

const fn load(calls: Calls, connections: usize, callers: usize) -> Load {
    Load {
        calls,
        connections,
        callers,
    }
}

/// Callers that each request one key: with a call of their own, or with the batches of the client
/// crate.
const SINGLE: Load = load(Calls::Single, 4, 512);
const COALESCED: Load = load(Calls::Coalesced, 1, 512);

/// The scenarios, each with the words that select it, separated by a space.
const SCENARIOS: [(&str, Load, Keys); 11] = {
    use Keys::*;
    const fn stream(keys: usize) -> Load {
        let window = WINDOW;
        load(Calls::Stream { keys, window }, 1, 1)
    }
    const fn single(connections: usize, callers: usize) -> Load {
        load(Calls::Single, connections, callers)
    }
    const BATCH: Load = load(Calls::Batch { keys: 1000 }, 1, WINDOW);
    [
        ("stream 1000 new", stream(1000), New),
        ("stream 1000 seen", stream(1000), Seen),
        ("stream 100 new", stream(100), New),
        ("stream 10000 new", stream(10_000), New),
        ("batch 1000 new", BATCH, New),
        ("single 1 new", single(1, 1), New),
        ("single 50 new", single(50, 50), New),
        ("single 4x100 new", single(4, 400), New),
        ("single 512 new", SINGLE, New),
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
        Contender::new(
            "seenset",
            Process::seenset(dir.path(), FILTER_MIB, "snapshot"),
        ),
    ];
    contenders.iter_mut().for_each(Contender::fill);
    let chosen = |name: &str| {
        arguments.is_empty() || arguments.iter().any(|argument| name.contains(argument))
    };
    for (name, load, keys) in SCENARIOS {
        if chosen(name) {
            contenders[1].make_room();
            run(name, load, keys, &mut contenders);
        }
    }
    let [_, seenset] = &mut contenders;
    if chosen("coalesced 512 new") {
        coalescing(seenset);
    }
    if chosen("store") {
        store(seenset);
    }
    drop(contenders);
    if log::SCENARIOS.iter().any(|(name, _)| chosen(name)) {
        log::run(chosen);
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

/// Compares single calls of the same callers with calls that are sent together.
fn coalescing(seenset: &mut Contender) {
    let (mut single, mut coalesced) = (Row::new("single"), Row::new("coalesced"));
    for _ in 0..ROUNDS {
        single.add(seenset.turn(SINGLE, Keys::New, TURN));
        coalesced.add(seenset.turn(COALESCED, Keys::New, TURN));
    }
    print("512 callers new", &[single, coalesced]);
}

/// Measures the stream alone, and while the whole filter is stored.
fn store(seenset: &mut Contender) {
    let (_, load, keys) = SCENARIOS[0];
    let (mut alone, mut storing) = (Row::new("alone"), Row::new("while storing"));
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        seenset.make_room();
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
