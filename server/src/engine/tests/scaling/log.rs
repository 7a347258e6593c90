//! Keys in layers that are replayed from the log. Keys that were seen by chance rest on the bits of
//! others.

use super::*;
use crate::store::{Batch, RecordHead};

/// A key that was seen by chance must stay seen, although other keys have set its bits. Replay puts
/// those keys back into their layers, in whatever order they were written to the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_by_chance_is_seen_after_a_crash() {
    let (disk, engine) = begun(scaling(1000, None)).await;
    let writers = (0..4_u64).map(|writer| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for first in (writer..100_000).step_by(400) {
                let batch = (0..100)
                    .map(|place| key(first + place * 4))
                    .collect::<Vec<_>>();
                engine.add_batch("urls", batch).await.unwrap();
            }
        })
    });
    for written in join_all(writers).await {
        written.unwrap();
    }
    all_are_seen(&engine, 100_000).await;
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    all_are_seen(&engine, 100_000).await;
}

/// Returns the disk of an old server whose log has no layers. It was killed after it had added
/// `count` keys.
async fn left_by_an_old_server(count: u64) -> SimulatedDisk {
    let (disk, engine) = begun(frequent()).await;
    let empty = disk.kill();
    for first in (0..count).step_by(100) {
        let keys = keys(first..first + 100);
        engine.add_batch("urls", keys).await.unwrap();
    }
    let (mut batches, filled) = (
        Vec::new(),
        DataDirectory::on(Arc::new(disk.kill())).unwrap(),
    );
    let read = |record: crate::store::Record| {
        let head = RecordHead {
            layer: None,
            ..record.head
        };
        let mut batch = Batch::default();
        batch.push(&head, record.hashes.len(), record.hashes.into_iter());
        batches.push(batch);
        Ok::<_, EngineError>(())
    };
    filled.log().unwrap().read(read, &mut Err).unwrap();
    let directory = DataDirectory::on(Arc::new(empty.clone())).unwrap();
    let ignore = |_| Ok::<_, EngineError>(());
    let mut found = directory.log().unwrap().read(ignore, &mut Err).unwrap();
    let mut log = directory.open_log(&mut found, 4 << 20).unwrap();
    for batch in &mut batches {
        log.write(batch).unwrap();
    }
    log.sync().unwrap();
    empty.kill()
}

/// A filter in which many keys are seen by chance.
fn frequent() -> SpecRequest {
    SpecRequest {
        false_positive_rate: Some(0.1),
        ..scaling(1000, None)
    }
}

#[tokio::test]
async fn keys_of_an_old_log_come_to_the_same_places_at_each_start() {
    let disk = left_by_an_old_server(10_000).await;
    let engine = start(&disk, INTERVAL).await.unwrap();
    all_are_seen(&engine, 10_000).await;
    for first in (10_000..40_000).step_by(100) {
        let keys = keys(first..first + 100);
        engine.add_batch("urls", keys).await.unwrap();
    }
    let engine = start(&disk.kill(), INTERVAL).await.unwrap();
    all_are_seen(&engine, 40_000).await;
}
