//! Filters that are rebuilt while the power is cut, and the disk fails.

use std::io;

use super::*;
use crate::store::simulated::{Chance, Fault};

/// Under the name is one of the two, with all that was acknowledged, and the call can be repeated.
#[tokio::test]
async fn a_power_cut_at_any_call_leaves_one_or_the_other() {
    let mut chance = Chance::new(1);
    let mut found_new = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, exact()).await;
        engine.start_rebuild("urls", "new", None).await.unwrap();
        engine.add("urls", &key(10)).await.unwrap();
        let won = engine.query_and_add(named("urls", "won"), &key(11)).await;
        assert!(!won.unwrap());
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let finished = engine.finish_rebuild("urls", "new").await;
        let used = disk.calls() - before;
        let added = engine.add("urls", &key(12)).await;
        drop(engine);
        for cut in 0..12 {
            let found = match cut % 2 {
                0 => disk.cut(&mut chance),
                _ => disk.kill().cut(&mut chance),
            };
            let case = format!("call {call}, cut {cut}");
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
            // What comes now comes to whichever is left.
            engine.add("urls", &key(13)).await.unwrap();
            engine.finish_rebuild("urls", "new").await.unwrap();
            drop(engine);
            let engine = start(&found.cut(&mut chance), Durability::Always).await;
            let engine = engine.unwrap();
            let keys = seen(&engine, "urls", 9..14).await;
            assert_eq!(keys[..3], [false, true, true], "{case}");
            assert!(keys[4] && (added.is_err() || keys[3]), "{case}");
            let won = engine.query_and_add(named("urls", "won"), &key(11)).await;
            assert!(!won.unwrap(), "{case}");
        }
        if used <= call {
            break;
        }
    }
    assert!(found_new.contains(&true) && found_new.contains(&false));
}

#[tokio::test]
async fn a_power_cut_at_the_beginning_leaves_no_half_of_it() {
    let mut chance = Chance::new(1);
    let mut found_new = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, exact()).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let started = engine.start_rebuild("urls", "new", None).await;
        let used = disk.calls() - before;
        let added = engine.add("urls", &key(10)).await;
        drop(engine);
        for cut in 0..12 {
            let found = match cut % 2 {
                0 => disk.cut(&mut chance),
                _ => disk.kill().cut(&mut chance),
            };
            let case = format!("call {call}, cut {cut}");
            let engine = start(&found, Durability::Always).await.unwrap();
            let is_new = engine.get_filter("new").await.is_ok();
            found_new.push(is_new);
            assert!(started.is_err() || is_new, "{case}");
            // It is begun for certain now.
            engine.start_rebuild("urls", "new", None).await.unwrap();
            engine.add("urls", &key(11)).await.unwrap();
            engine.finish_rebuild("urls", "new").await.unwrap();
            let keys = seen(&engine, "urls", 9..12).await;
            let followed = started.is_ok() && added.is_ok();
            assert!(!followed || keys[1], "{case}");
            assert!(!keys[0] && keys[2], "{case}");
        }
        if used <= call {
            break;
        }
    }
    assert!(found_new.contains(&true) && found_new.contains(&false));
}

/// The last step may be done although it fails: what is added after that would be lost with one of
/// the two.
#[tokio::test]
async fn a_disk_that_fails_leaves_both_in_use_or_in_doubt() {
    let (mut kept, mut in_doubt) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, exact()).await;
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
            // The log may take a moment to find that it can be written again.
            (Err(EngineError::StorageFailed(_)), Err(_)) => {
                kept += 1;
                while added.is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    added = engine.add("urls", &key(11)).await;
                }
            }
            (Err(EngineError::NotDurable(_)), Err(EngineError::StorageFailed(_))) => in_doubt += 1,
            (Ok(_), Ok(())) => {}
            other => panic!("call {call}: {other:?}"),
        }
        for seed in 0..8 {
            let found = disk.cut(&mut Chance::new(seed));
            let found = start(&found, Durability::Always).await.unwrap();
            let keys = seen(&found, "urls", 10..12).await;
            assert!(keys[0] && (added.is_err() || keys[1]), "call {call}");
        }
        engine.finish_rebuild("urls", "new").await.unwrap();
        engine.add("urls", &key(11)).await.unwrap();
        drop(engine);
        let engine = start(&disk.kill(), Durability::Always).await.unwrap();
        assert_eq!(seen(&engine, "urls", 9..12).await, [false, true, true]);
        let won = engine.query_and_add(named("urls", "won"), &key(10)).await;
        assert!(!won.unwrap(), "call {call}");
        if used <= call {
            break;
        }
    }
    assert!(kept > 0 && in_doubt > 0, "{kept} kept, {in_doubt} in doubt");
}

/// One that may be back after a crash must not be without what came meanwhile.
#[tokio::test]
async fn a_new_filter_whose_removal_is_in_doubt_misses_nothing() {
    let (mut kept, mut in_doubt, mut back) = (0, 0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, exact()).await;
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
            other => panic!("call {call}: {other:?}"),
        }
        for seed in 0..8 {
            let found = disk.cut(&mut Chance::new(seed));
            let found = start(&found, Durability::Always).await.unwrap();
            if found.get_filter("new").await.is_ok() {
                back += 1;
                let missing = added.is_ok() && !seen(&found, "new", 10..11).await[0];
                assert!(!missing, "call {call}, seed {seed}");
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
        "{kept}, {in_doubt}, {back}"
    );
}
