//! Keys in layers that are replayed from the log. Keys that were seen by chance depend on the bits
//! of others.

use super::*;

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
