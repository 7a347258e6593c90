//! Calls whose callers have stopped waiting before the calls begin: they are dropped whole.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::*;
use crate::engine::filter::WriteContext;

/// The size of a batch that is too large to be answered at once.
const HEAVY: usize = 3000;

fn counting() -> SpecRequest {
    SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(10_000, 1e-9)
    }
}

async fn start(path: &std::path::Path, durability: Durability) -> Engine {
    let limits = Limits {
        max_key_bytes: 10,
        max_batch_keys: HEAVY,
        max_filters: Limits::MAX_FILTERS,
    };
    let engine = Engine::new(
        DataDirectory::open(path).unwrap(),
        Settings {
            limits,
            max_memory_bytes: 1 << 30,
            durability,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    engine.recover(Some(counting())).await.unwrap();
    engine
}

fn call(deadline: Instant) -> Call<'static> {
    Call {
        deadline: Some(deadline),
        ..Call::from("")
    }
}

fn is_over<T: std::fmt::Debug>(result: Result<T, EngineError>) {
    assert!(
        matches!(result, Err(EngineError::DeadlineOver)),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_call_after_its_deadline_changes_nothing() {
    for durability in [Durability::Snapshot, INTERVAL] {
        let dir = tempfile::tempdir().unwrap();
        let engine = start(dir.path(), durability).await;
        engine.add("", "there").await.unwrap();
        let late = call(Instant::now());
        is_over(engine.add(late, "a").await);
        is_over(engine.query_and_add(late, "a").await);
        is_over(engine.remove(late, "there").await);
        is_over(engine.add_batch(late, vec!["a", "b"]).await);
        is_over(engine.query_and_add_batch(late, vec!["a", "b"]).await);
        is_over(engine.remove_batch(late, vec!["there"]).await);
        is_over(engine.add_batch(late, vec!["a"; HEAVY]).await);
        is_over(engine.query_batch(late, vec!["a"; HEAVY]).await);
        let seen = engine.query_batch("", vec!["a", "b", "there"]).await;
        assert_eq!(seen.unwrap(), [false, false, true], "{durability:?}");

        // A call that has time left is carried out.
        let in_time = call(Instant::now() + Duration::from_secs(3600));
        assert!(!engine.query_and_add(in_time, "a").await.unwrap());
        assert_eq!(
            engine.remove_batch(in_time, vec!["a"]).await.unwrap(),
            [true]
        );
    }
}

/// Applies to filters of every kind: the deadline passes when all keys have been hashed.
#[tokio::test]
async fn a_batch_whose_deadline_passes_before_its_first_bit_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path(), Durability::Snapshot).await;
    let aging = Kind::Aging(Aging {
        max_age: Duration::from_secs(3600),
        slices: 8,
        refresh: false,
    });
    let guava = SpecRequest {
        layout: Layout::Guava,
        hash_function: Layout::Guava.hash_function(),
        ..small()
    };
    let of_kind = |kind| SpecRequest { kind, ..small() };
    for (name, spec) in [
        ("plain", small()),
        ("counting", of_kind(Kind::Counting)),
        ("aging", of_kind(aging)),
        ("scaling", of_kind(Kind::Scaling(OnFull::Reject))),
        ("guava", guava),
    ] {
        engine.create_filter(name, spec).await.unwrap();
        let keys = vec!["a", "b"];
        let late = || WriteContext {
            deadline: Some(Instant::now()),
            ..WriteContext::default()
        };
        let data = &engine.data;
        is_over(
            data.find(name, |filter| {
                filter.write_batch(&keys, Action::Add, late())
            })
            .unwrap(),
        );
        is_over(
            data.find(name, |filter| {
                filter.write_batch(&keys, Action::QueryAndAdd, late())
            })
            .unwrap(),
        );
        if name == "counting" {
            engine.add_batch(name, vec!["c"]).await.unwrap();
            let keys = vec!["c"];
            is_over(
                data.find(name, |filter| {
                    filter.write_batch(&keys, Action::Remove, late())
                })
                .unwrap(),
            );
            assert!(engine.query(name, "c").await.unwrap());
        }
        let seen = engine.query_batch(name, vec!["a", "b"]).await.unwrap();
        assert_eq!(seen, [false, false], "{name}");
    }
}

#[tokio::test]
async fn a_call_whose_deadline_passes_in_a_queue_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path(), Durability::Snapshot).await;
    let all_busy = engine.data.workers().unwrap().take_all().await;
    let call = call(Instant::now() + Duration::from_millis(200));
    let mut batch = Box::pin(engine.add_batch(call, vec!["a"; HEAVY]));
    assert!(batch.as_mut().now_or_never().is_none());
    sleep(Duration::from_millis(250)).await;
    drop(all_busy);
    is_over(batch.await);
    assert!(!engine.query("", "a").await.unwrap());
}

/// A batch waits for a worker, and its caller goes away.
#[tokio::test]
async fn a_cancelled_call_that_has_not_begun_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = start(dir.path(), Durability::Snapshot).await;
    let all_busy = engine.data.workers().unwrap().take_all().await;
    let mut cancelled = Box::pin(engine.add_batch("", vec!["a"; HEAVY]));
    let mut waiting = Box::pin(engine.add_batch("", vec!["b"; HEAVY]));
    assert!(cancelled.as_mut().now_or_never().is_none());
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(cancelled);
    drop(all_busy);
    waiting.await.unwrap();
    let seen = engine.query_batch("", vec!["a", "b"]).await.unwrap();
    assert_eq!(seen, [false, true]);
}
