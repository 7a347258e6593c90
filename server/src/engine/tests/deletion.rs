//! Deletions of filters while the disk fails.

use std::io;

use fastrand::Rng;

use super::{durability::start, *};
use crate::store::simulated::{Fault, SimulatedDisk};

async fn filled(disk: &SimulatedDisk) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", small()).await.unwrap();
    engine.add("urls", "a").await.unwrap();
    engine.store("urls").await.unwrap();
    engine
}

/// A removal whose last step fails may have been done nevertheless. A key that the filter takes
/// after that could be lost with the next crash.
#[tokio::test]
async fn a_filter_whose_removal_is_in_doubt_takes_no_keys() {
    let (mut kept, mut in_doubt) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
        disk.fail(disk.calls() + call, 1, Fault::Error(io::ErrorKind::Other));
        let deleted = engine.delete_filter("urls").await;
        let added = engine.add("urls", "b").await;
        match (&deleted, &added) {
            (Err(EngineError::StorageFailed(_)), Ok(())) => kept += 1,
            (Err(EngineError::NotDurable(_)), Err(EngineError::UnknownFilter { .. })) => {
                in_doubt += 1;
            }
            (Ok(()), Err(EngineError::UnknownFilter { .. })) => {}
            other => panic!("call {call}: {other:?}"),
        }
        for seed in 0..8 {
            let engine = start(&disk.cut(&mut Rng::with_seed(seed)), Durability::Always).await;
            let seen = engine.unwrap().query("urls", "b").await;
            let is_gone = matches!(seen, Err(EngineError::UnknownFilter { .. }));
            assert!(
                added.is_err() || matches!(seen, Ok(true)),
                "call {call}: {seen:?}"
            );
            assert!(deleted.is_err() || is_gone, "call {call}: {seen:?}");
        }
        if deleted.is_ok() {
            break;
        }
    }
    assert!(kept > 0 && in_doubt > 0, "{kept} kept, {in_doubt} in doubt");
}

/// A slower removal does not report that the filter is gone if a faster one has left that in doubt.
#[tokio::test]
async fn whoever_is_slower_to_remove_a_filter_is_told_what_is_certain() {
    let mut in_doubt = 0;
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
        let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
        let lock = filter.snapshot_lock().await;
        let fault = Fault::Error(io::ErrorKind::Other);
        disk.fail(disk.calls() + call, u64::MAX, fault);
        let (faster, slower, ()) = tokio::join!(
            engine.delete_filter("urls"),
            engine.delete_filter("urls"),
            async { drop(lock) },
        );
        match (faster, slower) {
            (Ok(()), _) => break,
            (Err(EngineError::NotDurable(_)), slower) => {
                in_doubt += 1;
                let slower = slower.unwrap_err();
                let is_gone = matches!(slower, EngineError::UnknownFilter { .. });
                assert!(!is_gone, "call {call}");
            }
            (Err(_), slower) => assert!(slower.is_err(), "call {call}"),
        }
    }
    assert!(in_doubt > 0);
}

/// Otherwise nobody could ever be sure that the filter is gone.
#[tokio::test]
async fn a_removal_in_doubt_that_is_repeated_says_what_is_certain() {
    let mut in_doubt = 0;
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
        disk.fail(
            disk.calls() + call,
            u64::MAX,
            Fault::Error(io::ErrorKind::Other),
        );
        let first = engine.delete_filter("urls").await;
        if first.is_ok() {
            break;
        }
        let second = engine.delete_filter("urls").await;
        assert!(
            !matches!(second, Ok(()) | Err(EngineError::UnknownFilter { .. })),
            "{second:?}"
        );
        in_doubt += u64::from(matches!(first, Err(EngineError::NotDurable(_))));
        disk.heal();
        let last = engine.delete_filter("urls").await;
        assert!(
            matches!(last, Ok(()) | Err(EngineError::UnknownFilter { .. })),
            "{last:?}"
        );
        for seed in 0..8 {
            let engine = start(&disk.cut(&mut Rng::with_seed(seed)), Durability::Always).await;
            let seen = engine.unwrap().query("urls", "a").await;
            assert!(
                matches!(seen, Err(EngineError::UnknownFilter { .. })),
                "{seen:?}"
            );
        }
    }
    assert!(in_doubt > 0);
}
