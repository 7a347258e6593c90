//! Rebuilds of filters while calls go on.

mod disk;
mod room;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    durability::{key, start},
    *,
};
use crate::store::simulated::SimulatedDisk;

/// A filter so large that none of a few keys is taken for another.
fn exact() -> SpecRequest {
    SpecRequest::new(10_000, 1e-9)
}

fn of_kind(kind: Kind) -> SpecRequest {
    SpecRequest {
        kind,
        ..SpecRequest::new(10_000, 1e-6)
    }
}

fn named<'a>(filter: &'a str, request_id: &'a str) -> Call<'a> {
    Call {
        filter,
        request_id,
        max_age: None,
        deadline: None,
    }
}

async fn seen(engine: &Engine, filter: &str, keys: std::ops::Range<u64>) -> Vec<bool> {
    let keys: Vec<String> = keys.map(key).collect();
    let mut seen = Vec::new();
    for keys in keys.chunks(1000) {
        seen.extend(engine.query_batch(filter, keys.to_vec()).await.unwrap());
    }
    seen
}

/// Returns an engine with a filter that has the keys 0 to 9.
async fn filled(disk: &SimulatedDisk, spec: SpecRequest) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", spec).await.unwrap();
    let keys: Vec<String> = (0..10).map(key).collect();
    engine.add_batch("urls", keys).await.unwrap();
    engine
}

#[tokio::test]
async fn what_comes_meanwhile_comes_to_both_and_the_new_one_takes_the_place() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, exact()).await;
    let larger = SpecRequest::new(50_000, 1e-9);
    let new = engine.start_rebuild("urls", "new", Some(larger.clone()));
    let new = new.await.unwrap();
    assert_eq!((new.keys_added, new.spec.capacity), (0, 50_000));
    assert_eq!(new.rebuilds.unwrap().as_str(), "urls");
    let again = engine.start_rebuild("urls", "new", Some(larger)).await;
    assert_eq!(again.unwrap().version, new.version);
    // One of each call, with keys that are there and with other keys.
    assert!(engine.query_and_add("urls", &key(8)).await.unwrap());
    assert!(!engine.query_and_add("urls", &key(10)).await.unwrap());
    engine.add("urls", &key(11)).await.unwrap();
    let batch = vec![key(9), key(12)];
    assert_eq!(
        engine.query_and_add_batch("urls", batch).await.unwrap(),
        [true, false]
    );
    let many: Vec<String> = (13..1000).map(key).collect();
    engine.add_batch("urls", many).await.unwrap();
    let keys: Vec<String> = (0..4).map(key).collect();
    engine.add_batch("new", keys).await.unwrap();
    let mut expected = vec![true; 1000];
    expected[4..8].fill(false);
    assert_eq!(seen(&engine, "new", 0..1000).await, expected);
    assert_eq!(seen(&engine, "urls", 0..1000).await, [true; 1000]);

    // The rebuild continues after a kill.
    drop(engine);
    let killed = disk.kill();
    let engine = start(&killed, Durability::Always).await.unwrap();
    let old = engine.get_filter("urls").await.unwrap();
    assert_eq!(old.rebuilt_as.unwrap().as_str(), "new");
    engine.add("urls", &key(1000)).await.unwrap();
    engine.store("").await.unwrap();
    drop(engine);
    let killed = killed.kill();
    let engine = start(&killed, Durability::Always).await.unwrap();
    engine.add("urls", &key(1001)).await.unwrap();
    expected.extend([true, true]);
    assert_eq!(seen(&engine, "new", 0..1002).await, expected);

    for _ in 0..2 {
        let done = engine.finish_rebuild("urls", "new").await.unwrap();
        assert_eq!((done.name.as_str(), done.spec.capacity), ("urls", 50_000));
        assert_eq!((done.rebuilds, done.rebuilt_as), (None, None));
    }
    let typo = engine.finish_rebuild("urls", "mew").await.unwrap_err();
    assert!(matches!(typo, EngineError::NotRebuilding { .. }), "{typo}");
    let gone = engine.get_filter("new").await;
    assert!(matches!(gone, Err(EngineError::UnknownFilter { .. })));
    assert_eq!(seen(&engine, "urls", 0..1002).await, expected);
    engine.add("urls", &key(4)).await.unwrap();
    expected[4] = true;
    let filters = engine.list_filters(0, "").await.unwrap().filters;
    let memory: u64 = filters.iter().map(|filter| filter.memory_bytes).sum();
    assert_eq!(engine.catalog.budget.used_bytes(), memory);
    drop(engine);
    let engine = start(&killed.kill(), Durability::Always).await.unwrap();
    assert_eq!(seen(&engine, "urls", 0..1002).await, expected);
    assert_eq!(*engine.startup_warnings(), StartupWarnings::default());
    engine.finish_rebuild("urls", "new").await.unwrap();
    // Another rebuild can follow.
    engine.start_rebuild("urls", "new", None).await.unwrap();
    engine.finish_rebuild("urls", "new").await.unwrap();
    assert_eq!(seen(&engine, "urls", 0..2).await, [false; 2]);
}

/// A request that added a key first to the old filter keeps this answer with the new one.
#[tokio::test]
async fn a_call_that_is_repeated_afterwards_gets_its_answer() {
    let disk = SimulatedDisk::default();
    let mut engine = filled(&disk, exact()).await;
    let won = |engine: Engine, id: &'static str, index: u64| async move {
        let call = named("urls", id);
        !engine.query_and_add(call, &key(index)).await.unwrap()
    };
    assert!(won(engine.clone(), "before", 20).await);
    engine.start_rebuild("urls", "new", None).await.unwrap();
    let keys: Vec<String> = (20..30).map(key).collect();
    engine.add_batch("new", keys).await.unwrap();
    // The key is in the new filter already. The request adds it first to the old one nevertheless.
    assert!(won(engine.clone(), "meanwhile", 21).await);
    assert!(won(engine.clone(), "meanwhile", 21).await);
    assert!(!won(engine.clone(), "other", 21).await);
    engine.finish_rebuild("urls", "new").await.unwrap();
    let mut disk = disk;
    for case in ["at once", "after a kill", "after a store and a kill"] {
        assert!(won(engine.clone(), "before", 20).await, "{case}");
        assert!(won(engine.clone(), "meanwhile", 21).await, "{case}");
        assert!(!won(engine.clone(), "other", 20).await, "{case}");
        assert!(!won(engine.clone(), "other", 21).await, "{case}");
        disk = disk.kill();
        engine = start(&disk, Durability::Always).await.unwrap();
        engine.store("").await.unwrap();
    }
}

/// A call of the new filter has not added what a call of the old one with its id has.
#[tokio::test]
async fn an_id_of_the_old_filter_wins_nothing_in_the_new_one() {
    let engine = filled(&SimulatedDisk::default(), of_kind(Kind::Counting)).await;
    engine.start_rebuild("urls", "new", None).await.unwrap();
    for (name, found) in [("urls", false), ("urls", false), ("new", true)] {
        let call = named(name, "again");
        let seen = engine.query_and_add(call, &key(500)).await.unwrap();
        assert_eq!(seen, found, "{name}");
    }
}

/// Without a log only stored keys are on the disk: they stay, and a crash ends a rebuild.
#[tokio::test]
async fn without_a_log_what_was_stored_stays() {
    let disk = SimulatedDisk::default();
    let begun = async |disk: &SimulatedDisk| {
        let engine = start(disk, Durability::Snapshot).await.unwrap();
        engine.create_filter("urls", exact()).await.unwrap();
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine.add("urls", &key(1)).await.unwrap();
        engine.store("urls").await.unwrap();
        engine
    };
    let engine = begun(&disk).await;
    engine.add_batch("new", vec![key(2)]).await.unwrap();
    engine.finish_rebuild("urls", "new").await.unwrap();
    drop(engine);
    let engine = start(&disk.kill(), Durability::Snapshot).await.unwrap();
    assert_eq!(seen(&engine, "urls", 1..3).await, [true; 2]);

    let disk = SimulatedDisk::default();
    drop(begun(&disk).await);
    let disk = disk.kill();
    for durability in [Durability::Snapshot, Durability::Always] {
        let engine = start(&disk, durability).await.unwrap();
        let urls = engine.get_filter("urls").await.unwrap();
        assert!(urls.rebuilt_as.is_none(), "{durability:?}");
        let ended = engine.finish_rebuild("urls", "new").await.unwrap_err();
        assert!(
            matches!(ended, EngineError::NotRebuilding { .. }),
            "{ended}"
        );
        assert_eq!(seen(&engine, "urls", 1..2).await, [true]);
    }
}

/// For all kinds, every acknowledged key is found in the new filter.
#[tokio::test]
async fn any_kind_takes_the_place_of_another() {
    let aging = Kind::Aging(Aging {
        max_age: Duration::from_secs(3600),
        slices: 4,
        refresh: false,
    });
    let scaling = |capacity, on_full| SpecRequest {
        kind: Kind::Scaling(on_full),
        ..SpecRequest::new(capacity, 1e-6)
    };
    let grows = OnFull::Scale(Scaling {
        growth: 2,
        max_memory_bytes: None,
    });
    for (from, to) in [
        (exact(), of_kind(Kind::Counting)),
        (exact(), of_kind(aging)),
        (exact(), scaling(10, grows)),
        // The new filter is full before all keys have come, and accepts them.
        (exact(), scaling(10, OnFull::Reject)),
        (of_kind(aging), of_kind(aging)),
        (of_kind(Kind::Counting), of_kind(Kind::Counting)),
        (scaling(10, grows), of_kind(aging)),
    ] {
        let case = format!("{} to {}", from.kind, to.kind);
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, from).await;
        engine.start_rebuild("urls", "new", Some(to)).await.unwrap();
        for index in 10..20 {
            engine.add("urls", &key(index)).await.unwrap();
        }
        let keys: Vec<String> = (20..500).map(key).collect();
        engine.query_and_add_batch("urls", keys).await.unwrap();
        let all = seen(&engine, "new", 10..500).await;
        assert_eq!(all, [true; 490], "{case}");
        drop(engine);
        let disk = disk.kill();
        let engine = start(&disk, Durability::Always).await.unwrap();
        engine.add("urls", &key(500)).await.unwrap();
        engine.finish_rebuild("urls", "new").await.unwrap();
        drop(engine);
        let engine = start(&disk.kill(), Durability::Always).await.unwrap();
        let all = seen(&engine, "urls", 10..501).await;
        assert_eq!(all, [true; 491], "{case}");
    }
}

#[tokio::test]
async fn what_is_removed_meanwhile_is_removed_from_both_and_counts_are_exact() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, of_kind(Kind::Counting)).await;
    engine.start_rebuild("urls", "new", None).await.unwrap();
    let keys: Vec<String> = (0..10).map(key).collect();
    engine.add_batch("new", keys).await.unwrap();
    // A repeated call is counted once in both filters.
    for _ in 0..3 {
        engine.add(named("urls", "add"), &key(10)).await.unwrap();
        let batch = vec![key(11), key(11)];
        let call = named("urls", "batch");
        engine.add_batch(call, batch).await.unwrap();
        assert!(engine.remove(named("urls", "x"), &key(0)).await.unwrap());
    }
    assert!(!engine.remove("urls", &key(12)).await.unwrap());
    for _ in 0..2 {
        engine.query_and_add("urls", &key(13)).await.unwrap();
    }
    drop(engine);
    let engine = start(&disk.kill(), Durability::Always).await.unwrap();
    engine.add(named("urls", "add"), &key(10)).await.unwrap();
    engine.finish_rebuild("urls", "new").await.unwrap();
    // Calls that are repeated now get their first answers.
    assert!(engine.remove(named("urls", "x"), &key(0)).await.unwrap());
    engine.add(named("urls", "add"), &key(10)).await.unwrap();
    for (index, times) in [(0, 0), (1, 1), (10, 1), (11, 2), (12, 0), (13, 1)] {
        for time in 0..=times {
            let removed = engine.remove("urls", &key(index)).await.unwrap();
            assert_eq!(removed, time < times, "{index}, {time} of {times}");
        }
    }
}

/// Both filters end with the same keys, in whatever order the calls come.
#[test]
fn removals_keep_their_order_in_both() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let disk = SimulatedDisk::default();
    let engine = runtime.block_on(async {
        let engine = filled(&disk, of_kind(Kind::Counting)).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine
            .add_batch("new", (0..10).map(key).collect::<Vec<_>>())
            .await
            .unwrap();
        engine
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (runtime, engine) = (&runtime, &engine);
            scope.spawn(move || {
                for round in 0..500 {
                    let key = key((thread + round) % 10);
                    let change = async {
                        match (thread + round / 3) % 2 {
                            0 => engine.query_and_add("urls", &key).await.map(|_| ()),
                            _ => engine.remove("urls", &key).await.map(|_| ()),
                        }
                    };
                    runtime.block_on(change).unwrap();
                }
            });
        }
    });
    let both = async {
        (
            seen(&engine, "urls", 0..10).await,
            seen(&engine, "new", 0..10).await,
        )
    };
    let (old, new) = runtime.block_on(both);
    assert_eq!(old, new);
}

/// While rebuilds begin and end, exactly one of all callers that ask for a key gets the answer that
/// it is new. Acknowledged keys stay.
#[test]
fn calls_that_go_on_lose_nothing_and_win_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let disk = SimulatedDisk::default();
    let engine = runtime.block_on(filled(&disk, exact()));
    let wins: Vec<AtomicU64> = (0..4000).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (runtime, engine, wins) = (&runtime, &engine, &wins);
            scope.spawn(move || {
                for (index, wins) in wins.iter().enumerate() {
                    let key = key(10 + index as u64);
                    let asked = async {
                        match thread {
                            0 => engine.query_and_add_batch("urls", vec![key]).await.unwrap()[0],
                            _ => engine.query_and_add("urls", &key).await.unwrap(),
                        }
                    };
                    if !runtime.block_on(asked) {
                        wins.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Keys that were added before the rebuild began must be loaded.
        runtime.block_on(async {
            for _ in 0..5 {
                engine.start_rebuild("urls", "new", None).await.unwrap();
                let seen = seen(&engine, "urls", 0..4010).await;
                let there = (0..4010).zip(seen).filter(|(_, seen)| *seen);
                let there: Vec<String> = there.map(|(index, _)| key(index)).collect();
                for keys in there.chunks(1000) {
                    engine.add_batch("new", keys.to_vec()).await.unwrap();
                }
                engine.finish_rebuild("urls", "new").await.unwrap();
            }
        });
    });
    let wins = wins.iter().map(|wins| wins.load(Ordering::Relaxed));
    assert_eq!(wins.filter(|&wins| wins != 1).count(), 0);
    let all = runtime.block_on(seen(&engine, "urls", 0..4010));
    assert!(all.iter().all(|&seen| seen));
}

/// A filter that is renamed while a call waits for its turn is not found by its old name.
#[tokio::test]
async fn a_finish_that_waits_behind_a_rename_changes_nothing() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, exact()).await;
    engine.start_rebuild("urls", "new", None).await.unwrap();
    let new = "new".parse().unwrap();
    let (_, lock) = engine.filter_with_lock(&new).await.unwrap();
    let (renamed, finished, ()) = tokio::join!(
        biased;
        engine.rename_filter("new", "newer"),
        engine.finish_rebuild("urls", "new"),
        async { drop(lock) },
    );
    assert_eq!(renamed.unwrap().rebuilds.unwrap().as_str(), "urls");
    let finished = finished.unwrap_err();
    assert!(
        matches!(finished, EngineError::NotRebuilding { .. }),
        "{finished}"
    );
    let filters = engine.list_filters(0, "").await.unwrap().filters;
    let names: Vec<&str> = filters.iter().map(|filter| filter.name.as_str()).collect();
    assert_eq!(names, ["newer", "urls"]);
    assert_eq!(seen(&engine, "urls", 0..10).await, [true; 10]);
    engine.finish_rebuild("urls", "newer").await.unwrap();
}

#[tokio::test]
async fn what_would_break_a_rebuild_is_refused() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, of_kind(Kind::Counting)).await;
    engine.create_filter("plain", exact()).await.unwrap();
    let start_as = |name: &'static str, new: &'static str, spec: Option<SpecRequest>| {
        let engine = engine.clone();
        async move { engine.start_rebuild(name, new, spec).await.map(|_| ()) }
    };
    let other_hash = SpecRequest {
        hash_function: HashFunction::Xxh3_128,
        ..exact()
    };
    let with_profile = SpecRequest {
        key_profile: Some(KeyProfile::new("url-v1", false, &[]).unwrap()),
        ..exact()
    };
    for (case, part) in [
        (start_as("", "new", None).await, "name"),
        (start_as("urls", "", None).await, "new_name"),
        (start_as("other", "new", None).await, "no filter named"),
        (start_as("urls", "plain", None).await, "exists"),
        (start_as("urls", "urls", None).await, "exists"),
        (
            start_as("plain", "new", Some(other_hash)).await,
            "spec.hash_function",
        ),
        (
            start_as("plain", "new", Some(with_profile)).await,
            "spec.key_profile",
        ),
        (
            start_as("urls", "new", Some(exact())).await,
            "spec.counting",
        ),
        (
            start_as("plain", "new", Some(SpecRequest::new(0, 0.1))).await,
            "spec.capacity",
        ),
        (
            start_as("plain", "new", Some(SpecRequest::new(1 << 40, 0.1))).await,
            "--max-memory",
        ),
    ] {
        let error = case.unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    for (name, new) in [("plain", "new"), ("plain", "urls")] {
        let none = engine.finish_rebuild(name, new).await.unwrap_err();
        assert!(matches!(none, EngineError::NotRebuilding { .. }), "{none}");
    }
    start_as("plain", "new", None).await.unwrap();
    for refused in [
        start_as("plain", "newer", None).await,
        start_as("new", "newer", None).await,
        start_as("plain", "new", Some(SpecRequest::new(77, 0.1))).await,
        engine.reset_filter("plain").await.map(|_| ()),
        engine.reset_filter("new").await.map(|_| ()),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, EngineError::Rebuilding { .. }),
            "{refused}"
        );
    }
    engine.copy_filter("plain", "copy").await.unwrap();
    let merged = engine.merge_filters("copy", "plain").await.unwrap_err();
    assert!(matches!(merged, EngineError::Rebuilding { .. }), "{merged}");
    // A rename does not affect the rebuild.
    engine.rename_filter("plain", "old").await.unwrap();
    engine.rename_filter("new", "newer").await.unwrap();
    engine.add("old", "a").await.unwrap();
    assert!(engine.query("newer", "a").await.unwrap());
    engine.finish_rebuild("old", "newer").await.unwrap();
    assert!(engine.query("old", "a").await.unwrap());

    // A deletion of the new filter ends the rebuild. A deletion of the old filter leaves the new
    // one.
    engine.start_rebuild("old", "new", None).await.unwrap();
    engine.delete_filter("new").await.unwrap();
    engine.add("old", "b").await.unwrap();
    assert!(engine.get_filter("old").await.unwrap().rebuilt_as.is_none());
    engine.start_rebuild("old", "new", None).await.unwrap();
    engine.delete_filter("old").await.unwrap();
    assert!(engine.get_filter("new").await.unwrap().rebuilds.is_none());
    drop(engine);
    let engine = start(&disk.kill(), Durability::Always).await.unwrap();
    engine.reset_filter("new").await.unwrap();
}
