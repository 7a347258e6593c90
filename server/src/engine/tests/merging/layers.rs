//! Merges of filters in layers: they succeed as long as no layer gets more keys than it is made
//! for.

use super::*;

const CAPACITY: u64 = 20_000;

fn spec(on_full: OnFull) -> SpecRequest {
    SpecRequest {
        kind: Kind::Scaling(on_full),
        ..SpecRequest::new(CAPACITY, 0.01)
    }
}

fn scale(max_memory_bytes: Option<u64>) -> OnFull {
    let growth = 2;
    OnFull::Scale(Scaling {
        growth,
        max_memory_bytes,
    })
}

async fn add(engine: &Engine, filter: &str, range: Range<u64>) {
    for keys in keys(range).chunks(1000) {
        engine.add_batch(filter, keys.to_vec()).await.unwrap();
    }
}

async fn begun(on_full: OnFull) -> (SimulatedDisk, Engine) {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    engine.create_filter("urls", spec(on_full)).await.unwrap();
    (disk, engine)
}

/// Returns the rate that the bits of a filter predict.
async fn predicted(engine: &Engine) -> f64 {
    let status = engine.get_filter("urls").await.unwrap();
    status.predicted_false_positive_rate
}

/// One filter has grown to layers that the other does not have.
#[tokio::test]
async fn layers_are_merged_one_by_one() {
    let (disk, engine) = begun(scale(None)).await;
    add(&engine, "urls", 0..CAPACITY * 4).await;
    engine.copy_filter("urls", "copy").await.unwrap();
    add(&engine, "copy", CAPACITY * 4..CAPACITY * 9).await;
    let [few, many] = ["urls", "copy"].map(|name| engine.get_filter(name));
    let (few, many) = (few.await.unwrap(), many.await.unwrap());
    assert!(few.layers.unwrap().layers < many.layers.unwrap().layers);
    let merged = engine.merge_filters("copy", "urls").await.unwrap();
    assert_eq!(merged.fill_ratio, many.fill_ratio);
    let error = merged.keys_added.abs_diff(many.keys_added);
    assert!(error * 1000 < many.keys_added, "{} keys", merged.keys_added);
    assert_eq!(merged.memory_bytes, many.memory_bytes);
    let again = start(&disk.kill(), INTERVAL).await.unwrap();
    for engine in [&engine, &again] {
        let all = CAPACITY * 9;
        assert_eq!(seen(engine, "urls", 0..all).await, all as usize);
        // Both filters grow on from there.
        add(engine, "urls", all..all + CAPACITY * 8).await;
        assert!(predicted(engine).await <= 0.01);
        let all = all + CAPACITY * 8;
        assert_eq!(seen(engine, "urls", 0..all).await, all as usize);
    }
    // A merge in the other direction adds only new keys.
    engine.merge_filters("urls", "copy").await.unwrap();
    assert_eq!(
        seen(&engine, "copy", 0..CAPACITY * 9).await as u64,
        CAPACITY * 9
    );
}

#[tokio::test]
async fn a_union_that_would_be_wrong_too_often_is_refused() {
    for on_full in [scale(None), OnFull::Reject] {
        let (_, engine) = begun(on_full).await;
        engine.copy_filter("urls", "copy").await.unwrap();
        add(&engine, "urls", 0..CAPACITY * 3 / 4).await;
        add(&engine, "copy", CAPACITY / 2..CAPACITY).await;
        // The filters have a quarter of the keys in common, and fill the layer together.
        let merged = engine.merge_filters("copy", "urls").await.unwrap();
        let error = merged.keys_added.abs_diff(CAPACITY);
        assert!(error < CAPACITY / 50, "{} keys", merged.keys_added);
        assert_eq!(seen(&engine, "urls", 0..CAPACITY).await as u64, CAPACITY);
        add(&engine, "copy", CAPACITY..CAPACITY * 5 / 4).await;
        let refused = engine.merge_filters("copy", "urls").await.unwrap_err();
        let words = "together they have more keys";
        assert!(refused.to_string().contains(words), "{refused}");
        let after = engine.get_filter("urls").await.unwrap();
        assert_eq!(
            (after.version, after.fill_ratio),
            (merged.version, merged.fill_ratio)
        );
        // The filter can take as many keys as before.
        let room = CAPACITY / 100;
        add(&engine, "urls", CAPACITY..CAPACITY + room).await;
        assert!(predicted(&engine).await <= 0.01);
    }
}

#[tokio::test]
async fn one_that_degrades_takes_what_there_is() {
    let (disk, engine) = begun(OnFull::Degrade).await;
    engine.copy_filter("urls", "copy").await.unwrap();
    add(&engine, "urls", 0..CAPACITY).await;
    add(&engine, "copy", CAPACITY..CAPACITY * 2).await;
    engine.merge_filters("copy", "urls").await.unwrap();
    assert!(predicted(&engine).await > 0.05);
    let again = start(&disk.kill(), INTERVAL).await.unwrap();
    for engine in [&engine, &again] {
        assert_eq!(seen(engine, "urls", 0..CAPACITY * 2).await, 40_000);
    }
}

/// A merge needs memory for the layers of the other filter.
#[tokio::test]
async fn a_bound_on_memory_holds() {
    let (disk, engine) = begun(scale(None)).await;
    engine.copy_filter("urls", "copy").await.unwrap();
    add(&engine, "copy", 0..CAPACITY * 2).await;
    let status = engine.get_filter("copy").await.unwrap();
    assert!(status.layers.unwrap().layers > 1);
    let used = engine.catalog.budget.used_bytes();
    drop(engine);
    let settings = Settings {
        max_memory_bytes: used,
        ..super::super::durability::settings(INTERVAL)
    };
    let directory = DataDirectory::on(Arc::new(disk.kill())).unwrap();
    let engine = Engine::new(directory, settings);
    engine.recover(None).await.unwrap();
    let refused = engine.merge_filters("copy", "urls").await.unwrap_err();
    let is_full = matches!(
        refused,
        EngineError::NoRoomToMerge {
            why: Full::OverBudget(_),
            ..
        }
    );
    assert!(is_full, "{refused}");
    assert_eq!(engine.catalog.budget.used_bytes(), used);
    add(&engine, "urls", 0..CAPACITY / 2).await;
    assert_eq!(seen(&engine, "urls", 0..CAPACITY / 2).await, 10_000);
}

/// Keys that are added while the union is made use the room that is left beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_come_meanwhile_do_not_make_it_wrong_too_often() {
    let (disk, engine) = begun(scale(None)).await;
    engine.copy_filter("urls", "copy").await.unwrap();
    add(&engine, "urls", 0..CAPACITY / 4).await;
    add(&engine, "copy", CAPACITY..CAPACITY * 3 / 2).await;
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    let before = filter.status().version;
    let merge = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.merge_filters("copy", "urls").await })
    };
    // The merge has its version, and nothing is on the disk yet.
    while filter.status().version == before {
        tokio::task::yield_now().await;
    }
    add(&engine, "urls", CAPACITY * 2..CAPACITY * 6).await;
    merge.await.unwrap().unwrap();
    let again = start(&disk.kill(), INTERVAL).await.unwrap();
    for engine in [&engine, &again] {
        for range in [
            0..CAPACITY / 4,
            CAPACITY..CAPACITY * 3 / 2,
            CAPACITY * 2..CAPACITY * 6,
        ] {
            let count = range.end - range.start;
            assert_eq!(seen(engine, "urls", range).await as u64, count);
        }
        assert!(predicted(engine).await <= 0.01);
    }
}

/// Returns how many keys a filter takes until it is full.
async fn room(engine: &Engine, filter: &str) -> u64 {
    let mut taken = 0;
    for index in CAPACITY.. {
        match engine.add(filter, &key(index)).await {
            Ok(()) => taken += 1,
            Err(EngineError::FilterFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

/// The bits that a merge expects count as set only until it ends, whether it succeeds or not. A
/// copy of the filter counts its bits anew.
#[tokio::test]
async fn after_a_merge_there_is_as_much_room_as_the_bits_leave() {
    let mut failed = 0;
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, INTERVAL).await.unwrap();
        let small = SpecRequest {
            kind: Kind::Scaling(OnFull::Reject),
            ..SpecRequest::new(400, 0.01)
        };
        engine.create_filter("urls", small).await.unwrap();
        engine.copy_filter("urls", "other").await.unwrap();
        add(&engine, "urls", 0..100).await;
        add(&engine, "other", 100..200).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        let merged = engine.merge_filters("other", "urls").await;
        let used = disk.calls() - before;
        disk.heal();
        failed += u64::from(merged.is_err());
        while engine.copy_filter("urls", "copy").await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let expected = room(&engine, "copy").await;
        assert!(expected > 100, "{expected}");
        assert_eq!(
            room(&engine, "urls").await,
            expected,
            "call {call}: {merged:?}"
        );
        if used <= call {
            merged.unwrap();
            break;
        }
    }
    assert!(failed > 5, "{failed}");
}
