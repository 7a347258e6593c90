//! Rebuilds of filters while there is little room in the log.

use std::{thread, time::Instant};

use futures_util::FutureExt;

use super::*;
use crate::{
    engine::commit::Remembered,
    store::{FilterId, RequestId},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(8)
        .enable_time()
        .build()
        .unwrap()
}

/// A call reserves room for both filters at once, or waits. Otherwise two calls could each hold
/// half of the room and wait for the other half.
#[test]
fn calls_do_not_wait_for_each_others_halves() {
    let runtime = runtime();
    let disk = SimulatedDisk::default();
    let engine = runtime.block_on(async {
        let engine = filled(&disk, exact()).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine
    });
    let calls: Vec<_> = (0..16)
        .map(|caller| {
            let engine = engine.clone();
            runtime.spawn(async move {
                for call in 0..50 {
                    // The room of one call for both filters is half of a segment.
                    let of_call = 1000 * (50 * caller + call);
                    let keys: Vec<String> = (of_call..of_call + 1000).map(key).collect();
                    engine.add_batch("urls", keys).await.unwrap();
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for call in calls {
            let ended = tokio::time::timeout(PATIENCE, call).await;
            ended.expect("calls wait for each other").unwrap();
        }
    });
}

/// Writes that wait until the filters take them can hold all the room.
#[test]
fn nobody_waits_for_room_while_the_filters_are_held() {
    let runtime = runtime();
    let disk = SimulatedDisk::default();
    let engine = runtime.block_on(async {
        let engine = filled(&disk, exact()).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine
    });
    let id = |name: &str| {
        engine
            .data
            .registry
            .get(&name.parse().unwrap())
            .unwrap()
            .id()
    };
    let (urls, new): (FilterId, FilterId) = (id("urls"), id("new"));
    let journal = engine.data.journal.get().unwrap();
    let requests = &engine.data.requests;
    let win = |request: u8, keys| {
        let hash = |low| KeyHash { low, high: 0 };
        let won = Remembered {
            filter: urls,
            request: RequestId([request; 16]),
            hashes: (0..keys).map(hash).collect(),
        };
        requests.remember(won, journal.segment());
    };
    // `one` is the room for one of two requests, and `all` takes the rest.
    let room = |keys| journal.reserve(keys, 1).now_or_never().transpose().unwrap();
    let one = room(1).unwrap();
    let all = || {
        let sizes = [1000, 100, 10, 1].into_iter();
        sizes.flat_map(|keys| std::iter::from_fn(move || Some((keys, room(keys)?))))
    };
    let mut rest: Vec<_> = all().collect();
    let until = |what: &str, holds: &mut dyn FnMut() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    // There is room in two segments: the second may still be in the making.
    until("there is one segment", &mut || {
        rest.extend(all());
        rest.iter().filter(|(keys, _)| *keys == 1000).count() >= 6
    });
    win(1, 1);
    let finished = {
        let engine = engine.clone();
        runtime.spawn(async move { engine.finish_rebuild("urls", "new").await })
    };
    until("it does not wait", &mut || journal.waiting() == 1);
    // This needs more room than the first reservation gives back.
    win(2, 100);
    drop(one);
    let missing = || requests.missing(urls, new).len();
    until("it has not got the room", &mut || missing() == 1);
    until("it does not wait again", &mut || journal.waiting() == 1);
    for name in ["urls", "new"] {
        let filter = engine.data.registry.get(&name.parse().unwrap()).unwrap();
        until("it is held", &mut || !filter.is_held());
    }
    drop(rest);
    let finished = runtime.block_on(async { tokio::time::timeout(PATIENCE, finished).await });
    finished.unwrap().unwrap().unwrap();
    assert!(requests.missing(urls, new).is_empty());
}
