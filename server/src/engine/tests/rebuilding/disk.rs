//! Rebuilds of filters while the power is cut and the disk fails.

use std::io;

use fastrand::Rng;

use super::{
    super::kinds::{Sample, counts, keys},
    *,
};
use crate::store::simulated::Fault;

/// Returns an engine with a filter that has the keys 0 to 9.
async fn filled(disk: &SimulatedDisk, sample: &Sample) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    sample.make(&engine, "urls").await.unwrap();
    engine.add_batch("urls", keys(0..10)).await.unwrap();
    engine
}

/// The name belongs to one of the two filters, with every acknowledged key, and the call can be
/// repeated.
#[tokio::test]
async fn a_power_cut_at_any_call_leaves_one_or_the_other() {
    for (seed, sample) in (0..).zip(Sample::all()) {
        cut_power_at_any_call(&sample, seed).await;
    }
}

async fn cut_power_at_any_call(sample: &Sample, seed: u64) {
    let mut chance = Rng::with_seed(seed);
    let mut found_new = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine.add("urls", &key(10)).await.unwrap();
        engine.add("urls", &key(10)).await.unwrap();
        let won = engine.query_and_add(named("urls", "won"), &key(11)).await;
        assert!(!won.unwrap());
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let finished = engine.finish_rebuild("urls", "new").await;
        let used = disk.calls() - before;
        let added = engine.add("urls", &key(12)).await;
        drop(engine);
        let found = match (call + seed) % 2 {
            0 => disk.cut(&mut chance),
            _ => disk.kill().cut(&mut chance),
        };
        let case = format!("{sample}, call {call}");
        let engine = start(&found, Durability::Always).await.unwrap();
        let keys = seen(&engine, "urls", 0..13).await;
        let is_new = !keys[0];
        found_new.push(is_new);
        assert_eq!(keys[..10], [!is_new; 10], "{case}");
        assert!(finished.is_err() || is_new, "{case}");
        assert_eq!(keys[10..12], [true; 2], "{case}");
        assert!(added.is_err() || keys[12], "{case}");
        let filters = engine.list_filters(0, "").await.unwrap().filters.len();
        assert_eq!(filters, if is_new { 1 } else { 2 }, "{case}");
        let won = engine.query_and_add(named("urls", "won"), &key(11)).await;
        assert!(!won.unwrap(), "{case}");
        // Keys that are added now go to the remaining filter.
        engine.add("urls", &key(13)).await.unwrap();
        engine.finish_rebuild("urls", "new").await.unwrap();
        drop(engine);
        let engine = start(&found.cut(&mut chance), Durability::Always).await;
        let engine = engine.unwrap();
        let won = engine.query_and_add(named("urls", "won"), &key(11)).await;
        assert!(!won.unwrap(), "{case}");
        let keys = counts(&engine, "urls", 9..14).await;
        let doubted = keys[3];
        let expected = [0, sample.times(2), 1, doubted, 1];
        assert_eq!(keys, expected, "{case}");
        assert!(doubted == 1 || doubted == 0 && added.is_err(), "{case}");
        if used <= call {
            break;
        }
    }
    let both = found_new.contains(&true) && found_new.contains(&false);
    assert!(both, "{sample}");
}

#[tokio::test]
async fn a_power_cut_at_the_beginning_leaves_no_half_of_it() {
    for (seed, sample) in (0..).zip(Sample::all()) {
        cut_power_at_the_beginning(&sample, seed).await;
    }
}

async fn cut_power_at_the_beginning(sample: &Sample, seed: u64) {
    let mut chance = Rng::with_seed(seed);
    let mut found_new = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let started = engine.start_rebuild("urls", "new", None).await;
        let used = disk.calls() - before;
        let added = engine.add("urls", &key(10)).await;
        drop(engine);
        let found = match (call + seed) % 2 {
            0 => disk.cut(&mut chance),
            _ => disk.kill().cut(&mut chance),
        };
        let case = format!("{sample}, call {call}");
        let engine = start(&found, Durability::Always).await.unwrap();
        let is_new = find(&engine, "new").is_some();
        found_new.push(is_new);
        assert!(started.is_err() || is_new, "{case}");
        // The rebuild has certainly begun now.
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine.add("urls", &key(11)).await.unwrap();
        engine.finish_rebuild("urls", "new").await.unwrap();
        let keys = counts(&engine, "urls", 9..12).await;
        let doubted = keys[1];
        assert_eq!(keys, [0, doubted, 1], "{case}");
        let followed = started.is_ok() && added.is_ok();
        assert!(doubted == 1 || doubted == 0 && !followed, "{case}");
        if used <= call {
            break;
        }
    }
    let both = found_new.contains(&true) && found_new.contains(&false);
    assert!(both, "{sample}");
}

/// The last step may have been done although it fails. A key that is added after that would be lost
/// with one of the two filters.
#[tokio::test]
async fn a_disk_that_fails_leaves_both_in_use_or_in_doubt() {
    for sample in Sample::all() {
        fail_at_any_call(&sample).await;
    }
}

async fn fail_at_any_call(sample: &Sample) {
    let (mut kept, mut in_doubt) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        let won = engine.query_and_add(named("urls", "won"), &key(10)).await;
        assert!(!won.unwrap());
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let finished = engine.finish_rebuild("urls", "new").await;
        let used = disk.calls() - before;
        disk.heal();
        let mut added = engine.add("urls", &key(11)).await;
        match (&finished, &added) {
            (Err(EngineError::StorageFailed(_)), Ok(())) => kept += 1,
            // The log can need a moment to find that it can be written again.
            (Err(EngineError::StorageFailed(_)), Err(_)) => {
                kept += 1;
                while added.is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    added = engine.add("urls", &key(11)).await;
                }
            }
            (Err(EngineError::NotDurable(_)), Err(EngineError::StorageFailed(_))) => in_doubt += 1,
            (Ok(_), Ok(())) => {}
            other => panic!("{sample}, call {call}: {other:?}"),
        }
        let found = disk.cut(&mut Rng::with_seed(call));
        let found = start(&found, Durability::Always).await.unwrap();
        let keys = counts(&found, "urls", 10..12).await;
        assert_eq!(keys, [1, u32::from(added.is_ok())], "{sample}, call {call}");
        engine.finish_rebuild("urls", "new").await.unwrap();
        engine.add("urls", &key(11)).await.unwrap();
        drop(engine);
        let engine = start(&disk.kill(), Durability::Always).await.unwrap();
        let won = engine.query_and_add(named("urls", "won"), &key(10)).await;
        assert!(!won.unwrap(), "{sample}, call {call}");
        let added = sample.times(1 + u32::from(added.is_ok()));
        let keys = counts(&engine, "urls", 9..12).await;
        assert_eq!(keys, [0, 1, added], "{sample}, call {call}");
        if used <= call {
            break;
        }
    }
    assert!(
        kept > 0 && in_doubt > 0,
        "{sample}: {kept} kept, {in_doubt} in doubt"
    );
}

/// A filter that may be back after a crash must have the keys that were added meanwhile.
#[tokio::test]
async fn a_new_filter_whose_removal_is_in_doubt_misses_nothing() {
    for sample in Sample::all() {
        fail_a_removal(&sample).await;
    }
}

async fn fail_a_removal(sample: &Sample) {
    let (mut kept, mut in_doubt, mut back) = (0, 0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let deleted = engine.delete_filter("new").await;
        let used = disk.calls() - before;
        disk.heal();
        let added = engine.add("urls", &key(10)).await;
        match (&deleted, &added) {
            (Err(EngineError::StorageFailed(_)), Ok(())) => kept += 1,
            (Err(EngineError::NotDurable(_)), Err(EngineError::StorageFailed(_))) => in_doubt += 1,
            (Ok(()), Ok(())) => {}
            other => panic!("{sample}, call {call}: {other:?}"),
        }
        for seed in 0..2 {
            let found = disk.cut(&mut Rng::with_seed(seed));
            let found = start(&found, Durability::Always).await.unwrap();
            if find(&found, "new").is_some() {
                back += 1;
                let missing = added.is_ok() && !seen(&found, "new", 10..11).await[0];
                assert!(!missing, "{sample}, call {call}, seed {seed}");
            }
        }
        engine.store("urls").await.unwrap();
        engine.add("urls", &key(10)).await.unwrap();
        if used <= call {
            break;
        }
    }
    assert!(
        kept > 0 && in_doubt > 0 && back > 0,
        "{sample}: {kept}, {in_doubt}, {back}"
    );
}
