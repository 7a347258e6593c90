//! The status of filters, read through the engine.

use std::time::{Duration, Instant, SystemTime};

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn a_rate_is_measured_where_one_filter_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    let made = engine.create_filter("a", small()).await.unwrap().filter;
    assert_eq!(made.measured, None);
    engine.add("a", "key").await.unwrap();
    let measured = engine.get_filter("a").await.unwrap().measured.unwrap();
    assert_eq!((measured.canaries, measured.seen), (10_000, 0));
    let listed = engine.list_filters(0, "").await.unwrap().filters;
    assert_eq!(listed[0].measured, None);
    assert_eq!(listed[0].usage, Usage::default());
}

/// Returns the keys of a filter in its history, one hour from now.
fn last_hour(engine: &Engine) -> Option<(u64, i64)> {
    let filter = engine.data.registry.get(&"a".parse().unwrap()).unwrap();
    let status = filter.status_at(Instant::now() + HOUR, SystemTime::now());
    let outlook = status.last_hour?;
    Some((status.keys_added, outlook.growth.new_keys))
}

#[tokio::test]
async fn a_history_begins_with_the_filter_and_anew_with_a_start() {
    let dir = tempfile::tempdir().unwrap();
    {
        let engine = recovered(dir.path()).await;
        engine.create_filter("a", small()).await.unwrap();
        engine.add_batch("a", vec!["a", "b", "c"]).await.unwrap();
        assert_eq!(last_hour(&engine), Some((3, 3)));
        engine.store("").await.unwrap();
        engine.add("a", "d").await.unwrap();
    }
    // Keys that are read from the disk do not count as new.
    let engine = recovered(dir.path()).await;
    assert_eq!(last_hour(&engine), Some((4, 0)));
    engine.add("a", "e").await.unwrap();
    assert_eq!(last_hour(&engine), Some((5, 1)));
}

#[tokio::test(start_paused = true)]
async fn filters_are_looked_at_once_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        limits: Limits {
            max_key_bytes: 10,
            max_batch_keys: 3,
            max_filters: Limits::MAX_FILTERS,
        },
        max_memory_bytes: 1 << 30,
        // Time would advance while a call waits for a log.
        durability: Durability::Snapshot,
        segment_bytes: Settings::SEGMENT_BYTES,
        requests: RequestLimits::default(),
    };
    let engine = Engine::new(DataDirectory::open(dir.path()).unwrap(), settings);
    engine.recover(None).await.unwrap();
    engine.create_filter("a", small()).await.unwrap();
    let filter = engine.data.registry.get(&"a".parse().unwrap()).unwrap();
    // To the minute: the minute in which the filter was made was measured by another clock.
    let last_hour = || {
        let now = tokio::time::Instant::now().into_std();
        let growth = filter.status_at(now, SystemTime::now()).last_hour;
        let growth = growth.unwrap().growth;
        let minutes = (growth.span.as_secs_f64() / 60.0).round() as u64;
        (minutes, growth.new_keys)
    };
    let sampling = tokio::spawn({
        let engine = engine.clone();
        async move { engine.sample_periodically().await }
    });
    // Between two samples.
    tokio::time::sleep(HOUR / 2 + HOUR / 120).await;
    engine.add_batch("a", vec!["a", "b", "c"]).await.unwrap();
    assert!(matches!(last_hour(), (30..=31, 3)), "{:?}", last_hour());
    tokio::time::sleep(HOUR).await;
    assert!(matches!(last_hour(), (60..=61, 3)), "{:?}", last_hour());
    tokio::time::sleep(HOUR / 20).await;
    assert!(matches!(last_hour(), (60..=61, 0)), "{:?}", last_hour());
    sampling.abort();
}

#[tokio::test]
async fn there_are_no_more_filters_than_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let with =
        |max_filters| engine_with(dir.path(), max_filters, INTERVAL, Settings::SEGMENT_BYTES);
    let is_refused = |made: Result<FilterStatus, EngineError>| {
        let refused = matches!(made, Err(EngineError::TooManyFilters { limit: 3 }));
        assert!(refused, "{made:?}");
    };
    let engine = with(3);
    engine.recover(None).await.unwrap();
    for name in ["a", "b", "c"] {
        engine.create_filter(name, small()).await.unwrap();
    }
    let create = async |name| {
        let created = engine.create_filter(name, small()).await;
        created.map(|created| created.filter)
    };
    is_refused(create("d").await);
    is_refused(engine.copy_filter("a", "d").await);
    is_refused(engine.start_rebuild("a", "d", None).await);
    // Calls for existing filters succeed.
    create("a").await.unwrap();
    engine.rename_filter("a", "d").await.unwrap();
    engine.delete_filter("b").await.unwrap();
    engine.copy_filter("c", "e").await.unwrap();
    drop(engine);
    let engine = with(2);
    let recovered = engine.recover(None).await.unwrap();
    assert_eq!(recovered.filters.len(), 3);
}
