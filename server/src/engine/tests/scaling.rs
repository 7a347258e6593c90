//! Scaling filters, which have layers and know when they are full.

mod log;

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;

use super::{
    durability::{key, settings, start},
    *,
};
use crate::store::simulated::SimulatedDisk;

fn scaling(capacity: u64, max_memory_bytes: Option<u64>) -> SpecRequest {
    let growth = 2;
    of(
        capacity,
        OnFull::Scale(Scaling {
            growth,
            max_memory_bytes,
        }),
    )
}

fn of(capacity: u64, on_full: OnFull) -> SpecRequest {
    SpecRequest {
        kind: Kind::Scaling(on_full),
        ..SpecRequest::new(capacity, 0.01)
    }
}

fn keys(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(key).collect()
}

async fn begun(spec: SpecRequest) -> (SimulatedDisk, Engine) {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    engine.create_filter("urls", spec).await.unwrap();
    (disk, engine)
}

/// Returns the share of keys that were never added and are seen.
async fn rate(engine: &Engine) -> f64 {
    let mut seen = 0;
    for batch in 0..100 {
        let absent: Vec<String> = (0..1000).map(|i| format!("absent/{batch}/{i}")).collect();
        let answers = engine.query_batch("urls", absent).await.unwrap();
        seen += answers.into_iter().filter(|&seen| seen).count();
    }
    seen as f64 / 100_000.0
}

async fn all_are_seen(engine: &Engine, count: u64) {
    for first in (0..count).step_by(1000) {
        let last = count.min(first + 1000);
        let seen = engine.query_batch("urls", keys(first..last)).await.unwrap();
        assert!(seen.iter().all(|&seen| seen), "{first}");
    }
}

#[tokio::test]
async fn a_filter_grows_and_keeps_its_rate() {
    let (disk, engine) = begun(scaling(1000, None)).await;
    let first = engine.get_filter("urls").await.unwrap();
    let mut new = 0;
    // Far into the seventh layer: 63,000 keys fill six.
    for number in 0..80 {
        let batch = keys(number * 1000..(number + 1) * 1000);
        // Some keys come one by one, some twice in a batch.
        let seen = match number % 3 {
            0 => {
                let mut seen = Vec::new();
                for key in batch {
                    seen.push(engine.query_and_add("urls", &key).await.unwrap());
                }
                seen
            }
            1 => {
                let halves = batch.as_slice().iter().step_by(2);
                let twice: Vec<String> =
                    halves.flat_map(|key| [key.clone(), key.clone()]).collect();
                let again = twice;
                engine.add_batch("urls", batch).await.unwrap();
                let seen = engine.query_and_add_batch("urls", again).await.unwrap();
                assert!(seen.iter().all(|&seen| seen));
                vec![false; 1000]
            }
            _ => engine.query_and_add_batch("urls", batch).await.unwrap(),
        };
        new += seen.iter().filter(|&&seen| !seen).count() as u64;
        let status = engine
            .filter_named("urls".parse().unwrap())
            .unwrap()
            .status();
        assert!(status.predicted_false_positive_rate <= 0.01, "{status:?}");
        assert!(!status.is_full());
    }
    all_are_seen(&engine, 80_000).await;
    let measured = rate(&engine).await;
    assert!(measured <= 0.0115, "{measured}");
    let status = engine.get_filter("urls").await.unwrap();
    assert!(status.keys_added.abs_diff(new) < 800, "{status:?}");
    let estimated = status.estimated_keys.unwrap();
    assert!(estimated.abs_diff(80_000) < 1600, "{estimated}");
    let layers = status.layers.unwrap();
    assert_eq!(layers.layers, 7);
    assert!(layers.max_capacity > 1 << 30 && !layers.fits_budget);
    assert!(status.memory_bytes > 30 * first.memory_bytes);
    assert_eq!(first.layers.unwrap().layers, 1);
    let canaries = status.measured.unwrap();
    assert!(canaries.rate() <= 0.0115, "{canaries:?}");

    // After a kill, from the log. After a store, from the snapshot and the log.
    let versions = status.version;
    drop(engine);
    let killed = disk.kill();
    let engine = start(&killed, INTERVAL).await.unwrap();
    let again = engine.get_filter("urls").await.unwrap();
    assert_eq!(again.version, versions);
    assert_eq!(again.keys_added, status.keys_added);
    assert_eq!(again.layers.unwrap().layers, layers.layers);
    all_are_seen(&engine, 80_000).await;
    engine.store("urls").await.unwrap();
    engine
        .add_batch("urls", keys(80_000..81_000))
        .await
        .unwrap();
    let killed = killed.kill();
    let engine = start(&killed, INTERVAL).await.unwrap();
    all_are_seen(&engine, 81_000).await;
    engine.close();
    engine.store("urls").await.unwrap();
    let before = engine
        .filter_named("urls".parse().unwrap())
        .unwrap()
        .status();
    let engine = start(&killed.kill(), INTERVAL).await.unwrap();
    let status = engine.get_filter("urls").await.unwrap();
    assert_eq!(status.fill_ratio, before.fill_ratio);
    assert_eq!(status.memory_bytes, before.memory_bytes);
    all_are_seen(&engine, 81_000).await;
    assert!(rate(&engine).await <= 0.0115);
    // The filter continues to grow.
    for number in 81..160 {
        let batch = keys(number * 1000..(number + 1) * 1000);
        engine.add_batch("urls", batch).await.unwrap();
    }
    all_are_seen(&engine, 160_000).await;
    assert!(rate(&engine).await <= 0.0115);
}

/// The layers that a batch needs are made before it begins.
#[tokio::test]
async fn a_batch_may_be_larger_than_the_filter() {
    let (_, engine) = begun(scaling(10, None)).await;
    let seen = engine
        .query_and_add_batch("urls", keys(0..1000))
        .await
        .unwrap();
    let wrong = seen.iter().filter(|&&seen| seen).count();
    assert!(wrong < 20, "{wrong}");
    all_are_seen(&engine, 1000).await;
    assert!(rate(&engine).await <= 0.0115);
    // The same keys need no more layers.
    let layers = engine.get_filter("urls").await.unwrap().layers.unwrap();
    for _ in 0..20 {
        engine.add_batch("urls", keys(0..1000)).await.unwrap();
    }
    let again = engine.get_filter("urls").await.unwrap().layers.unwrap();
    assert_eq!(again.layers, layers.layers);
}

fn is_full(error: &EngineError, expected: Full) -> bool {
    matches!(error, EngineError::FilterFull { why, .. } if *why == expected)
}

/// Fills a filter until it refuses keys, and returns the number of batches of ten that it took.
async fn fill(engine: &Engine, full: Full) -> u64 {
    for number in 0..100_000 {
        let batch = keys(number * 10..(number + 1) * 10);
        if let Err(error) = engine.query_and_add_batch("urls", batch).await {
            assert!(is_full(&error, full), "{error}");
            return number;
        }
    }
    panic!("it takes everything");
}

async fn a_full_filter_is_honest(engine: &Engine, full: Full, batches: u64) {
    let status = engine.get_filter("urls").await.unwrap();
    assert!(status.predicted_false_positive_rate <= 0.01, "{status:?}");
    assert!(rate(engine).await <= 0.0115);

    // A batch is refused whole, and so is a single key. Queries of added keys are answered.
    let mixed: Vec<String> = keys(0..500)
        .into_iter()
        .chain(keys(900_000..900_500))
        .collect();
    for refused in [
        engine
            .query_and_add_batch("urls", mixed.clone())
            .await
            .map(|_| ()),
        engine.add_batch("urls", mixed).await,
    ] {
        assert!(is_full(&refused.unwrap_err(), full));
    }
    let seen = engine
        .query_batch("urls", keys(900_000..900_500))
        .await
        .unwrap();
    assert!(seen.into_iter().filter(|&seen| seen).count() < 20);
    let after = engine.get_filter("urls").await.unwrap();
    assert_eq!(
        (after.version, after.keys_added),
        (status.version, status.keys_added)
    );
    let mut refused = 0;
    for number in 0..100 {
        match engine
            .query_and_add("urls", &format!("other/{number}"))
            .await
        {
            Err(error) => {
                assert!(is_full(&error, full), "{error}");
                assert!(
                    !engine
                        .query("urls", &format!("other/{number}"))
                        .await
                        .unwrap()
                );
                refused += 1;
            }
            // Some partition still has room for a key, or the key is seen by chance.
            Ok(_) => assert!(
                engine
                    .query("urls", &format!("other/{number}"))
                    .await
                    .unwrap()
            ),
        }
    }
    assert!(refused > 10, "{refused}");
    let count = batches * 10;
    all_are_seen(engine, count).await;
    let seen = engine
        .query_and_add_batch("urls", keys(0..count.min(1000)))
        .await
        .unwrap();
    assert!(seen.into_iter().all(|seen| seen));
    assert!(engine.query_and_add("urls", &key(1)).await.unwrap());
    engine.add_batch("urls", keys(0..10)).await.unwrap();
    assert!(rate(engine).await <= 0.0115);
}

#[tokio::test]
async fn a_filter_that_rejects_takes_what_it_is_for_and_no_more() {
    let (disk, engine) = begun(of(50_000, OnFull::Reject)).await;
    let batches = fill(&engine, Full::Rejects).await;
    assert!((4950..5600).contains(&batches), "{batches}");
    a_full_filter_is_honest(&engine, Full::Rejects, batches).await;
    // The same after a kill.
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    a_full_filter_is_honest(&engine, Full::Rejects, batches).await;
    // A reset makes room.
    engine.reset_filter("urls").await.unwrap();
    engine.add_batch("urls", keys(0..1000)).await.unwrap();
}

#[tokio::test]
async fn a_bound_on_memory_is_kept() {
    let most = 100_000;
    let (_, engine) = begun(scaling(1000, Some(most))).await;
    let full = Full::AllLayers {
        max_memory_bytes: Some(most),
    };
    let layers = engine.get_filter("urls").await.unwrap().layers.unwrap();
    assert!(
        layers.fits_budget && layers.max_memory_bytes <= most,
        "{layers:?}"
    );
    let batches = fill(&engine, full).await;
    let status = engine.get_filter("urls").await.unwrap();
    assert!(
        status.memory_bytes <= most && status.memory_bytes > most / 2,
        "{status:?}"
    );
    assert!(
        batches * 10 > layers.max_capacity * 95 / 100,
        "{batches} {layers:?}"
    );
    a_full_filter_is_honest(&engine, full, batches).await;
    assert!(engine.get_filter("urls").await.unwrap().is_full());
}

#[tokio::test]
async fn the_budget_of_the_server_bounds_all_filters() {
    let small = Settings {
        max_memory_bytes: 300_000,
        ..settings(INTERVAL)
    };
    let disk = SimulatedDisk::default();
    let directory = || DataDirectory::on(Arc::new(disk.clone())).unwrap();
    let engine = Engine::new(directory(), small);
    engine.recover(None).await.unwrap();
    let other = SpecRequest::new(100_000, 0.01);
    engine.create_filter("other", other).await.unwrap();
    engine
        .create_filter("urls", scaling(1000, None))
        .await
        .unwrap();
    let mut number = 0;
    let error = loop {
        assert!(number < 100_000, "it takes everything");
        let batch = keys(number * 10..(number + 1) * 10);
        match engine.add_batch("urls", batch).await {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    let EngineError::FilterFull { why, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(why, Full::OverBudget(_)), "{error}");
    a_full_filter_is_honest(&engine, *why, number).await;
    engine.delete_filter("other").await.unwrap();
    for number in number..2 * number {
        let batch = keys(number * 10..(number + 1) * 10);
        engine.add_batch("urls", batch).await.unwrap();
    }
    let count = number * 20;
    all_are_seen(&engine, count).await;

    // A server with less memory does not start, and loses no keys.
    let killed = disk.kill();
    let less = Settings {
        max_memory_bytes: 100_000,
        ..small
    };
    let engine = Engine::new(DataDirectory::on(Arc::new(killed.clone())).unwrap(), less);
    let error = engine.recover(None).await.unwrap_err();
    assert!(
        matches!(error, EngineError::NoRoomToRestore { .. }),
        "{error}"
    );
    let engine = start(&killed, INTERVAL).await.unwrap();
    engine.store("urls").await.unwrap();
    all_are_seen(&engine, count).await;
    drop(engine);
    let killed = killed.kill();
    let engine = Engine::new(DataDirectory::on(Arc::new(killed.clone())).unwrap(), less);
    let error = engine.recover(None).await.unwrap_err();
    assert!(
        matches!(error, EngineError::RestoreOverBudget { .. }),
        "{error}"
    );
    let engine = start(&killed, INTERVAL).await.unwrap();
    all_are_seen(&engine, count).await;
}

#[tokio::test]
async fn a_filter_that_degrades_takes_everything_and_says_so() {
    let (disk, engine) = begun(of(1000, OnFull::Degrade)).await;
    for number in 0..4 {
        let batch = keys(number * 1000..(number + 1) * 1000);
        engine.add_batch("urls", batch).await.unwrap();
    }
    let status = engine.get_filter("urls").await.unwrap();
    assert!(
        status.is_full() && status.predicted_false_positive_rate > 0.1,
        "{status:?}"
    );
    let measured = rate(&engine).await;
    let predicted = status.predicted_false_positive_rate;
    assert!(
        (measured / predicted - 1.0).abs() < 0.1,
        "{measured} {predicted}"
    );
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    all_are_seen(&engine, 4000).await;
    assert_eq!(
        engine
            .get_filter("urls")
            .await
            .unwrap()
            .layers
            .unwrap()
            .layers,
        1
    );
}

/// Callers race when the filter is nearly full. Together they add no more keys than there is room
/// for. A batch adds all its keys or none, and each key is new to exactly one caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_callers_do_not_overfill_a_filter() {
    for on_full in [
        OnFull::Reject,
        OnFull::Scale(Scaling {
            growth: 2,
            max_memory_bytes: Some(20_000),
        }),
    ] {
        let (_, engine) = begun(of(2000, on_full)).await;
        let (refused, wins) = (AtomicU64::new(0), AtomicU64::new(0));
        let callers = (0..8_u64).map(|caller| {
            let (engine, refused, wins) = (engine.clone(), &refused, &wins);
            async move {
                let mut added = Vec::new();
                for number in 0..300 {
                    // Each pair of callers uses the same keys, in batches of 1 to 128.
                    let size = 1 << (number % 8);
                    let first = (caller / 2) * 1_000_000 + number * 1000;
                    let batch = keys(first..first + size);
                    tokio::task::yield_now().await;
                    let told = match size {
                        1 => engine
                            .query_and_add("urls", &batch[0])
                            .await
                            .map(|seen| vec![seen]),
                        _ => engine.query_and_add_batch("urls", batch.clone()).await,
                    };
                    match told {
                        Ok(seen) => {
                            let new = seen.iter().filter(|&&seen| !seen).count();
                            wins.fetch_add(new as u64, Ordering::Relaxed);
                            added.push(batch);
                        }
                        Err(error) => {
                            assert!(matches!(error, EngineError::FilterFull { .. }), "{error}");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                for batch in added {
                    let seen = engine.query_batch("urls", batch).await.unwrap();
                    assert!(seen.iter().all(|&seen| seen));
                }
            }
        });
        join_all(callers).await;
        assert!(refused.into_inner() > 0);
        let status = engine.get_filter("urls").await.unwrap();
        assert_eq!(status.keys_added, wins.into_inner());
        assert!(status.predicted_false_positive_rate <= 0.01, "{status:?}");
        assert!(rate(&engine).await <= 0.0115);
    }
}

#[tokio::test]
async fn a_repeated_request_gets_its_answer_though_the_filter_has_grown_or_is_full() {
    for on_full in [OnFull::Reject, OnFull::Scale(Scaling::default())] {
        let (disk, engine) = begun(of(500, on_full)).await;
        let call = Call {
            filter: "urls",
            request_id: "first",
            max_age: None,
            deadline: None,
        };
        let told = engine
            .query_and_add_batch(call, keys(0..400))
            .await
            .unwrap();
        let mut number = 400;
        while number < 2000 && engine.add("urls", &key(number)).await.is_ok() {
            number += 1;
        }
        for engine in [engine.clone(), start(&disk.kill(), INTERVAL).await.unwrap()] {
            let again = engine
                .query_and_add_batch(call, keys(0..400))
                .await
                .unwrap();
            assert_eq!(again, told);
            let one = engine.query_and_add(call, &key(0)).await.unwrap();
            assert_eq!(one, told[0]);
        }
    }
}

#[tokio::test]
async fn whole_filters_in_layers() {
    let (disk, engine) = begun(scaling(1000, None)).await;
    for number in 0..10 {
        let batch = keys(number * 1000..(number + 1) * 1000);
        engine.add_batch("urls", batch).await.unwrap();
    }
    let status = engine.get_filter("urls").await.unwrap();
    let copy = engine.copy_filter("urls", "copy").await.unwrap();
    assert_eq!(copy.keys_added, status.keys_added);
    assert_eq!(copy.fill_ratio, status.fill_ratio);
    assert_eq!(copy.memory_bytes, status.memory_bytes);
    let merged = engine.merge_filters("copy", "urls").await.unwrap();
    assert_eq!(merged.keys_added, status.keys_added);
    assert_eq!(merged.fill_ratio, status.fill_ratio);
    engine.rename_filter("urls", "old").await.unwrap();
    engine.rename_filter("copy", "urls").await.unwrap();
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    all_are_seen(&engine, 10_000).await;
    let reset = engine.reset_filter("old").await.unwrap();
    assert_eq!(reset.layers.unwrap().layers, 1);
    assert_eq!((reset.keys_added, reset.fill_ratio), (0, 0.0));
    assert!(reset.memory_bytes * 5 < status.memory_bytes);
    for number in 0..30 {
        engine.add("old", &key(number)).await.unwrap();
    }
    for number in 10..30 {
        let batch = keys(number * 1000..(number + 1) * 1000);
        engine.add_batch("urls", batch).await.unwrap();
    }
    all_are_seen(&engine, 30_000).await;
    // The explanation agrees with the query, in any layer.
    let layers = engine
        .get_filter("urls")
        .await
        .unwrap()
        .layers
        .unwrap()
        .layers;
    for number in (0..30_000).step_by(100).chain(500_000..500_100) {
        let explained = engine.explain("urls", &key(number)).await.unwrap();
        let seen = engine.query("urls", &key(number)).await.unwrap();
        assert_eq!(explained.seen(), seen, "{number}: {explained:?}");
        let layer = explained.place.layer.unwrap();
        assert!(explained.place.block.is_some() && explained.place.lines.is_empty());
        // The first keys are in the first layer. New ones would be added to one of the last.
        match number {
            0 => assert_eq!(layer, 0),
            500_000.. if !seen => assert!(layer + 2 >= layers && layer < layers),
            _ => assert!(layer < layers, "{number}: {explained:?}"),
        }
    }
}
