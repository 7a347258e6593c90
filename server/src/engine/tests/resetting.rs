//! Filters that forget all keys while the power is cut, the disk fails, and calls go on.

use std::io;

use super::{
    durability::{key, start},
    *,
};
use crate::store::simulated::{Chance, Fault, SimulatedDisk};

/// A filter with a key in a snapshot and one in the log.
async fn filled(disk: &SimulatedDisk) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", small()).await.unwrap();
    engine.add("urls", &key(0)).await.unwrap();
    engine.store("urls").await.unwrap();
    engine.add("urls", &key(1)).await.unwrap();
    engine
}

/// Which of the first keys are seen.
async fn seen(engine: &Engine) -> Vec<bool> {
    let keys: Vec<String> = (0..3).map(key).collect();
    engine.query_batch("urls", keys).await.unwrap()
}

#[tokio::test]
async fn a_power_cut_at_any_call_leaves_all_keys_or_none() {
    let mut chance = Chance::new(1);
    let mut found_before = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let reset = engine.reset_filter("urls").await;
        let used = disk.calls() - before;
        let added = engine.add("urls", &key(2)).await;
        drop(engine);
        for cut in 0..12 {
            let found = match cut % 2 {
                0 => disk.cut(&mut chance),
                _ => disk.kill().cut(&mut chance),
            };
            let case = format!("call {call}, cut {cut}");
            let engine = start(&found, Durability::Always).await.unwrap();
            let keys = seen(&engine).await;
            assert_eq!(keys[0], keys[1], "{case}");
            assert!(reset.is_err() || !keys[0], "{case}");
            assert!(added.is_err() || keys[2], "{case}");
            found_before.push(keys[0]);
            // It can be done again, and what comes after it stays.
            engine.reset_filter("urls").await.unwrap();
            engine.add("urls", &key(1)).await.unwrap();
            drop(engine);
            let engine = start(&found.cut(&mut chance), Durability::Always).await;
            assert_eq!(seen(&engine.unwrap()).await, [false, true, false], "{case}");
        }
        if used <= call {
            break;
        }
    }
    assert!(found_before.contains(&true) && found_before.contains(&false));
}

/// The last step may be done although it fails: what is added after that would be lost with the
/// next crash, on whichever side.
#[tokio::test]
async fn a_filter_whose_reset_is_in_doubt_takes_no_keys() {
    let (mut kept, mut in_doubt) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let reset = engine.reset_filter("urls").await;
        let used = disk.calls() - before;
        disk.heal();
        let added = engine.add("urls", &key(2)).await;
        match (&reset, &added) {
            (Err(EngineError::StorageFailed(_)), Ok(())) => kept += 1,
            (Err(EngineError::NotDurable(_)), Err(EngineError::StorageFailed(_))) => in_doubt += 1,
            (Ok(_), Ok(())) => {}
            other => panic!("call {call}: {other:?}"),
        }
        for seed in 0..8 {
            let found = disk.cut(&mut Chance::new(seed));
            let found = start(&found, Durability::Always).await.unwrap();
            let keys = seen(&found).await;
            assert!(reset.is_err() || !keys[0], "call {call}");
            assert!(added.is_err() || keys[2], "call {call}");
        }
        // It is stored like those that have changed, and that settles it.
        let stored = engine.store_changed().await;
        assert_eq!(stored.len(), 1, "call {call}");
        engine.add("urls", &key(2)).await.unwrap();
        for seed in 0..8 {
            let found = disk.cut(&mut Chance::new(seed));
            let found = start(&found, Durability::Always).await.unwrap();
            let expected = [reset.is_err(), reset.is_err(), true];
            assert_eq!(seen(&found).await, expected, "call {call}");
        }
        engine.reset_filter("urls").await.unwrap();
        assert_eq!(seen(&engine).await, [false; 3]);
        if used <= call {
            break;
        }
    }
    assert!(kept > 0 && in_doubt > 0, "{kept} kept, {in_doubt} in doubt");
}

/// A request that has won a key before the reset must not win it from whoever has after it.
#[tokio::test]
async fn what_requests_have_won_is_forgotten_with_the_keys() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk).await;
    let call = |request_id| Call {
        filter: "urls",
        request_id,
        max_age: None,
    };
    let mut name = key(7);
    for round in 0..2 {
        assert!(!engine.query_and_add(call("first"), &name).await.unwrap());
        engine.reset_filter("urls").await.unwrap();
        assert!(!engine.query_and_add(call("second"), &name).await.unwrap());
        assert!(engine.query_and_add(call("first"), &name).await.unwrap());
        assert!(!engine.query_and_add(call("second"), &name).await.unwrap());
        let found = start(&disk.kill(), Durability::Always).await.unwrap();
        assert!(found.query_and_add(call("first"), &name).await.unwrap());
        assert!(!found.query_and_add(call("second"), &name).await.unwrap());
        name = key(8 + round);
    }
}

#[tokio::test]
async fn a_reset_keeps_all_but_the_keys() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let counting = SpecRequest {
        kind: Kind::Counting,
        ..small()
    };
    for (name, spec) in [("urls", small()), ("counted", counting)] {
        engine.create_filter(name, spec).await.unwrap();
        for _ in 0..20 {
            engine.add(name, &key(0)).await.unwrap();
        }
        let before = engine.get_filter(name).await.unwrap();
        let used_bytes = engine.inner.budget.used_bytes();
        let after = engine.reset_filter(name).await.unwrap();
        assert_eq!(engine.inner.budget.used_bytes(), used_bytes);
        assert_eq!(
            (&after.spec, after.create_time),
            (&before.spec, before.create_time)
        );
        assert_eq!((after.keys_added, after.fill_ratio), (0, 0.0));
        assert_eq!(after.saturated_counters, 0);
        assert!(after.version > before.version);
        engine.add(name, &key(1)).await.unwrap();
        let found = start(&disk.kill(), Durability::Always).await.unwrap();
        let keys = found.query_batch(name, vec![key(0), key(1)]).await.unwrap();
        assert_eq!(keys, [false, true]);
        let status = found.get_filter(name).await.unwrap();
        assert_eq!((status.keys_added, status.version), (1, after.version + 1));
    }
    for bad in ["", "a b"] {
        let error = engine.reset_filter(bad).await.unwrap_err();
        assert!(matches!(error, EngineError::Name { field: "name", .. }));
    }
    let error = engine.reset_filter("other").await.unwrap_err();
    assert!(matches!(error, EngineError::UnknownFilter { .. }));
}

/// A store that waits while the filter is reset is one of the filter that has the name then.
#[tokio::test]
async fn whoever_has_waited_finds_the_new_one() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk).await;
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    let turn = filter.turn().await;
    let (reset, stored, again, ()) = tokio::join!(
        engine.reset_filter("urls"),
        engine.store("urls"),
        engine.reset_filter("urls"),
        async { drop(turn) },
    );
    let (first, second) = (reset.unwrap().version, again.unwrap().version);
    assert!(first < second, "{first}, {second}");
    assert_eq!(stored.unwrap()[0].name.as_str(), "urls");
    assert_eq!(seen(&engine).await, [false; 3]);
    // The one that was left behind is not stored any more.
    let turn = filter.turn().await;
    let stored = filter.store(&engine.inner.directory, &engine.inner.gate, turn);
    assert!(matches!(stored, Ok(None)));
}
