//! The length of the log.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::{
    durability::{key, settings, start},
    *,
};
use crate::store::{Disk, simulated::SimulatedDisk};

/// Returns the number of segments, including the one that is made ahead.
fn segments(disk: &SimulatedDisk) -> usize {
    let names = disk.names().unwrap().into_iter();
    names.filter(|name| name.ends_with(".log")).count()
}

/// The log is no longer than the changes that are not in snapshots, however often the server starts
/// and however long some filters rest.
#[tokio::test]
async fn the_log_does_not_grow_for_ever() {
    let disk = SimulatedDisk::default();
    for round in 0..5 {
        let engine = start(&disk, INTERVAL).await.unwrap();
        engine.create_filter("resting", small()).await.unwrap();
        let large = SpecRequest::new(100_000, 0.001);
        engine.create_filter("urls", large).await.unwrap();
        assert!(segments(&disk) <= 3, "round {round}");
        engine.add("urls", &key(round)).await.unwrap();
        if round == 3 {
            engine.add("resting", "a").await.unwrap();
        }
        for outcome in engine.store_changed().await {
            outcome.result.unwrap();
        }
        assert!(segments(&disk) <= 2, "round {round}");
    }
    // A segment has 64 KiB.
    let engine = start(&disk, INTERVAL).await.unwrap();
    for batch in 0..100 {
        let keys: Vec<String> = (0..100).map(|i| key(1000 + batch * 100 + i)).collect();
        engine.add_batch("urls", keys).await.unwrap();
    }
    assert!(segments(&disk) > 3);
    engine.store_changed().await;
    assert!(segments(&disk) <= 2);
    drop(engine);
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    assert!(engine.query("resting", "a").await.unwrap());
    assert!(engine.query("urls", &key(1000)).await.unwrap());
    assert!(engine.query("urls", &key(3)).await.unwrap());
}

/// A long log triggers a store before it takes more room than the filters. Nobody has to ask for
/// the store or wait for its time.
#[tokio::test]
async fn a_long_log_has_the_filters_stored() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    engine.create_filter("urls", small()).await.unwrap();
    // A segment has 64 KiB.
    let large = SpecRequest::new(200_000, 0.001);
    engine.create_filter("large", large).await.unwrap();
    for batch in 0..120 {
        let keys: Vec<String> = (0..1000).map(|i| key(batch * 1000 + i)).collect();
        engine.add_batch("large", keys).await.unwrap();
    }
    assert!(segments(&disk) > 20);
    let storing = tokio::spawn({
        let engine = engine.clone();
        async move {
            let hour = Duration::from_secs(3600);
            engine.store_periodically(hour, |_| {}).await;
        }
    });
    tokio::time::timeout(Duration::from_secs(20), async {
        while segments(&disk) > 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    storing.abort();
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    assert!(engine.query("large", &key(119_999)).await.unwrap());
}

/// Every store writes the remembered requests again. If they counted, stores would never end.
#[tokio::test(start_paused = true)]
async fn remembered_requests_do_not_have_the_filters_stored() {
    let segment_bytes = 16 << 10;
    let disk = SimulatedDisk::default();
    let engine = Engine::new(
        DataDirectory::on(Arc::new(disk.clone())).unwrap(),
        Settings {
            segment_bytes,
            requests: RequestLimits {
                keys: 100_000,
                ..RequestLimits::default()
            },
            ..settings(INTERVAL)
        },
    );
    engine.recover(None).await.unwrap();
    let spec = SpecRequest::new(10_000, 0.001);
    engine.create_filter("urls", spec).await.unwrap();
    for number in 0..8000 {
        let id = number.to_string();
        let call = Call {
            filter: "urls",
            request_id: &id,
            max_age: None,
            deadline: None,
        };
        engine.query_and_add(call, &key(number)).await.unwrap();
    }
    engine.store_changed().await;
    // The log is as long as one that triggers a store.
    assert!(segments(&disk) > 18);
    let stored = AtomicUsize::new(0);
    let hour = Duration::from_secs(3600);
    let storing = engine.store_periodically(hour, |_| {
        stored.fetch_add(1, Ordering::Relaxed);
    });
    let minute = Duration::from_secs(60);
    assert!(tokio::time::timeout(minute, storing).await.is_err());
    assert_eq!(stored.into_inner(), 0);
}
