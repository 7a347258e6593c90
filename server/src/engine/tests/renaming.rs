//! Filters that get another name while the power is cut, the disk fails, and calls go on.

use std::io;

use super::{
    durability::{key, start},
    *,
};
use crate::store::{
    Disk,
    simulated::{Chance, Fault, SimulatedDisk},
};

/// A filter with keys in a snapshot, in the log, and won by a request.
async fn filled(disk: &SimulatedDisk) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", small()).await.unwrap();
    engine.add("urls", &key(0)).await.unwrap();
    engine.store("urls").await.unwrap();
    assert!(!won(&engine, "urls").await);
    engine
}

async fn won(engine: &Engine, filter: &str) -> bool {
    let request_id = "first";
    let call = Call {
        filter,
        request_id,
        max_age: None,
    };
    engine.query_and_add(call, &key(1)).await.unwrap()
}

/// Which of the names is the filter's, if it is one alone.
async fn name_of(engine: &Engine, names: [&'static str; 2]) -> Option<&'static str> {
    let [first, second] = names.map(|name| engine.get_filter(name));
    match (first.await, second.await) {
        (Ok(_), Err(EngineError::UnknownFilter { .. })) => Some(names[0]),
        (Err(EngineError::UnknownFilter { .. }), Ok(_)) => Some(names[1]),
        _ => None,
    }
}

/// Of the files there are, none is another's, and each has the name of its filter.
fn check_files(disk: &SimulatedDisk, engine: &Engine, name: &str, case: &str) {
    let oddities = engine.oddities();
    assert_eq!(*oddities, Oddities::default(), "{case}");
    for file in Disk::names(disk).unwrap() {
        let is_named = file.starts_with(&format!("{name}.snapshot."));
        assert!(is_named || !file.contains(".snapshot"), "{case}: {file}");
    }
}

#[tokio::test]
async fn a_power_cut_at_any_call_leaves_the_filter_under_one_name() {
    let mut chance = Chance::new(1);
    let mut names = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
        disk.fail(disk.calls() + call, 1, Fault::PowerCut);
        let renamed = engine.rename_filter("urls", "pages").await;
        drop(engine);
        let killed = disk.kill();
        for cut in 0..12 {
            let found = match cut % 3 {
                0 => disk.cut(&mut chance),
                // A start that was cut short in its turn.
                1 => {
                    let started = disk.cut(&mut chance);
                    started.fail(chance.below(12), 1, Fault::PowerCut);
                    let _ = start(&started, Durability::Always).await;
                    started.cut(&mut chance)
                }
                _ => killed.cut(&mut chance),
            };
            let case = format!("call {call}, cut {cut}");
            let engine = start(&found, Durability::Always).await.unwrap();
            let name = name_of(&engine, ["urls", "pages"]).await;
            let name = name.unwrap_or_else(|| panic!("{case}: none or both"));
            assert!(renamed.is_err() || name == "pages", "{case}");
            check_files(&found, &engine, name, &case);
            let seen = engine.query(name, &key(0)).await;
            assert!(matches!(seen, Ok(true)), "{case}: {seen:?}");
            assert!(!won(&engine, name).await, "{case}");
            // Whoever asks again gets what was asked for.
            let again = engine.rename_filter("urls", "pages").await;
            assert_eq!(again.unwrap().name.as_str(), "pages", "{case}");
            names.push(name);
        }
        if renamed.is_ok() {
            break;
        }
    }
    assert!(names.contains(&"urls") && names.contains(&"pages"));
}

/// Whatever the disk makes of it, the filter goes on, and nothing that it takes is lost.
#[tokio::test]
async fn a_disk_that_fails_leaves_the_filter_in_use() {
    let (mut kept, mut in_doubt) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
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
            Err(error) => panic!("call {call}: {error}"),
        };
        engine.add(name, &key(2)).await.unwrap();
        for seed in 0..8 {
            let found = disk.cut(&mut Chance::new(seed));
            let engine = start(&found, Durability::Always).await.unwrap();
            let found_name = name_of(&engine, ["urls", "pages"]).await.unwrap();
            let may_differ = matches!(renamed, Err(EngineError::NotDurable(_)));
            assert!(may_differ || found_name == name, "call {call}");
            let keys: Vec<String> = (0..3).map(key).collect();
            let seen = engine.query_batch(found_name, keys).await.unwrap();
            assert_eq!(seen, [true; 3], "call {call}");
        }
        // The next one succeeds, and the filter is stored under the name.
        engine.rename_filter(name, "last").await.unwrap();
        engine.store("last").await.unwrap();
        engine.add("last", &key(3)).await.unwrap();
        drop(engine);
        let engine = start(&disk, Durability::Always).await.unwrap();
        let keys: Vec<String> = (0..4).map(key).collect();
        let seen = engine.query_batch("last", keys).await.unwrap();
        assert_eq!(seen, [true; 4], "call {call}");
        if used <= call {
            break;
        }
    }
    assert!(kept > 0 && in_doubt > 0, "{kept} kept, {in_doubt} in doubt");
}

/// A name is of the filter that has it now, also where many change theirs at once.
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
    assert_eq!(*engine.oddities(), Oddities::default());
}

/// A call that has waited for a filter while that was renamed is about the name that it was given.
#[tokio::test]
async fn whoever_has_waited_looks_again() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk).await;
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    let turn = filter.turn().await;
    let (renamed, deleted, stored, ()) = tokio::join!(
        engine.rename_filter("urls", "pages"),
        engine.delete_filter("urls"),
        engine.store("urls"),
        async { drop(turn) },
    );
    assert_eq!(renamed.unwrap().name.as_str(), "pages");
    assert!(matches!(deleted, Err(EngineError::UnknownFilter { .. })));
    // That one was found before.
    assert_eq!(stored.unwrap()[0].name.as_str(), "pages");
    assert!(engine.query("pages", &key(0)).await.unwrap());
}

/// What a rename had written before it failed is of no use to anybody, and goes with the next start,
/// also when others have been stored since.
#[tokio::test]
async fn what_was_written_for_another_name_is_removed() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk).await;
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
        // The last step of it may be done, and is not relied on.
        if matches!(renamed, Err(EngineError::NotDurable(_))) && has_stray() {
            break;
        }
        assert!(renamed.is_err(), "call {call}");
    }
    engine.add("urls", &key(2)).await.unwrap();
    engine.store("urls").await.unwrap();
    assert!(has_stray());
    drop(engine);
    let engine = start(&disk, Durability::Always).await.unwrap();
    check_files(&disk, &engine, "urls", "after the start");
    assert!(engine.query("urls", &key(0)).await.unwrap());
}
