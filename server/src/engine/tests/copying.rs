//! Copies of filters while others write, the power is cut, and the disk fails.

use std::io;

use futures_util::future::join_all;

use fastrand::Rng;

use super::{
    durability::{key, start},
    kinds::{Sample, counts, keys},
    *,
};
use crate::store::simulated::{Fault, SimulatedDisk};

/// Returns an engine with a filter that has the keys 0 to 19, each twice, and the key 20.
async fn filled(disk: &SimulatedDisk, sample: &Sample) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    sample.make(&engine, "urls").await.unwrap();
    engine.add_batch("urls", keys(0..20)).await.unwrap();
    engine.store("urls").await.unwrap();
    engine.add_batch("urls", keys(0..21)).await.unwrap();
    engine
}

/// Returns the counts of all keys of such a filter.
fn all_of(sample: &Sample) -> Vec<u32> {
    [vec![sample.times(2); 20], vec![1]].concat()
}

/// Returns, for each of `count` keys, whether the filter has it.
async fn seen(engine: &Engine, filter: &str, count: u64) -> Vec<bool> {
    let mut seen = Vec::new();
    for keys in keys(0..count).chunks(1000) {
        let asked = engine.query_batch(filter, keys.to_vec()).await;
        seen.extend(asked.unwrap());
    }
    seen
}

#[tokio::test]
async fn a_power_cut_at_any_call_leaves_all_of_the_copy_or_none() {
    for (seed, sample) in (0..).zip(Sample::all()) {
        cut_power_at_any_call(&sample, seed).await;
    }
}

async fn cut_power_at_any_call(sample: &Sample, seed: u64) {
    let mut chance = Rng::with_seed(seed);
    let mut copies = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let copied = engine.copy_filter("urls", "copy").await;
        let used = disk.calls() - before;
        let added = match &copied {
            Ok(_) => engine.add("copy", &key(21)).await.is_ok(),
            Err(_) => false,
        };
        drop(engine);
        let found = match (call + seed) % 2 {
            0 => disk.cut(&mut chance),
            _ => disk.kill().cut(&mut chance),
        };
        let case = format!("{sample}, call {call}");
        let engine = start(&found, Durability::Always).await.unwrap();
        let there = find(&engine, "copy").is_some();
        assert!(copied.is_err() || there, "{case}");
        copies.push(there);
        if there {
            let last = counts(&engine, "copy", 21..22).await[0];
            assert!(last == 1 || last == 0 && !added, "{case}: {last}");
        } else {
            engine.copy_filter("urls", "copy").await.unwrap();
        }
        for name in ["urls", "copy"] {
            let found = counts(&engine, name, 0..21).await;
            assert_eq!(found, all_of(sample), "{case}: {name}");
        }
        if used <= call {
            break;
        }
    }
    assert!(
        copies.contains(&true) && copies.contains(&false),
        "{sample}"
    );
}

#[tokio::test]
async fn a_disk_that_fails_leaves_no_copy_and_no_promise() {
    for sample in Sample::all() {
        fail_at_any_call(&sample).await;
    }
}

async fn fail_at_any_call(sample: &Sample) {
    for call in 0.. {
        let case = format!("{sample}, call {call}");
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let used_bytes = engine.catalog.budget.used_bytes();
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let copied = engine.copy_filter("urls", "copy").await;
        let used = disk.calls() - before;
        disk.heal();
        if copied.is_err() {
            let unknown = engine.get_filter("copy").await;
            let is_unknown = matches!(unknown, Err(EngineError::UnknownFilter { .. }));
            assert!(is_unknown, "{case}: {unknown:?}");
            assert_eq!(engine.catalog.budget.used_bytes(), used_bytes, "{case}");
            engine.copy_filter("urls", "copy").await.unwrap();
        }
        engine.add("copy", &key(21)).await.unwrap();
        drop(engine);
        let engine = start(&disk.kill(), Durability::Always).await.unwrap();
        for (name, last) in [("urls", 0), ("copy", 1)] {
            let found = counts(&engine, name, 0..22).await;
            assert_eq!(found, [all_of(sample), vec![last]].concat(), "{case}");
        }
        if used <= call {
            break;
        }
    }
}

/// Keys that were acknowledged before are in the copy. A key that comes meanwhile is in the copy
/// whole, or can be added to it. This holds for counted keys too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_go_on_while_a_filter_is_copied() {
    let counting = SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(400_000, 1e-9)
    };
    for spec in [SpecRequest::new(2_000_000, 1e-9), counting] {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, INTERVAL).await.unwrap();
        engine.create_filter("urls", spec).await.unwrap();
        engine.add_batch("urls", keys(0..1000)).await.unwrap();
        let writers = (0..4).map(|writer| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for round in 0..50 {
                    let first = 1000 + (writer * 50 + round) * 10;
                    let keys: Vec<String> = (first..first + 10).map(key).collect();
                    engine.add_batch("urls", keys).await.unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let copy = engine.copy_filter("urls", "copy").await.unwrap();
        let version = engine.get_filter("urls").await.unwrap().version;
        assert!(copy.version <= version);
        join_all(writers).await;

        assert_eq!(seen(&engine, "urls", 3000).await, [true; 3000]);
        let before = seen(&engine, "copy", 3000).await;
        assert!(before[..1000].iter().all(|&seen| seen));
        let added = before.iter().filter(|&&seen| seen).count() as u64;
        assert_eq!(copy.keys_added, added);
        let told = engine.query_and_add_batch("copy", keys(0..1000)).await;
        assert!(told.unwrap().iter().all(|&seen| seen));
        for keys in keys(0..3000).chunks(1000) {
            engine.add_batch("copy", keys.to_vec()).await.unwrap();
        }
        drop(engine);
        let engine = start(&disk.kill(), INTERVAL).await.unwrap();
        assert_eq!(seen(&engine, "copy", 3000).await, [true; 3000]);
        let status = engine.get_filter("copy").await.unwrap();
        assert_eq!(status.keys_added, 3000);
    }
}

#[tokio::test]
async fn a_copy_is_apart_from_what_it_was_copied_from() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let counting = SpecRequest {
        kind: Kind::Counting,
        ..small()
    };
    engine.create_filter("urls", counting).await.unwrap();
    let won = |filter| Call {
        filter,
        request_id: "first",
        max_age: None,
        deadline: None,
    };
    assert!(!engine.query_and_add(won("urls"), "a").await.unwrap());
    for _ in 0..16 {
        engine.add("urls", "full").await.unwrap();
    }
    let before = engine.get_filter("urls").await.unwrap();
    let copy = engine.copy_filter("urls", "copy").await.unwrap();
    assert_eq!(copy.saturated_counters, before.saturated_counters);
    assert_eq!((&copy.spec, copy.version), (&before.spec, before.version));
    // A request that has added a key first to one filter has not added it to the other.
    assert!(engine.query_and_add(won("copy"), "a").await.unwrap());
    assert!(!engine.query_and_add(won("urls"), "a").await.unwrap());
    assert!(engine.remove("copy", "a").await.unwrap());
    for engine in [
        engine,
        start(&disk.kill(), Durability::Always).await.unwrap(),
    ] {
        assert!(engine.query("urls", "a").await.unwrap());
        assert!(!engine.query("copy", "a").await.unwrap());
        assert!(engine.query("copy", "full").await.unwrap());
    }
}

/// A name is reserved while a copy is made, and no longer.
#[tokio::test]
async fn a_name_is_given_once() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, &Sample::plain()).await;
    engine.create_filter("other", small()).await.unwrap();
    let (first, second, created, renamed) = tokio::join!(
        engine.copy_filter("urls", "copy"),
        engine.copy_filter("urls", "copy"),
        engine.create_filter("copy", SpecRequest::new(7, 0.5)),
        engine.rename_filter("other", "copy"),
    );
    first.unwrap();
    for refused in [second.map(|_| ()), created.map(|_| ()), renamed.map(|_| ())] {
        // It depends on chance whether the copy exists by then.
        let is_refused = matches!(
            refused,
            Err(EngineError::NameTaken { .. } | EngineError::FilterExists { .. })
        );
        assert!(is_refused, "{refused:?}");
    }
    engine.delete_filter("copy").await.unwrap();
    engine.create_filter("copy", small()).await.unwrap();
    assert_eq!(engine.catalog.promised.lock().len(), 0);
    let large = SpecRequest::new(500_000_000, 0.01);
    engine.create_filter("large", large).await.unwrap();
    let refused = engine.copy_filter("large", "larger").await;
    assert!(
        matches!(refused, Err(EngineError::OverBudget(_))),
        "{refused:?}"
    );
    assert_eq!(engine.catalog.promised.lock().len(), 0);
}
