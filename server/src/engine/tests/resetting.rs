//! Resets of filters while the power is cut, the disk fails, and calls go on.

use std::io;

use fastrand::Rng;

use super::{
    durability::{key, start},
    kinds::{Sample, counts, keys},
    *,
};
use crate::store::simulated::{Fault, SimulatedDisk};

/// Returns an engine with a filter that has the keys 0 to 9 in a snapshot and 10 to 19 in the log,
/// each twice.
async fn filled(disk: &SimulatedDisk, sample: &Sample) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    sample.make(&engine, "urls").await.unwrap();
    for range in [0..10, 10..20] {
        for _ in 0..2 {
            engine.add_batch("urls", keys(range.clone())).await.unwrap();
        }
        if range.start == 0 {
            engine.store("urls").await.unwrap();
        }
    }
    engine
}

/// Returns the count of the keys of such a filter, and the count of a key that may have been added
/// since. Fails with all counts if the keys have different counts.
async fn found(engine: &Engine) -> Result<[u32; 2], Vec<u32>> {
    let times = counts(engine, "urls", 0..21).await;
    match &*times {
        [first, others @ .., last] if others.iter().all(|other| other == first) => {
            Ok([*first, *last])
        }
        _ => Err(times),
    }
}

#[tokio::test]
async fn a_power_cut_at_any_call_leaves_all_keys_or_none() {
    for (seed, sample) in (0..).zip(Sample::all()) {
        cut_power_at_any_call(&sample, seed).await;
    }
}

async fn cut_power_at_any_call(sample: &Sample, seed: u64) {
    let mut chance = Rng::with_seed(seed);
    let mut found_before = Vec::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, sample).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let reset = engine.reset_filter("urls").await;
        let used = disk.calls() - before;
        let added = engine.add("urls", &key(20)).await;
        drop(engine);
        let after = match (call + seed) % 2 {
            0 => disk.cut(&mut chance),
            _ => disk.kill().cut(&mut chance),
        };
        let case = format!("{sample}, call {call}");
        let engine = start(&after, Durability::Always).await.unwrap();
        let [keys, last] = found(&engine).await.expect(&case);
        let is_before = keys == sample.times(2);
        assert!(is_before || keys == 0, "{case}: {keys} times");
        assert!(reset.is_err() || !is_before, "{case}");
        assert!(last == 1 || last == 0 && added.is_err(), "{case}: {last}");
        found_before.push(is_before);
        // The reset can be repeated, and keys that are added after it stay.
        engine.reset_filter("urls").await.unwrap();
        engine.add("urls", &key(20)).await.unwrap();
        drop(engine);
        let engine = start(&after.cut(&mut chance), Durability::Always).await;
        assert_eq!(found(&engine.unwrap()).await, Ok([0, 1]), "{case}");
        if used <= call {
            break;
        }
    }
    let both = found_before.contains(&true) && found_before.contains(&false);
    assert!(both, "{sample}");
}

/// The last step of a reset may have been done although it fails. A key that is added after that
/// would be lost with the next crash, on one of the two sides.
#[tokio::test]
async fn a_filter_whose_reset_is_in_doubt_takes_no_keys() {
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
        let reset = engine.reset_filter("urls").await;
        let used = disk.calls() - before;
        disk.heal();
        let added = engine.add("urls", &key(20)).await;
        match (&reset, &added) {
            (Err(EngineError::StorageFailed(_)), Ok(())) => kept += 1,
            (Err(EngineError::NotDurable(_)), Err(EngineError::StorageFailed(_))) => in_doubt += 1,
            (Ok(_), Ok(())) => {}
            other => panic!("{case}: {other:?}"),
        }
        let before = sample.times(2);
        let after = disk.cut(&mut Rng::with_seed(call));
        let restarted = start(&after, Durability::Always).await.unwrap();
        let [keys, last] = found(&restarted).await.expect(&case);
        assert!(keys == 0 || keys == before && reset.is_err(), "{case}");
        assert_eq!(last, u32::from(added.is_ok()), "{case}");
        // The filter is stored like a changed one, and that ends the doubt.
        let stored = engine.store_changed().await;
        assert_eq!(stored.len(), 1, "{case}");
        engine.add("urls", &key(20)).await.unwrap();
        let last = sample.times(1 + u32::from(added.is_ok()));
        let after = disk.cut(&mut Rng::with_seed(call));
        let restarted = start(&after, Durability::Always).await.unwrap();
        let keys = if reset.is_err() { before } else { 0 };
        assert_eq!(found(&restarted).await, Ok([keys, last]), "{case}");
        engine.reset_filter("urls").await.unwrap();
        assert_eq!(found(&engine).await, Ok([0, 0]), "{case}");
        if used <= call {
            break;
        }
    }
    assert!(
        kept > 0 && in_doubt > 0,
        "{sample}: {kept} kept, {in_doubt} in doubt"
    );
}

/// A request that added a key first before the reset must not get this answer again, after another
/// request has added the key first.
#[tokio::test]
async fn what_requests_have_won_is_forgotten_with_the_keys() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, &Sample::plain()).await;
    let call = |request_id| Call {
        filter: "urls",
        request_id,
        max_age: None,
        deadline: None,
    };
    let mut name = key(27);
    for round in 0..2 {
        assert!(!engine.query_and_add(call("first"), &name).await.unwrap());
        engine.reset_filter("urls").await.unwrap();
        assert!(!engine.query_and_add(call("second"), &name).await.unwrap());
        assert!(engine.query_and_add(call("first"), &name).await.unwrap());
        assert!(!engine.query_and_add(call("second"), &name).await.unwrap());
        let found = start(&disk.kill(), Durability::Always).await.unwrap();
        assert!(found.query_and_add(call("first"), &name).await.unwrap());
        assert!(!found.query_and_add(call("second"), &name).await.unwrap());
        name = key(28 + round);
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
        let used_bytes = engine.catalog.budget.used_bytes();
        let after = engine.reset_filter(name).await.unwrap();
        assert_eq!(engine.catalog.budget.used_bytes(), used_bytes);
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

/// A store that waits while the filter is reset stores the filter that has the name then.
#[tokio::test]
async fn whoever_has_waited_finds_the_new_one() {
    let disk = SimulatedDisk::default();
    let engine = filled(&disk, &Sample::plain()).await;
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    let lock = filter.snapshot_lock().await;
    let (reset, stored, again, ()) = tokio::join!(
        engine.reset_filter("urls"),
        engine.store("urls"),
        engine.reset_filter("urls"),
        async { drop(lock) },
    );
    let (first, second) = (reset.unwrap().version, again.unwrap().version);
    assert!(first < second, "{first}, {second}");
    assert_eq!(stored.unwrap()[0].name.as_str(), "urls");
    assert_eq!(found(&engine).await, Ok([0, 0]));
    // The old filter is not stored any more.
    let lock = filter.snapshot_lock().await;
    let stored = filter.store(&engine.catalog.directory, &engine.data.barrier, lock);
    assert!(matches!(stored, Ok(None)));
}
