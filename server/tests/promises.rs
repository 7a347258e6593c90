//! Promises 1 and 2 at full size: ten million keys, and sixty-four callers at once.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use common::{config, dedup, start, stop};
use seenset_proto::v1::{
    QueryAndAddBatchRequest, QueryAndAddRequest, QueryAndAddStreamRequest,
    dedup_service_client::DedupServiceClient,
};
use seenset_server::{
    engine::{Durability, Engine, Limits, RequestLimits, Settings},
    filter::spec::{Layout, SpecRequest},
    store::DataDirectory,
};
use tonic::transport::Channel;

const KEYS: u64 = 10_000_000;
const BATCH: u64 = 10_000;

async fn engine(data_dir: &Path) -> Engine {
    let limits = Limits {
        max_key_bytes: 100,
        max_batch_keys: BATCH as usize,
    };
    let engine = Engine::new(
        DataDirectory::open(data_dir).unwrap(),
        Settings {
            limits,
            max_memory_bytes: 1 << 30,
            durability: Durability::Snapshot,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    engine.recover(None).await.unwrap();
    engine
}

fn batches() -> impl Iterator<Item = Vec<String>> {
    (0..KEYS / BATCH).map(|batch| {
        (batch * BATCH..(batch + 1) * BATCH)
            .map(|i| format!("https://example.com/{i}"))
            .collect()
    })
}

async fn assert_all_seen(engine: &Engine, when: &str) {
    for keys in batches() {
        let seen = engine.query_batch("", keys.clone()).await.unwrap();
        if let Some(index) = seen.iter().position(|&seen| !seen) {
            panic!("{} was forgotten {when}", keys[index]);
        }
    }
}

/// Ten million distinct keys, in a filter made for as many or for half of them: every one
/// is seen at once and after a restart.
async fn nothing_is_forgotten(layout: Layout, capacity: u64) {
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path()).await;
    let request = SpecRequest {
        layout,
        ..SpecRequest::new(capacity, 0.01)
    };
    first.create_filter("", request).await.unwrap();
    for keys in batches() {
        first.add_batch("", keys).await.unwrap();
    }
    assert_all_seen(&first, "before the restart").await;
    first.store("").await.unwrap();
    let before = first.get_filter("").await.unwrap();
    drop(first);

    let second = engine(dir.path()).await;
    assert_all_seen(&second, "after the restart").await;
    let after = second.get_filter("").await.unwrap();
    assert_eq!(
        (after.version, after.keys_added),
        (before.version, before.keys_added)
    );
    // Past the capacity the rate is worse than asked for, and says so.
    assert_eq!(after.predicted_false_positive_rate > 0.01, capacity < KEYS);
}

#[tokio::test]
async fn nothing_is_forgotten_blocked() {
    nothing_is_forgotten(Layout::Blocked, KEYS).await;
}

#[tokio::test]
async fn nothing_is_forgotten_blocked_past_capacity() {
    nothing_is_forgotten(Layout::Blocked, KEYS / 2).await;
}

#[tokio::test]
async fn nothing_is_forgotten_classic() {
    nothing_is_forgotten(Layout::Classic, KEYS).await;
}

#[tokio::test]
async fn nothing_is_forgotten_classic_past_capacity() {
    nothing_is_forgotten(Layout::Classic, KEYS / 2).await;
}

/// Sixty-four callers, each on a connection of its own, race on the same 100,000 new keys:
/// by stream, by batch and one by one, each from another end.
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_for_each_key() {
    const RACE_KEYS: usize = 100_000;
    const CALLERS: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    // Large enough that a false positive among so few keys is out of the question.
    let server = start(config(dir.path())).await;
    let wins: Arc<Vec<AtomicU8>> = Arc::new((0..RACE_KEYS).map(|_| AtomicU8::new(0)).collect());
    let mut racing = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let client = dedup(&server).await;
        racing.spawn(race(client, caller, order(caller, RACE_KEYS), wins.clone()));
    }
    while let Some(ended) = racing.join_next().await {
        ended.unwrap();
    }
    let not_one = wins
        .iter()
        .filter(|wins| wins.load(Ordering::Relaxed) != 1)
        .count();
    assert_eq!(not_one, 0, "keys with no winner, or with several");
    stop(server).await;
}

/// The order in which a caller asks for the keys: a stride that is prime to their number.
fn order(caller: usize, keys: usize) -> Vec<usize> {
    let stride = [1, 99_999, 7, 77_777][caller % 4];
    (0..keys)
        .map(|i| (caller * 1500 + i * stride) % keys)
        .collect()
}

async fn race(
    mut client: DedupServiceClient<Channel>,
    caller: usize,
    order: Vec<usize>,
    wins: Arc<Vec<AtomicU8>>,
) {
    let keys = |indices: &[usize]| indices.iter().map(|i| format!("key {i}")).collect();
    let count = |indices: &[usize], seen: &[bool]| {
        assert_eq!(indices.len(), seen.len());
        for (&index, _) in indices.iter().zip(seen).filter(|(_, seen)| !**seen) {
            wins[index].fetch_add(1, Ordering::Relaxed);
        }
    };
    match caller % 16 {
        0 => {
            for &index in &order {
                let key = format!("key {index}");
                let request = QueryAndAddRequest {
                    key,
                    ..Default::default()
                };
                let seen = client
                    .query_and_add(request)
                    .await
                    .unwrap()
                    .into_inner()
                    .seen;
                count(&[index], &[seen.unwrap()]);
            }
        }
        1..=7 => {
            for indices in order.chunks(997) {
                let request = QueryAndAddBatchRequest {
                    keys: keys(indices),
                    ..Default::default()
                };
                let seen = client
                    .query_and_add_batch(request)
                    .await
                    .unwrap()
                    .into_inner()
                    .seen;
                count(indices, &seen);
            }
        }
        _ => {
            let requests: Vec<QueryAndAddStreamRequest> = order
                .chunks(1000)
                .map(|indices| QueryAndAddStreamRequest {
                    keys: keys(indices),
                    ..Default::default()
                })
                .collect();
            let answers = client
                .query_and_add_stream(tokio_stream::iter(requests))
                .await;
            let mut answers = answers.unwrap().into_inner();
            for indices in order.chunks(1000) {
                count(indices, &answers.message().await.unwrap().unwrap().seen);
            }
        }
    }
}
