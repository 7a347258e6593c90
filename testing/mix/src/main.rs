//! A random mix of calls, operations on whole filters, deadlines, stops and kills, compared with an
//! exact model.
//!
//! Three adders call for keys under all names, each for keys of its own. Two operators create,
//! delete, reset, rename, copy, merge, rebuild, export, import and store filters of every kind.
//! Some calls get a deadline of a few milliseconds.
//!
//! After a random time the server is killed or stopped, and then started again. The calls without
//! an answer are repeated with their request ids. The model knows the keys that each filter must
//! have and those that it can have. Any other result is a violation.

#![allow(clippy::print_stdout, reason = "the report is what the program is for")]
#![allow(clippy::indexing_slicing, reason = "the indices are the model's own")]

mod adder;
mod model;
mod operation;
mod operator;
mod server;
mod violation;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use fastrand::Rng;
use parking_lot::Mutex;
use tempfile::TempDir;

use self::{
    adder::Adder,
    model::{Key, Listed, Model, Name},
    operation::Kind,
    server::Server,
    violation::{Violation, violated_for},
};

const NAMES: usize = 8;
const ADDERS: u32 = 3;
const OPERATORS: usize = 2;
/// The number of keys: less than the capacity of a filter.
const KEYS: Key = 12_000;
/// The number of keys in a batch of the verification.
const VERIFIED_AT_ONCE: usize = 4000;

/// Runs a random mix of calls, operations on whole filters, deadlines, stops and kills, and
/// compares the server with an exact model.
#[derive(Debug, Parser)]
#[command(name = "seenset-mix")]
struct Arguments {
    /// Path of the server program
    #[arg(long, default_value = "target/release/seenset-server")]
    server: PathBuf,

    /// Duration of the run, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,

    /// Kinds of filters to use
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::value_variants().to_vec())]
    kinds: Vec<Kind>,

    /// Seed of all random choices. The order of events still differs from run to run
    #[arg(long)]
    seed: Option<u64>,
}

/// The state that all tasks share.
struct Shared {
    kinds: Vec<Kind>,
    model: Mutex<Model>,
    summary: Mutex<Summary>,
    /// True when the server is about to end.
    is_over: AtomicBool,
    violation: Mutex<Option<Violation>>,
}

#[derive(Debug, Default)]
struct Summary {
    kills: u64,
    stops: u64,
    keys: u64,
    verified: u64,
    /// The numbers of answered, refused and unanswered calls, for each rpc and kind.
    outcomes: BTreeMap<String, [u64; 3]>,
}

impl Shared {
    fn note<T>(&self, what: String, outcome: &model::Outcome<T>) {
        let column = match outcome {
            model::Outcome::Done(_) => 0,
            model::Outcome::Refused(_) => 1,
            model::Outcome::Unknown => 2,
        };
        let mut summary = self.summary.lock();
        summary.outcomes.entry(what).or_default()[column] += 1;
    }

    /// Keeps the first violation, and then ends the life of the server.
    fn check(&self, checked: Result<(), Violation>) {
        if let Err(violation) = checked {
            self.violation.lock().get_or_insert(violation);
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

fn filter_name(name: Name) -> String {
    format!("filter-{name}")
}

fn key_text(key: Key) -> String {
    format!("https://mix.example/{key}")
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("--seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let directory = TempDir::new()?;
    let shared = Arc::new(Shared {
        kinds: arguments.kinds.clone(),
        model: Mutex::new(Model::new(NAMES)),
        summary: Mutex::default(),
        is_over: AtomicBool::new(false),
        violation: Mutex::default(),
    });
    let mut adders: Vec<Adder> = (0..ADDERS).map(|n| Adder::new(n, rng.fork())).collect();
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    while Instant::now() < end {
        let life = live(&arguments, &directory, &shared, &mut rng, &mut adders);
        let lived = life.await;
        if let Err(error) = lived {
            let key = error
                .downcast_ref::<Violation>()
                .and_then(|violation| violation.key);
            let kept = directory.keep();
            let kept = kept.display();
            println!("{}", shared.model.lock().history(key));
            bail!("{error:#}\nthe data directory is kept: {kept}");
        }
    }
    report(&shared.summary.lock(), &shared.kinds)
}

/// One life of a server: start, verification, calls and operations, kill or stop.
async fn live(
    arguments: &Arguments,
    directory: &TempDir,
    shared: &Arc<Shared>,
    rng: &mut Rng,
    adders: &mut Vec<Adder>,
) -> Result<()> {
    let durability = if rng.u8(..4) == 0 {
        "always"
    } else {
        "interval"
    };
    let mut server = Server::start(&arguments.server, directory.path(), durability)?;
    shared
        .model
        .lock()
        .note(format!("a start with --durability {durability}"));
    verify(&server, shared, rng).await?;
    shared.is_over.store(false, Ordering::Relaxed);
    let mut tasks = tokio::task::JoinSet::new();
    for adder in adders.drain(..) {
        tasks.spawn(adder.run(shared.clone(), server.clients()));
    }
    let mut operators = tokio::task::JoinSet::new();
    for _ in 0..OPERATORS {
        operators.spawn(operator::run(shared.clone(), server.clients(), rng.fork()));
    }
    let longest = [30, 200, 1000, 2500][rng.usize(..4)];
    let end = Instant::now() + Duration::from_millis(rng.u64(..longest));
    while Instant::now() < end && !shared.is_over() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if shared.violation.lock().is_none() {
        match rng.u8(..4) {
            0 => server.stop()?,
            _ => server.kill()?,
        }
        let mut summary = shared.summary.lock();
        match server.was_killed() {
            true => summary.kills += 1,
            false => summary.stops += 1,
        }
    }
    shared.is_over.store(true, Ordering::Relaxed);
    while let Some(adder) = tasks.join_next().await {
        adders.push(adder?);
    }
    while let Some(operator) = operators.join_next().await {
        operator?;
    }
    match shared.violation.lock().take() {
        Some(violation) => Err(violation.into()),
        None => Ok(()),
    }
}

/// Decides calls and operations without an answer, and compares every filter with the model.
async fn verify(server: &Server, shared: &Shared, rng: &mut Rng) -> Result<()> {
    let mut clients = server.clients();
    let listed: BTreeMap<Name, Listed> = clients.list().await?;
    let undecided = shared.model.lock().undecided();
    let mut seen = HashMap::new();
    for (name, keys) in undecided {
        let there = clients.query(name, &keys).await?;
        seen.insert(name, there.iter().filter(|&&there| there).count());
    }
    shared.model.lock().decide(&listed, &seen)?;
    for &name in listed.keys() {
        let Some(filter) = shared.model.lock().filter(name).cloned() else {
            continue;
        };
        let must: Vec<Key> = filter.must.iter().copied().collect();
        let mut not: Vec<Key> = (0..KEYS).filter(|key| !filter.may.contains(key)).collect();
        rng.shuffle(&mut not);
        not.truncate(VERIFIED_AT_ONCE);
        for (keys, expected) in [(must, true), (not, false)] {
            for keys in keys.chunks(VERIFIED_AT_ONCE) {
                let there = clients.query(name, keys).await?;
                shared.summary.lock().verified += keys.len() as u64;
                let wrong = keys
                    .iter()
                    .zip(there)
                    .filter(|(_, there)| *there != expected);
                let wrong: Vec<Key> = wrong.map(|(key, _)| *key).collect();
                if let Some(&key) = wrong.first() {
                    let what = format!(
                        "after a start, {} of {} keys of {} ({:?}) are not `seen = {expected}`, key \
                         {key} among them",
                        wrong.len(),
                        keys.len(),
                        filter_name(name),
                        filter.kind
                    );
                    violated_for(key, what)?;
                }
            }
        }
    }
    Ok(())
}

/// Prints the summary. Fails if it lacks an operation or a kind.
fn report(summary: &Summary, kinds: &[Kind]) -> Result<()> {
    let Summary {
        kills,
        stops,
        keys,
        verified,
        outcomes,
    } = summary;
    println!("{kills} kills, {stops} stops, {keys} keys in calls, {verified} keys verified");
    println!("| | answered | refused | not answered |\n|---|---|---|---|");
    for (what, [answered, refused, unknown]) in outcomes {
        println!("| {what} | {answered} | {refused} | {unknown} |");
    }
    let answered = |part: &str| {
        let rows = outcomes.iter().filter(|(what, _)| what.contains(part));
        rows.map(|(_, [answered, ..])| answered).sum::<u64>()
    };
    let kinds: Vec<String> = kinds.iter().copied().map(kind_name).collect();
    let has_files = kinds.iter().any(|kind| kind == "guava");
    let parts = operator::TITLES
        .into_iter()
        .filter(|&title| has_files || title != operator::EXCHANGE)
        .chain(kinds.iter().map(String::as_str));
    let never: Vec<_> = parts.filter(|part| answered(part) == 0).collect();
    if !never.is_empty() {
        bail!("the run was too short: it had no {}", never.join(", "));
    }
    Ok(())
}

/// Returns the name of a kind in the summary.
fn kind_name(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}
