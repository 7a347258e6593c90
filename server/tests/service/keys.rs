//! Keys: queried, added, both at once; one by one, in batches and in streams.

use std::time::Duration;

use seenset_proto::v1::{
    AddBatchRequest, AddRequest, QueryAndAddBatchRequest, QueryAndAddRequest,
    QueryAndAddStreamRequest, QueryBatchRequest, QueryRequest,
    dedup_service_client::DedupServiceClient,
};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Status, transport::Channel};

use crate::{
    common::{config, dedup, start, stop},
    key, keys, request,
};

#[tokio::test]
async fn keys_are_seen_once_they_were_added_whichever_way() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;

    let query = |text: &str| QueryRequest {
        filter: String::new(),
        key: key(text),
        ..Default::default()
    };
    let query_and_add = |text: &str| request(|r: &mut QueryAndAddRequest| r.key = key(text));
    assert_eq!(
        client.query(query("a")).await.unwrap().into_inner().seen,
        Some(false)
    );
    assert_eq!(
        client
            .query_and_add(query_and_add("a"))
            .await
            .unwrap()
            .into_inner()
            .seen,
        Some(false)
    );
    assert_eq!(
        client
            .query_and_add(query_and_add("a"))
            .await
            .unwrap()
            .into_inner()
            .seen,
        Some(true)
    );
    client
        .add(request(|r: &mut AddRequest| r.key = key("b")))
        .await
        .unwrap();
    assert_eq!(
        client.query(query("b")).await.unwrap().into_inner().seen,
        Some(true)
    );

    // The name of the default filter means the same as no name.
    let batch = QueryBatchRequest {
        filter: key("default"),
        keys: keys(&["c", "a", "b"]),
        ..Default::default()
    };
    assert_eq!(
        client.query_batch(batch).await.unwrap().into_inner().seen,
        [false, true, true]
    );
    client
        .add_batch(request(|r: &mut AddBatchRequest| {
            r.keys = keys(&["c", "d"])
        }))
        .await
        .unwrap();
    let batch = request(|r: &mut QueryAndAddBatchRequest| r.keys = keys(&["e", "d", "e", "c"]));
    let seen = client
        .query_and_add_batch(batch)
        .await
        .unwrap()
        .into_inner()
        .seen;
    assert_eq!(seen, [false, true, true, true]);
    let batch = request(|r: &mut QueryAndAddBatchRequest| r.keys = vec![]);
    assert!(
        client
            .query_and_add_batch(batch)
            .await
            .unwrap()
            .into_inner()
            .seen
            .is_empty()
    );
    stop(server).await;
}

#[tokio::test]
async fn a_stream_answers_each_batch_in_order_and_ends_with_the_first_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    let batch = |texts: &[&str]| request(|r: &mut QueryAndAddStreamRequest| r.keys = keys(texts));
    let batches = [
        batch(&["a", "b"]),
        batch(&[]),
        batch(&["b", "c", "c"]),
        batch(&["d", ""]),
        batch(&["e"]),
    ];
    let answers = client
        .query_and_add_stream(tokio_stream::iter(batches))
        .await
        .unwrap();
    let answers: Vec<Result<Vec<bool>, Status>> = answers
        .into_inner()
        .map(|answer| answer.map(|answer| answer.seen))
        .collect()
        .await;
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0].as_ref().unwrap(), &[false, false]);
    assert!(answers[1].as_ref().unwrap().is_empty());
    assert_eq!(answers[2].as_ref().unwrap(), &[true, false, true]);
    let status = answers[3].as_ref().unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().starts_with("keys[1] has 0 bytes"),
        "{status}"
    );

    let batch = QueryBatchRequest {
        filter: String::new(),
        keys: keys(&["c", "d", "e"]),
        ..Default::default()
    };
    let seen = client.query_batch(batch).await.unwrap().into_inner().seen;
    assert_eq!(
        seen,
        [true, false, false],
        "a refused batch, or one behind it, was added"
    );
    stop(server).await;
}

/// One connection sends more large messages at once than the server has room for. The messages that
/// wait must not keep the others from arriving.
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_on_one_connection_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let client = dedup(&server).await;
    let mut calls = JoinSet::new();
    for call in 0..40 {
        let mut client = client.clone();
        calls.spawn(async move {
            let keys = (0..250).map(|key| format!("{call}/{key:060000}")).collect();
            let batch = QueryAndAddBatchRequest {
                keys,
                ..Default::default()
            };
            client.query_and_add_batch(batch).await
        });
    }
    let answers = timeout(Duration::from_secs(40), calls.join_all()).await;
    for answer in answers.expect("calls wait for each other") {
        assert_eq!(answer.unwrap().into_inner().seen, [false; 250]);
    }
    stop(server).await;
}

/// A client that sends and does not read is held back. It does not block others, not even on its
/// own connection. Once it reads, it gets all its answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_not_read_stands_still_by_itself() {
    const BATCH: usize = 1000;
    /// Far more than the windows of a stream hold.
    const ENOUGH: usize = 2000;
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let endpoint = Channel::from_shared(format!("http://{}", server.local_addr())).unwrap();
    // The unread answers of one stream must not fill up the window that all streams of the client
    // share.
    let endpoint = endpoint
        .initial_stream_window_size(1 << 16)
        .initial_connection_window_size(1 << 20);
    let mut client = DedupServiceClient::new(endpoint.connect().await.unwrap());
    let batch = |number: usize| {
        let key = |key| format!("{number}/{key:050}");
        request(|r: &mut QueryAndAddStreamRequest| r.keys = (0..BATCH).map(key).collect())
    };

    let (batches, requests) = mpsc::channel(1);
    let slow = client
        .query_and_add_stream(ReceiverStream::new(requests))
        .await
        .unwrap();
    let mut sent = 0;
    while let Ok(taken) = timeout(Duration::from_secs(1), batches.send(batch(sent))).await {
        taken.unwrap();
        sent += 1;
        assert!(sent < ENOUGH, "nothing holds the client back");
    }
    assert!(sent > 4, "{sent} batches are in flight at most");

    for mut other in [client, dedup(&server).await] {
        let batches = (0..100).map(batch).collect::<Vec<_>>();
        let answers = timeout(Duration::from_secs(20), async {
            let answers = other.query_and_add_stream(tokio_stream::iter(batches));
            answers
                .await
                .unwrap()
                .into_inner()
                .collect::<Vec<_>>()
                .await
        });
        let answers = answers.await.expect("another stream stands still as well");
        assert_eq!(answers.len(), 100);
        assert!(answers.iter().all(Result::is_ok));
    }

    drop(batches);
    let answers: Vec<_> = slow.into_inner().collect().await;
    assert_eq!(answers.len(), sent);
    for answer in answers {
        assert_eq!(answer.unwrap().seen.len(), BATCH);
    }
    stop(server).await;
}
