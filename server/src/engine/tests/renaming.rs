//! Renames of filters while the power is cut, the disk fails, and calls go on.

use std::io;

use fastrand::Rng;

use super::{
    durability::{key, start},
    kinds::{Sample, counts, keys},
    *,
};
use crate::store::{
    Disk,
    simulated::{Fault, SimulatedDisk},
};

/// The number of keys that are added first, each twice.
const KEYS: u64 = 10;

/// Returns an engine with a filter that has keys in a snapshot, in the log, and added by a request.
async fn filled(disk: &SimulatedDisk, sample: &Sample) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    sample.make(&engine, "urls").await.unwrap();
    engine.add_batch("urls", keys(0..5)).await.unwrap();
    engine.store("urls").await.unwrap();
    for range in [0..KEYS, 5..KEYS] {
        engine.add_batch("urls", keys(range)).await.unwrap();
    }
    assert!(!won(&engine, "urls").await);
    engine
}

/// Returns the counts of the keys that were added, of the key that a request added first, and of a
/// key that may have been added since.
async fn found(engine: &Engine, filter: &str) -> [Vec<u32>; 3] {
    let mut added = counts(engine, filter, 0..KEYS + 2).await;
    let since = added.split_off(KEYS as usize + 1);
    let won = added.split_off(KEYS as usize);
    [added, won, since]
}

async fn won(engine: &Engine, filter: &str) -> bool {
    let request_id = "first";
    let call = Call {
        filter,
        request_id,
        max_age: None,
        deadline: None,
    };
    engine.query_and_add(call, &key(KEYS)).await.unwrap()
}

/// Returns the name of the filter, if exactly one of the names is in use.
fn name_of(engine: &Engine, names: [&'static str; 2]) -> Option<&'static str> {
    match names.map(|name| find(engine, name).is_some()) {
        [true, false] => Some(names[0]),
        [false, true] => Some(names[1]),
        _ => None,
    }
}

/// Checks that every snapshot file has the name of its filter, and that no file is of another one.
fn check_files(disk: &SimulatedDisk, engine: &Engine, name: &str, case: &str) {
    let startup_warnings = engine.startup_warnings();
    assert_eq!(*startup_warnings, StartupWarnings::default(), "{case}");
    for file in Disk::names(disk).unwrap() {
        let is_named = file.starts_with(&format!("{name}.snapshot."));
        assert!(is_named || !file.contains(".snapshot"), "{case}: {file}");
    }
}

#[tokio::test]
async fn a_power_cut_at_any_call_leaves_the_filter_under_one_name() {
    for (seed, sample) in (0..).zip(Sample::all()) {
        cut_power_at_any_call(&sample, seed).await;
    }
}

async fn cut_power_at_any_call(sample: &Sample, seed: u64) {
    let mut chance = Rng::with_seed(seed);
    let mut names = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        disk.fail(disk.calls() + call, 1, Fault::PowerCut);
        let renamed = engine.rename_filter("urls", "pages").await;
        drop(engine);
        let killed = disk.kill();
        // Another crash at each call, and with each sample.
        let after = match (call + seed) % 3 {
            0 => disk.cut(&mut chance),
            // A start that was interrupted too.
            1 => {
                let started = disk.cut(&mut chance);
                started.fail(chance.u64(..12), 1, Fault::PowerCut);
                let _ = start(&started, Durability::Always).await;
                started.cut(&mut chance)
            }
            _ => killed.cut(&mut chance),
        };
        let case = format!("{sample}, call {call}");
        let engine = start(&after, Durability::Always).await.unwrap();
        let name = name_of(&engine, ["urls", "pages"]);
        let name = name.unwrap_or_else(|| panic!("{case}: none or both"));
        assert!(renamed.is_err() || name == "pages", "{case}");
        check_files(&after, &engine, name, &case);
        assert!(!won(&engine, name).await, "{case}");
        let [added, won, since] = found(&engine, name).await;
        assert_eq!(added, [sample.times(2); KEYS as usize], "{case}");
        assert_eq!((won, since), (vec![1], vec![0]), "{case}");
        // A repeated rename succeeds.
        let again = engine.rename_filter("urls", "pages").await;
        assert_eq!(again.unwrap().name.as_str(), "pages", "{case}");
        names.push(name);
        if renamed.is_ok() {
            break;
        }
    }
    assert!(
        names.contains(&"urls") && names.contains(&"pages"),
        "{sample}"
    );
}

/// Whatever error the disk returns, the filter stays in use and no key that it takes is lost.
#[tokio::test]
async fn a_disk_that_fails_leaves_the_filter_in_use() {
    for sample in Sample::all() {
        fail_at_any_call(&sample).await;
    }
}

async fn fail_at_any_call(sample: &Sample) {
    let (mut kept, mut in_doubt) = (0, 0);
    for call in 0.. {
        let case = format!("{sample}, call {call}");
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let renamed = engine.rename_filter("urls", "pages").await;
        let used = disk.calls() - before;
        disk.heal();
        let name = match &renamed {
            Ok(_) => "pages",
            Err(EngineError::StorageFailed(_)) => {
                kept += 1;
                "urls"
            }
            Err(EngineError::NotDurable(_)) => {
                in_doubt += 1;
                "urls"
            }
            Err(error) => panic!("{case}: {error}"),
        };
        engine.add(name, &key(KEYS + 1)).await.unwrap();
        let all = [vec![sample.times(2); KEYS as usize], vec![1], vec![1]];
        let after = disk.cut(&mut Rng::with_seed(call));
        let restarted = start(&after, Durability::Always).await.unwrap();
        let found_name = name_of(&restarted, ["urls", "pages"]).unwrap();
        let may_differ = matches!(renamed, Err(EngineError::NotDurable(_)));
        assert!(may_differ || found_name == name, "{case}");
        assert_eq!(found(&restarted, found_name).await, all, "{case}");
        // The next rename succeeds, and the filter is stored under the new name.
        engine.rename_filter(name, "last").await.unwrap();
        engine.store("last").await.unwrap();
        engine.add("last", &key(KEYS + 1)).await.unwrap();
        drop(engine);
        let engine = start(&disk, Durability::Always).await.unwrap();
        let [added, won, since] = found(&engine, "last").await;
        assert_eq!([added, won], all[..2], "{case}");
        assert_eq!(since, [sample.times(2)], "{case}");
        if used <= call {
            break;
        }
    }
    assert!(
        kept > 0 && in_doubt > 0,
        "{sample}: {kept} kept, {in_doubt} in doubt"
    );
}

/// A name belongs to the filter that has it now, even if many filters change names at once.
#[tokio::test]
async fn names_go_round() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        engine.create_filter(name, small()).await.unwrap();
        engine.add(name, &key(index as u64)).await.unwrap();
    }
    let rename = async |from: &str, to: &str| engine.rename_filter(from, to).await.unwrap();
    rename("a", "c").await;
    rename("b", "a").await;
    engine.store("").await.unwrap();
    rename("c", "b").await;
    let stale = engine.delete_filter("c").await;
    assert!(matches!(stale, Err(EngineError::UnknownFilter { .. })));
    let check = async |engine: &Engine| {
        for (name, seen) in [("a", [false, true]), ("b", [true, false])] {
            let keys: Vec<String> = (0..2).map(key).collect();
            assert_eq!(
                engine.query_batch(name, keys).await.unwrap(),
                seen,
                "{name}"
            );
        }
    };
    check(&engine).await;
    drop(engine);
    let engine = start(&disk.kill(), Durability::Always).await.unwrap();
    check(&engine).await;
    assert_eq!(*engine.startup_warnings(), StartupWarnings::default());
}

/// A call that waits for a filter while it is renamed applies to the name that it was given.
#[tokio::test]
async fn whoever_has_waited_looks_again() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, &Sample::plain()).await;
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    let lock = filter.snapshot_lock().await;
    let (renamed, deleted, stored, ()) = tokio::join!(
        engine.rename_filter("urls", "pages"),
        engine.delete_filter("urls"),
        engine.store("urls"),
        async { drop(lock) },
    );
    assert_eq!(renamed.unwrap().name.as_str(), "pages");
    assert!(matches!(deleted, Err(EngineError::UnknownFilter { .. })));
    // The store had found the filter before the rename.
    assert_eq!(stored.unwrap()[0].name.as_str(), "pages");
    assert!(engine.query("pages", &key(0)).await.unwrap());
}

/// Files that a failed rename has written are useless. The next start removes them, even if other
/// files have been stored since.
#[tokio::test]
async fn what_was_written_for_another_name_is_removed() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, &Sample::plain()).await;
    let is_stray = |file: &String| file.starts_with("pages.snapshot.");
    let has_stray = || {
        Disk::names(&disk)
            .unwrap()
            .into_iter()
            .any(|file| is_stray(&file))
    };
    for call in 0.. {
        disk.fail(disk.calls() + call, 1, Fault::Error(io::ErrorKind::Other));
        let renamed = engine.rename_filter("urls", "pages").await;
        disk.heal();
        // The last step of the rename may have been done. Nothing relies on it.
        if matches!(renamed, Err(EngineError::NotDurable(_))) && has_stray() {
            break;
        }
        assert!(renamed.is_err(), "call {call}");
    }
    engine.add("urls", &key(KEYS + 1)).await.unwrap();
    engine.store("urls").await.unwrap();
    assert!(has_stray());
    drop(engine);
    let engine = start(&disk, Durability::Always).await.unwrap();
    check_files(&disk, &engine, "urls", "after the start");
    assert!(engine.query("urls", &key(0)).await.unwrap());
}
