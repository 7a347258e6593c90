//! Data directories as servers of the past left them, and how the present one takes them over.
//!
//! `formats/N` was written by the first server of format N of snapshots, with the filters
//! `default` and `classic` for 100 keys, and `https://example.com/1` to `/50` in each.

#![allow(clippy::unwrap_used, reason = "a test that fails says so")]

use std::{fs, path::Path};

use seenset_server::{
    engine::{Durability, Engine, Layout, Limits, RequestLimits, Settings},
    store::{DataDirectory, SNAPSHOT_FORMAT},
};

async fn recovered(dir: &Path) -> Engine {
    let limits = Limits {
        max_key_bytes: 100,
        max_batch_keys: 100,
    };
    let engine = Engine::new(
        DataDirectory::open(dir).unwrap(),
        Settings {
            limits,
            max_memory_bytes: 1 << 20,
            durability: Durability::Snapshot,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    engine.recover(None).await.unwrap();
    engine
}

fn keys(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|i| format!("https://example.com/{i}")).collect()
}

/// Each format has its directory: one that is raised and has none fails here.
#[tokio::test]
async fn every_format_is_read_and_stored_as_the_present_one() {
    for format in 1..=SNAPSHOT_FORMAT {
        let kept = format!("{}/tests/formats/{format}", env!("CARGO_MANIFEST_DIR"));
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(kept).expect("a directory for each format") {
            let file = file.unwrap();
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        // As it was left; stored anew; and as that is found.
        for start in 0..3 {
            let engine = recovered(dir.path()).await;
            for (filter, layout) in [("default", Layout::Blocked), ("classic", Layout::Classic)] {
                let case = format!("format {format}, {filter}, start {start}");
                let status = engine.get_filter(filter).await.unwrap();
                assert_eq!((status.spec.capacity, status.spec.layout), (100, layout));
                assert_eq!(status.keys_added, 50 + start, "{case}");
                let seen = engine.query_batch(filter, keys(1..=50)).await.unwrap();
                assert_eq!(seen, [true; 50], "{case}");
                let unseen = engine.query_batch(filter, keys(1001..=1010)).await.unwrap();
                assert_eq!(unseen, [false; 10], "{case}");
                let key = format!("new at start {start}");
                assert!(!engine.query_and_add(filter, &key).await.unwrap(), "{case}");
            }
            engine.store("").await.unwrap();
        }
        assert!(!dir.path().join("default.snapshot").exists());
    }
}
