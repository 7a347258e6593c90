//! The engine as the RPCs see it, without the RPCs.

use futures_util::FutureExt;

use super::*;

const INTERVAL: Durability = Durability::Interval(std::time::Duration::from_secs(1));

fn engine(path: &std::path::Path) -> Engine {
    engine_with(path, Limits::MAX_FILTERS, INTERVAL, 4 << 10)
}

fn engine_with(
    path: &std::path::Path,
    max_filters: usize,
    durability: Durability,
    segment_bytes: u64,
) -> Engine {
    let limits = Limits {
        max_key_bytes: 10,
        max_batch_keys: 3,
        max_filters,
    };
    Engine::new(
        DataDirectory::open(path).unwrap(),
        Settings {
            limits,
            max_memory_bytes: 1 << 30,
            durability,
            segment_bytes,
            requests: RequestLimits::default(),
        },
    )
}

async fn recovered(path: &std::path::Path) -> Engine {
    let engine = engine(path);
    engine.recover(None).await.unwrap();
    engine
}

/// Returns the filter of a name. Unlike [`Engine::get_filter`], it does not measure the rate, which
/// takes longer than most tests.
fn find(engine: &Engine, name: &str) -> Option<Arc<Filter>> {
    engine.data.registry.get(&name.parse().unwrap())
}

fn small() -> SpecRequest {
    SpecRequest::new(1000, 0.01)
}

mod aging;
mod copying;
mod counting;
mod deadlines;
mod deletion;
mod disk_errors;
mod durability;
mod exchange;
mod failed_starts;
mod generations;
mod interval;
mod kinds;
mod log_length;
mod merging;
mod profile;
mod rebuilding;
mod renaming;
mod requests;
mod resetting;
mod salvaging;
mod scaling;
mod soak;
mod status;
mod versions;
mod waiting;
mod workload;

#[tokio::test]
async fn nothing_is_answered_before_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let recovering = |error| matches!(error, EngineError::Recovering);
    assert!(recovering(engine.query("", "a").await.unwrap_err()));
    assert!(recovering(engine.store("").await.unwrap_err()));
    assert!(recovering(
        engine.create_filter("", small()).await.unwrap_err()
    ));
    assert!(recovering(engine.list_filters(0, "").await.unwrap_err()));
    assert!(recovering(engine.delete_filter("x").await.unwrap_err()));
    engine.recover(None).await.unwrap();
    engine.create_filter("", small()).await.unwrap();
    assert!(!engine.query("default", "a").await.unwrap());
}

#[tokio::test]
async fn light_batches_are_answered_at_once_and_heavy_ones_by_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let limits = Limits {
        max_key_bytes: 10,
        max_batch_keys: usize::MAX,
        max_filters: Limits::MAX_FILTERS,
    };
    let engine = Engine::new(
        directory,
        Settings {
            limits,
            max_memory_bytes: 1 << 30,
            durability: Durability::Snapshot,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    engine.recover(Some(small())).await.unwrap();
    let batch = |keys: usize| engine.query_and_add_batch("", vec!["a"; keys]);

    let answered = batch(2).now_or_never();
    assert_eq!(answered.unwrap().unwrap(), [false, true]);
    let all_busy = engine.data.workers().unwrap().take_all().await;
    assert!(batch(100_000).now_or_never().is_none());
    drop(all_busy);
    let answered = batch(100_000).await.unwrap();
    assert!(answered.iter().all(|&seen| seen));

    let unknown = engine.query_batch("x", vec!["a"; 100_000]).now_or_never();
    let error = unknown.unwrap().unwrap_err();
    assert!(matches!(error, EngineError::UnknownFilter { .. }));
}

#[tokio::test]
async fn a_refused_batch_adds_none_of_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("", small()).await.unwrap();
    for bad in [["good", "", "b"], ["good", "b", "12345678901"]] {
        let error = engine
            .query_and_add_batch("", bad.to_vec())
            .await
            .unwrap_err();
        assert!(matches!(
            error,
            EngineError::KeyLength {
                index: Some(1 | 2),
                limit: 10,
                ..
            }
        ));
        assert!(matches!(
            engine.add_batch("", bad.to_vec()).await,
            Err(EngineError::KeyLength { .. })
        ));
    }
    let error = engine.add_batch("", vec!["good"; 4]).await.unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::BatchLength {
                keys: 4,
                limit: 3,
                ..
            }
        ),
        "{error}"
    );
    assert!(!engine.query("", "good").await.unwrap());
    assert_eq!(engine.get_filter("").await.unwrap().version, 0);
}

#[tokio::test]
async fn creating_again_is_harmless_and_changing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    assert!(engine.create_filter("a", small()).await.unwrap().is_new);
    engine.add("a", "key").await.unwrap();
    let again = engine.create_filter("a", small()).await.unwrap();
    assert!(!again.is_new);
    let again = again.filter;
    assert_eq!(again.keys_added, 1);
    // The spec as it was resolved is accepted too.
    engine.create_filter("a", again.spec.into()).await.unwrap();
    let error = engine
        .create_filter("a", SpecRequest::new(1001, 0.01))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("exists with another spec: capacity 1000,"),
        "{error}"
    );
}

#[tokio::test]
async fn memory_is_refused_before_it_is_taken_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    let large = SpecRequest::new(500_000_000, 0.01);
    engine.create_filter("a", large.clone()).await.unwrap();
    let error = engine.create_filter("b", large.clone()).await.unwrap_err();
    assert!(
        matches!(error, EngineError::OverBudget(over) if over.limit_bytes == 1 << 30),
        "{error}"
    );
    engine.delete_filter("a").await.unwrap();
    engine.create_filter("b", large).await.unwrap();
}

#[tokio::test]
async fn pages_cover_every_filter_once() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    for name in ["c", "a", "e", "b", "d"] {
        engine.create_filter(name, small()).await.unwrap();
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = engine.list_filters(2, &token).await.unwrap();
        names.extend(page.filters.iter().map(|filter| filter.name.to_string()));
        match page.next {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(engine.list_filters(5, "").await.unwrap().next, None);
    assert!(matches!(
        engine.list_filters(-1, "").await,
        Err(EngineError::PageSize { value: -1 })
    ));
    assert!(matches!(
        engine.list_filters(0, "/").await,
        Err(EngineError::Name {
            field: "page_token",
            ..
        })
    ));
}

#[tokio::test]
async fn a_filter_outlives_the_engine_and_a_deleted_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("kept", small()).await.unwrap();
    engine.create_filter("gone", small()).await.unwrap();
    engine.add("kept", "key").await.unwrap();
    let reports = engine.store("kept").await.unwrap();
    assert_eq!((reports.len(), reports[0].version), (1, 1));
    engine.delete_filter("gone").await.unwrap();
    assert!(matches!(
        engine.delete_filter("").await,
        Err(EngineError::Name { .. })
    ));
    assert!(matches!(
        engine.query("gone", "a").await,
        Err(EngineError::UnknownFilter { .. })
    ));
    let before = engine.get_filter("kept").await.unwrap();
    drop(engine);

    let engine = recovered(dir.path()).await;
    assert!(engine.query("kept", "key").await.unwrap());
    let after = engine.get_filter("kept").await.unwrap();
    assert_eq!(
        (&after.spec, after.version, after.keys_added),
        (&before.spec, 1, 1)
    );
    assert_eq!(after.create_time, before.create_time);
    assert_eq!(after.fill_ratio, before.fill_ratio);
    let last = |status: &FilterStatus| status.last_store.map(|last| (last.version, last.time));
    assert_eq!(last(&after), last(&before));
    assert_eq!(last(&after).map(|(version, _)| version), Some(1));
    assert!(engine.store_changed().await.is_empty(), "stored again");
    assert!(matches!(
        engine.query("gone", "a").await,
        Err(EngineError::UnknownFilter { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn what_changed_is_stored_from_time_to_time() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("a", small()).await.unwrap();
    engine.create_filter("b", small()).await.unwrap();
    engine.add("a", "key").await.unwrap();
    let (reported, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let periodic = engine.clone();
    tokio::spawn(async move {
        let interval = std::time::Duration::from_secs(300);
        periodic
            .store_periodically(interval, |outcomes| reported.send(outcomes).unwrap())
            .await;
    });
    let outcomes = reports.recv().await.unwrap();
    let names: Vec<&str> = outcomes
        .iter()
        .map(|outcome| outcome.name.as_str())
        .collect();
    assert_eq!(names, ["a"]);
    assert_eq!(outcomes[0].result.as_ref().unwrap().version, 1);
    assert!(reports.recv().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_filter_that_cannot_be_stored_keeps_no_other_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    for name in ["a", "b", "c"] {
        engine.create_filter(name, small()).await.unwrap();
        engine.add(name, "key").await.unwrap();
    }
    // Directories take the place of the next files.
    for number in 1..100 {
        let file = dir.path().join(format!("b.snapshot.{number:016x}"));
        if !file.exists() {
            std::fs::create_dir(file).unwrap();
        }
    }
    let error = engine.store("").await.unwrap_err();
    assert!(matches!(error, EngineError::StorageFailed(_)), "{error}");
    for (name, version) in [("a", 1), ("b", 0), ("c", 1)] {
        let last = engine.get_filter(name).await.unwrap().last_store;
        assert_eq!(last.map(|last| last.version), Some(version), "{name}");
    }
    let outcomes = engine.store_changed().await;
    let names: Vec<&str> = outcomes.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["b"]);

    // The log of `b` is kept, however long the log of the other filters is.
    for index in 0..200 {
        engine.add("a", &format!("key {index}")).await.unwrap();
    }
    engine.store_changed().await;
    drop(engine);
    for number in 1..100 {
        // These are directories only: the call does not remove files.
        let _ = std::fs::remove_dir(dir.path().join(format!("b.snapshot.{number:016x}")));
    }
    let engine = recovered(dir.path()).await;
    assert!(engine.query("b", "key").await.unwrap());
    assert!(engine.query("a", "key 199").await.unwrap());
}

#[tokio::test]
async fn a_recovery_ends_when_the_engine_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("a", small()).await.unwrap();
    engine.add("a", "key").await.unwrap();
    engine.store("a").await.unwrap();
    drop(engine);
    let engine = self::engine(dir.path());
    engine.close();
    let error = engine.recover(None).await.unwrap_err();
    assert!(matches!(error, EngineError::Stopping), "{error}");
}

#[tokio::test]
async fn a_snapshot_past_the_budget_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("large", small()).await.unwrap();
    let limits = engine.data.limits;
    drop(engine);
    let directory = DataDirectory::open(dir.path()).unwrap();
    let engine = Engine::new(
        directory,
        Settings {
            limits,
            max_memory_bytes: 1000,
            durability: INTERVAL,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    let message = engine.recover(None).await.unwrap_err().to_string();
    assert!(
        message.contains("large.snapshot.0000000000000002 holds a filter of 1280 bytes")
            && message.contains("raise --max-memory"),
        "{message}"
    );
}

/// Keys that were acknowledged before the engine was closed are stored. Later keys are refused.
#[tokio::test]
async fn a_closed_engine_answers_and_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("", small()).await.unwrap();
    engine.add("", "key").await.unwrap();
    engine.close();
    assert!(engine.query("", "key").await.unwrap());
    let stopping = |error| matches!(error, EngineError::Stopping);
    assert!(stopping(engine.add("", "b").await.unwrap_err()));
    assert!(stopping(engine.query_and_add("", "b").await.unwrap_err()));
    let batch = engine.query_and_add_batch("", vec!["b"]).await;
    assert!(stopping(batch.unwrap_err()));
    assert!(!engine.query("", "b").await.unwrap());
    assert_eq!(engine.store_changed().await.len(), 1);
}

/// One write of the manifest makes several filters, and each name is made once.
#[tokio::test(flavor = "multi_thread")]
async fn filters_are_made_and_stored_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    let names: Vec<String> = (0..60).map(|number| format!("f{}", number / 2)).collect();
    let made = names
        .as_slice()
        .iter()
        .map(|name| engine.create_filter(name, small()));
    let made = futures_util::future::join_all(made).await;
    let made: Vec<Creation> = made.into_iter().map(Result::unwrap).collect();
    assert_eq!(made.iter().filter(|made| made.is_new).count(), 30);
    let other = SpecRequest::new(2000, 0.01);
    let (one, two) = tokio::join!(
        engine.create_filter("one", small()),
        engine.create_filter("one", other)
    );
    let refused = one.and(two).unwrap_err();
    assert!(
        matches!(refused, EngineError::FilterExists { .. }),
        "{refused}"
    );
    for (number, name) in names.as_slice().iter().enumerate() {
        engine
            .add(name.as_str(), format!("k{number}"))
            .await
            .unwrap();
    }
    let stored = engine.store("").await.unwrap();
    let mut sorted = stored.clone();
    sorted.sort_by_key(|report| report.name.clone());
    assert_eq!(stored, sorted);
    assert_eq!(stored.len(), 31);
    let written = stored.iter().filter(|report| report.written_bytes > 0);
    assert_eq!(written.count(), 30);
    drop(engine);
    let engine = recovered(dir.path()).await;
    for (number, name) in names.as_slice().iter().enumerate() {
        let key = format!("k{number}");
        assert!(engine.query(name.as_str(), key).await.unwrap());
    }
}
