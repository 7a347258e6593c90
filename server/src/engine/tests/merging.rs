//! Merges of filters while others write, the power is cut, and the disk fails.

mod counting;
mod layers;

use std::{io, ops::Range};

use futures_util::future::join_all;

use fastrand::Rng;

use super::{
    durability::{key, start},
    kinds::{Sample, keys},
    *,
};
use crate::store::simulated::{Fault, SimulatedDisk};

/// Returns an engine with the filter `urls` with keys 0 to 29, and a copy of it. The copy was made
/// when `urls` had 10 keys, and has the keys 30 to 49 too. Some keys of each are in a snapshot and
/// some in the log.
async fn filled(disk: &SimulatedDisk, sample: &Sample) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    sample.make(&engine, "urls").await.unwrap();
    engine.add_batch("urls", keys(0..10)).await.unwrap();
    let filter = find(&engine, "urls").unwrap();
    if filter.spec().body.layers().is_some() {
        // The second layer has room for all keys that come to both filters.
        engine.add_batch("urls", keys(1000..1150)).await.unwrap();
        assert_eq!(filter.status().layers.unwrap().layers, 2);
    }
    engine.copy_filter("urls", "copy").await.unwrap();
    for (name, range) in [("urls", 10..20), ("copy", 30..40)] {
        engine.add_batch(name, keys(range)).await.unwrap();
        engine.store(name).await.unwrap();
    }
    for (name, range) in [("urls", 20..30), ("copy", 40..50)] {
        engine.add_batch(name, keys(range)).await.unwrap();
    }
    engine
}

/// Returns the number of the given keys that are seen.
async fn seen(engine: &Engine, filter: &str, range: Range<u64>) -> usize {
    let mut count = 0;
    for keys in keys(range).chunks(1000) {
        let seen = engine.query_batch(filter, keys.to_vec()).await;
        count += seen.unwrap().iter().filter(|&&seen| seen).count();
    }
    count
}

/// An answer from before a crash stays true after it, even if a merge has not ended: a key that was
/// found in the other filter, or was not added for that reason, is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_at_any_call_takes_nothing_that_was_told() {
    for sample in Sample::growing_from(100) {
        cut_power_at_any_call(&sample, true, 0).await;
        // After merges without an answer, a start finds either all keys or none. It finds all keys
        // only if the power is cut after the last write of the merge and before its answer, which
        // can take more than one seed.
        let (mut whole, mut nothing) = (0, 0);
        for seed in 1..=10 {
            let found = cut_power_at_any_call(&sample, false, seed).await;
            (whole, nothing) = (whole + found[0], nothing + found[1]);
            if whole > 0 && nothing > 0 {
                break;
            }
        }
        assert!(
            whole > 0 && nothing > 0,
            "{sample}: {whole} whole, {nothing} nothing"
        );
    }
}

/// Returns how often all keys, and how often none, were found of a merge without an answer.
async fn cut_power_at_any_call(sample: &Sample, others_write: bool, seed: u64) -> [u64; 2] {
    let mut chance = Rng::with_seed(seed);
    let (mut whole, mut nothing) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let merge = {
            let engine = engine.clone();
            tokio::spawn(async move { engine.merge_filters("copy", "urls").await })
        };
        // Meanwhile keys of the other filter are asked for and added here.
        let mut told = Vec::new();
        for index in (30..50).cycle() {
            if engine.query("urls", &key(index)).await.unwrap_or(false) {
                told.push(index);
            }
            if others_write && index % 7 == 0 && engine.add("urls", &key(index)).await.is_ok() {
                told.push(index);
            }
            if merge.is_finished() {
                break;
            }
        }
        let merged = merge.await.unwrap();
        let used = disk.calls() - before;
        drop(engine);
        let found = match call % 2 {
            0 => disk.cut(&mut chance),
            _ => disk.kill().cut(&mut chance),
        };
        let case = format!("{sample}, call {call}");
        let engine = start(&found, Durability::Always).await.unwrap();
        assert_eq!(seen(&engine, "urls", 0..30).await, 30, "{case}");
        assert_eq!(seen(&engine, "copy", 30..50).await, 20, "{case}");
        assert_eq!(seen(&engine, "copy", 10..30).await, 0, "{case}");
        for &index in &told {
            let seen = engine.query("urls", &key(index)).await.unwrap();
            assert!(seen, "{case}: {index} of {told:?}");
        }
        let taken = seen(&engine, "urls", 30..50).await;
        assert!(merged.is_err() || taken == 20, "{case}: {taken}");
        whole += u64::from(merged.is_err() && taken == 20);
        nothing += u64::from(merged.is_err() && taken == 0);
        engine.merge_filters("copy", "urls").await.unwrap();
        assert_eq!(seen(&engine, "urls", 0..50).await, 50, "{case}");

        // The number of calls of the writers varies.
        if merged.is_ok() && used < call {
            break;
        }
    }
    [whole, nothing]
}

#[tokio::test]
async fn a_disk_that_fails_leaves_what_can_be_merged_again() {
    for sample in Sample::growing_from(100) {
        fail_at_any_call(&sample).await;
    }
}

async fn fail_at_any_call(sample: &Sample) {
    let mut refused = 0;
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let merged = engine.merge_filters("copy", "urls").await;
        let used = disk.calls() - before;
        disk.heal();
        refused += u64::from(merged.is_err());
        // Keys are refused until the failed log has retried.
        while engine.add("urls", &key(60)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        engine.store("urls").await.unwrap();
        let found = start(&disk.kill(), Durability::Always).await.unwrap();
        assert_eq!(
            seen(&found, "urls", 0..30).await,
            30,
            "{sample}, call {call}"
        );
        assert!(found.query("urls", &key(60)).await.unwrap());
        if merged.is_ok() {
            assert_eq!(
                seen(&found, "urls", 30..50).await,
                20,
                "{sample}, call {call}"
            );
        }
        for engine in [&found, &engine] {
            engine.merge_filters("copy", "urls").await.unwrap();
            assert_eq!(
                seen(engine, "urls", 0..50).await,
                50,
                "{sample}, call {call}"
            );
        }
        if used <= call {
            break;
        }
    }
    assert!(refused > 5, "{refused}");
}

#[tokio::test]
async fn a_union_has_the_keys_of_both_and_they_are_counted_once() {
    for layout in Layout::OWN {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, Durability::Always).await.unwrap();
        let spec = SpecRequest {
            layout,
            ..SpecRequest::new(3000, 0.001)
        };
        engine.create_filter("urls", spec).await.unwrap();
        engine.copy_filter("urls", "copy").await.unwrap();
        for first in [0, 500, 1000] {
            engine
                .add_batch("urls", keys(first..first + 500))
                .await
                .unwrap();
            let copied = keys(first + 1000..first + 1500);
            engine.add_batch("copy", copied).await.unwrap();
        }
        let before = engine.get_filter("urls").await.unwrap();
        let merged = engine.merge_filters("copy", "urls").await.unwrap();
        let expected = 2500.0;
        let error = (merged.keys_added as f64 - expected).abs() / expected;
        assert!(error < 0.02, "{layout}: {} keys", merged.keys_added);
        assert_eq!(merged.version, before.version + 1);
        assert_eq!(merged.last_store.unwrap().version, merged.version);
        assert_eq!(seen(&engine, "urls", 0..2500).await, 2500);
        // A second merge changes nothing, also after a start.
        let again = engine.merge_filters("copy", "urls").await.unwrap();
        assert_eq!(again.keys_added, merged.keys_added);
        assert_eq!(again.fill_ratio, merged.fill_ratio);
        let found = start(&disk.kill(), Durability::Always).await.unwrap();
        let found = found.get_filter("urls").await.unwrap();
        assert_eq!(found.keys_added, merged.keys_added);
        assert_eq!(found.fill_ratio, merged.fill_ratio);
        assert_eq!(found.version, again.version);
    }
}

/// A merge makes nobody wait, and keys that are added meanwhile stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_go_on_while_filters_are_merged() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    let spec = SpecRequest::new(2_000_000, 1e-9);
    engine.create_filter("a", spec).await.unwrap();
    engine.copy_filter("a", "b").await.unwrap();
    engine.add_batch("a", keys(0..1000)).await.unwrap();
    engine.add_batch("b", keys(1000..2000)).await.unwrap();
    let writers = (0..4_u64).map(|writer| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let name = ["a", "b"][writer as usize % 2];
            for round in 0..50 {
                let first = 2000 + (writer * 50 + round) * 10;
                let added = engine.add_batch(name, keys(first..first + 10)).await;
                added.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    // Both directions run at once, and each filter is stored meanwhile.
    let (first, second, stored) = tokio::join!(
        engine.merge_filters("a", "b"),
        engine.merge_filters("b", "a"),
        engine.store(""),
    );
    first.unwrap();
    second.unwrap();
    stored.unwrap();
    join_all(writers).await;
    let engines = [start(&disk.kill(), INTERVAL).await.unwrap(), engine];
    for engine in engines {
        for name in ["a", "b"] {
            assert_eq!(seen(&engine, name, 0..2000).await, 2000, "{name}");
        }
        for writer in 0..4 {
            let first = 2000 + writer * 500;
            let name = ["a", "b"][writer as usize % 2];
            assert_eq!(seen(&engine, name, first..first + 500).await, 500);
        }
    }
}

#[tokio::test]
async fn filters_that_are_no_copies_are_not_merged() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let counting = SpecRequest {
        kind: Kind::Counting,
        ..small()
    };
    for (name, spec) in [
        ("urls", small()),
        ("same", small()),
        ("larger", SpecRequest::new(2000, 0.01)),
        ("counted", counting),
    ] {
        engine.create_filter(name, spec).await.unwrap();
        engine.add(name, name).await.unwrap();
    }
    for (source, target, words) in [
        ("same", "urls", "differ in secret,"),
        ("larger", "urls", "capacity, bit_count, secret,"),
        ("counted", "urls", "kind, secret,"),
    ] {
        let before = engine.get_filter(target).await.unwrap();
        let error = engine.merge_filters(source, target).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(error, EngineError::NotMergeable { .. }));
        let after = engine.get_filter(target).await.unwrap();
        assert_eq!(after.version, before.version);
    }
    // A reset filter keeps its secret.
    engine.copy_filter("urls", "empty").await.unwrap();
    engine.reset_filter("empty").await.unwrap();
    engine.merge_filters("urls", "empty").await.unwrap();
    assert!(engine.query("empty", "urls").await.unwrap());
}
