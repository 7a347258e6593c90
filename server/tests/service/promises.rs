//! Promises 1 and 2 at full size: ten million keys, and sixty-four callers at once.

use std::path::Path;

use seenset_history::{Call, Checker, now};
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

use crate::common::{config, dedup, start, stop};

const KEYS: u64 = 10_000_000;
const BATCH: u64 = 10_000;

async fn engine(data_dir: &Path) -> Engine {
    let limits = Limits {
        max_key_bytes: 100,
        max_batch_keys: BATCH as usize,
        max_filters: Limits::MAX_FILTERS,
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

/// Adds ten million distinct keys to a filter that is made for as many or for half of them. Every
/// key is seen at once and after a restart.
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
    // Past the capacity the rate is worse than requested, and the server reports that.
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

/// Sixty-four callers, each on a separate connection, race for the same 100,000 new keys: by
/// stream, by batch and one by one, each in another order. All answers are consistent, and each key
/// is added first by some caller.
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_for_each_key() {
    const RACE_KEYS: usize = 100_000;
    const CALLERS: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    // So large that a false positive among so few keys is practically impossible.
    let server = start(config(dir.path())).await;
    let mut racing = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let client = dedup(&server).await;
        racing.spawn(race(client, caller, order(caller, RACE_KEYS)));
    }
    let mut history = Checker::default();
    for answer in racing.join_all().await.into_iter().flatten() {
        history.extend(answer.calls());
    }
    let checked = history.finish().unwrap();
    assert_eq!(checked.calls, (CALLERS * RACE_KEYS) as u64);
    assert_eq!(checked.won, RACE_KEYS as u64, "keys without a winner");
    stop(server).await;
}

/// The answer to a batch or to a single call. The answers of the race contain millions of keys, so
/// each key becomes a call only when it is checked.
struct Answer {
    begin: u64,
    end: u64,
    indices: Vec<usize>,
    seen: Vec<bool>,
}

impl Answer {
    /// Returns the answer that has arrived now.
    fn new(indices: &[usize], begin: u64, seen: Vec<bool>) -> Self {
        let end = now();
        assert_eq!(indices.len(), seen.len());
        Self {
            begin,
            end,
            indices: indices.to_vec(),
            seen,
        }
    }

    fn calls(self) -> impl Iterator<Item = Call<usize>> {
        let answers = self.indices.into_iter().zip(self.seen);
        answers.map(move |(key, seen)| Call::query_and_add(key, self.begin, self.end, seen))
    }
}

/// Returns the order in which a caller requests the keys: a stride that is prime to their number.
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
) -> Vec<Answer> {
    let keys = |indices: &[usize]| indices.iter().map(|i| format!("key {i}")).collect();
    let mut history = Vec::new();
    match caller % 16 {
        0 => {
            for &index in &order {
                let key = format!("key {index}");
                let request = QueryAndAddRequest {
                    key,
                    ..Default::default()
                };
                let begin = now();
                let answer = client.query_and_add(request).await.unwrap().into_inner();
                history.push(Answer::new(&[index], begin, vec![answer.seen.unwrap()]));
            }
        }
        1..=7 => {
            for indices in order.chunks(997) {
                let request = QueryAndAddBatchRequest {
                    keys: keys(indices),
                    ..Default::default()
                };
                let begin = now();
                let answer = client.query_and_add_batch(request).await;
                history.push(Answer::new(
                    indices,
                    begin,
                    answer.unwrap().into_inner().seen,
                ));
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
            // The transport decides when each message is sent, but not before the stream begins.
            let begin = now();
            let answers = client
                .query_and_add_stream(tokio_stream::iter(requests))
                .await;
            let mut answers = answers.unwrap().into_inner();
            for indices in order.chunks(1000) {
                let answer = answers.message().await.unwrap().unwrap();
                history.push(Answer::new(indices, begin, answer.seen));
            }
        }
    }
    history
}
