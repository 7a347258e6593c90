//! Callers that race for keys while filters are stored, made and deleted, and their answers.

use std::time::Duration;

use futures_util::future::join_all;
use seenset_history::{Call, Checker, Operation, now};

use fastrand::Rng;

use super::{
    durability::{key, start},
    generations::Generations,
    *,
};
use crate::{engine, store::simulated::SimulatedDisk};

/// The number of keys that are asked for.
const KEYS: u64 = 40;

/// The calls of the callers, and their answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) history: Vec<Call<u64>>,
    /// The calls that can be repeated.
    requests: Vec<Request>,
    /// The spec of the filter, once it has been made.
    spec: Option<SpecRequest>,
    pub(super) generations: Generations,
}

/// A call that has an id, whether it was answered or not.
#[derive(Debug, Clone)]
struct Request {
    id: String,
    keys: Vec<u64>,
}

/// Runs several tasks that query and add keys, single and in batches. Another task stores, makes
/// and deletes filters. They go on until a call fails. Adds their answers to `told`.
pub(super) async fn work(
    disk: &SimulatedDisk,
    durability: Durability,
    seed: u64,
    mut told: Told,
) -> Told {
    let Ok(engine) = start(disk, durability).await else {
        return told;
    };
    let case = format!("seed {seed}, at the start");
    told.generations.check(&engine, &case).await;
    work_with(&engine, seed, &mut told).await;
    told
}

/// Like [`work`], with an engine that has started.
pub(super) async fn work_with(engine: &Engine, seed: u64, told: &mut Told) {
    let spec = told.spec.get_or_insert_with(|| match seed % 6 {
        0 => exact_in_layers(),
        1 => exact_in(Layout::Guava),
        2 => of_kind(Kind::Counting),
        3 => of_kind(Kind::Aging(Aging {
            max_age: Duration::from_secs(30 * 24 * 3600),
            slices: 4,
            refresh: seed % 12 == 3,
        })),
        _ => exact(),
    });
    if engine.create_filter("urls", spec.clone()).await.is_err() {
        return;
    }
    let tasks = (0..3).map(|task| {
        let engine = engine.clone();
        tokio::spawn(async move { race(&engine, seed * 10 + task).await })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut chance = Rng::with_seed(seed);
    for _ in 0..chance.u64(..4) {
        let name = ["urls", "other", ""][chance.usize(..3)];
        let stored = engine.store(name);
        let whole = change_whole(engine, chance.u64(..8));
        let turn = told.generations.take_turn(engine, &mut chance);
        let _ = tokio::join!(stored, whole, turn);
    }
    for task in tasks {
        let (history, requests) = task.await.unwrap();
        told.history.extend(history);
        told.requests.extend(requests);
    }
}

/// Copies, renames, merges or deletes whole filters. No key of `urls` comes or goes,
/// because a copy has no other keys.
async fn change_whole(engine: &Engine, choice: u64) {
    // The result shows in the answers of the callers.
    let _ = match choice {
        0..3 => engine.copy_filter("urls", "copy").await.map(|_| ()),
        3 => engine.rename_filter("copy", "moved").await.map(|_| ()),
        4 => engine.merge_filters("moved", "urls").await.map(|_| ()),
        5 => engine.delete_filter("copy").await,
        _ => engine.merge_filters("copy", "urls").await.map(|_| ()),
    };
}

/// Runs one task.
async fn race(engine: &Engine, seed: u64) -> (Vec<Call<u64>>, Vec<Request>) {
    let mut chance = Rng::with_seed(seed);
    let (mut history, mut requests) = (Vec::new(), Vec::new());
    for number in 0..10 {
        let mut keys: Vec<u64> = (0..1 + chance.u64(..4))
            .map(|_| chance.u64(..KEYS))
            .collect();
        let operation = match chance.u64(..6) {
            0 => Operation::Query,
            1 => Operation::Add,
            _ => Operation::QueryAndAdd,
        };
        let mut id = String::new();
        if operation == Operation::QueryAndAdd && chance.bool() {
            id = format!("{seed}/{number}");
            // A request has one answer per key, and can be repeated key by key.
            keys.sort_unstable();
            keys.dedup();
            requests.push(Request {
                id: id.clone(),
                keys: keys.clone(),
            });
        }
        let (calls, answered) = call(engine, operation, &keys, &id).await;
        history.extend(calls);
        if !answered {
            break;
        }
    }
    (history, requests)
}

/// So exact that no false positive is expected in a million runs: the history would show it as a
/// violation.
pub(super) fn exact() -> SpecRequest {
    SpecRequest::new(1000, 1e-12)
}

/// The same in a layout. It has 13 hashes, because the expected rate of Guava's layout takes
/// milliseconds to compute for 40.
pub(super) fn exact_in(layout: Layout) -> SpecRequest {
    SpecRequest {
        layout,
        hash_function: layout.hash_function(),
        ..SpecRequest::new(4000, 1e-4)
    }
}

fn of_kind(kind: Kind) -> SpecRequest {
    SpecRequest { kind, ..exact() }
}

/// The same, but with a filter that grows after a few keys.
pub(super) fn exact_in_layers() -> SpecRequest {
    SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(2, 1e-12)
    }
}

/// Makes a call for one or several keys. Returns its results, and whether it was answered.
async fn call(
    engine: &Engine,
    operation: Operation,
    keys: &[u64],
    request_id: &str,
) -> (Vec<Call<u64>>, bool) {
    let names: Vec<String> = keys.iter().map(|&index| key(index)).collect();
    let filter = "urls";
    let named = engine::Call {
        filter,
        request_id,
        max_age: None,
        deadline: None,
    };
    let begin = now();
    let answer = match (operation, &*names) {
        (Operation::Query, [name]) => engine.query(filter, name).await.map(|seen| vec![seen]),
        (Operation::Query, _) => engine.query_batch(filter, names).await,
        (Operation::QueryAndAdd, [name]) => {
            let seen = engine.query_and_add(named, name).await;
            seen.map(|seen| vec![seen])
        }
        (Operation::QueryAndAdd, _) => engine.query_and_add_batch(named, names).await,
        (Operation::Add, [name]) => engine.add(named, name).await.map(|()| Vec::new()),
        (Operation::Add, _) => engine.add_batch(named, names).await.map(|()| Vec::new()),
    };
    let end = now();
    let calls = keys.iter().enumerate().map(|(place, &key)| {
        let call = match &answer {
            Err(_) => Call::unknown(operation, key, begin),
            Ok(seen) => match operation {
                Operation::Query => Call::query(key, begin, end, seen[place]),
                Operation::QueryAndAdd => Call::query_and_add(key, begin, end, seen[place]),
                Operation::Add => Call::add(key, begin, end),
            },
        };
        match request_id {
            "" => call,
            id => call.with_request_id(id),
        }
    });
    (calls.collect(), answer.is_ok())
}

/// Checks the disk after a crash against all earlier answers. No key is forgotten, and no key was
/// seen before it was marked. A key is new again only to the request that added it first. The
/// filters that were made and not deleted exist.
pub(super) async fn check(found: &SimulatedDisk, durability: Durability, told: Told, case: &str) {
    let engine = match start(found, durability).await {
        Ok(engine) => engine,
        Err(error) => panic!("{case}: {error}"),
    };
    let Told {
        history,
        requests,
        spec: _,
        mut generations,
    } = told;
    generations.check(&engine, case).await;
    generations.ask_again(&engine, case).await;
    if history.is_empty() {
        return;
    }
    // New callers and repeated requests come in either order. A repeated request gets its first
    // answer.
    let mut chance = Rng::with_seed(history.len() as u64);
    let mut checker = Checker::default();
    checker.extend(history);
    let others_first = chance.bool();
    for round in 0..2 {
        let calls = if (round == 0) == others_first {
            ask_all(&engine).await
        } else {
            ask_again(&engine, &requests, &mut chance).await
        };
        for (calls, answered) in calls {
            assert!(answered, "{case}");
            checker.extend(calls);
        }
    }
    if let Err(violations) = checker.finish() {
        panic!("{case}: {violations}");
    }
}

/// Asks for all keys as another caller.
async fn ask_all(engine: &Engine) -> Vec<(Vec<Call<u64>>, bool)> {
    let keys: Vec<u64> = (0..KEYS).collect();
    let queried = call(engine, Operation::Query, &keys, "").await;
    vec![
        queried,
        call(engine, Operation::QueryAndAdd, &keys, "").await,
    ]
}

/// Repeats the requests, all at the same time, in the same batches or in others.
async fn ask_again(
    engine: &Engine,
    requests: &[Request],
    chance: &mut Rng,
) -> Vec<(Vec<Call<u64>>, bool)> {
    let again = requests.iter().flat_map(|Request { id, keys }| {
        let batch = 1 + chance.u64(..keys.len() as u64) as usize;
        let batches = keys.rchunks(batch);
        batches.map(move |keys| call(engine, Operation::QueryAndAdd, keys, id))
    });
    join_all(again).await
}
