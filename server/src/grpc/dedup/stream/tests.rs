//! Tests of the time for which a stream keeps its thread.

use std::future::poll_fn;

use futures_util::poll;
use prost::Message as _;
use seenset_proto::v1::{QueryAndAddStreamRequest, QueryAndAddStreamResponse};
use tokio::{sync::mpsc, time::advance};
use tonic::{Code, codegen::http::HeaderMap};

use super::*;
use crate::{
    engine::Durability,
    grpc::{
        testing::{self, Arrived, Arriving, engine},
        wire::memory::CALL_BYTES,
    },
};

/// The length of a message, and the message.
fn framed(message: &[u8]) -> impl Iterator<Item = u8> {
    let length = (message.len() as u32).to_be_bytes();
    [0].into_iter().chain(length).chain(message.to_vec())
}

fn no_deadline() -> Deadline {
    Deadline::of(&HeaderMap::new())
}

fn frame(answers: &mut Answers) -> impl Future<Output = Frame<Bytes>> {
    poll_fn(|cx| answers.poll_frame(cx))
}

/// The answers leave after a part of a window, not after all of it, and then the thread is free.
/// Otherwise the client would have nothing to send until everything is answered, and the server
/// nothing to answer until the client has sent more. The same holds for batches without keys, which
/// count although they have no bytes.
#[tokio::test]
async fn a_stream_gives_way_when_it_has_answered_a_part_of_its_window() {
    for (keys, batches) in [(1000, 12), (0, 3000)] {
        gives_way(keys, batches).await;
    }
}

async fn gives_way(keys: usize, batches: usize) {
    let batch = QueryAndAddStreamRequest {
        keys: vec!["k".repeat(60); keys],
        ..Default::default()
    };
    let batch = batch.encode_to_vec();
    let arrived: Bytes = (0..batches).flat_map(|_| framed(&batch)).collect();

    let dir = tempfile::tempdir().unwrap();
    let messages = testing::messages(Arrived::new([arrived]));
    let (_drain, draining) = watch::channel(Drain::No);
    let engine = engine(dir.path(), Durability::Snapshot).await;
    let mut answers = Answers::new(
        engine,
        messages,
        &testing::connection(),
        no_deadline(),
        draining,
    );

    let mut first = true;
    let mut answer = || {
        let mut seen = vec![true; keys];
        // A batch holds one key many times.
        if std::mem::take(&mut first) {
            seen.iter_mut().take(1).for_each(|seen| *seen = false);
        }
        let answer = QueryAndAddStreamResponse {
            seen,
            capacity_warning: None,
        };
        framed(&answer.encode_to_vec()).collect::<Vec<u8>>()
    };
    let a_turn = TURN_BYTES.div_ceil(batch.len() + BATCH_BYTES);
    assert!(a_turn < batches);
    let mut left = batches;
    while left > 0 {
        let Poll::Ready(sent) = poll!(frame(&mut answers)) else {
            panic!("{left} are left");
        };
        let expected = (0..a_turn.min(left)).flat_map(|_| answer());
        assert!(sent.into_data().unwrap().into_iter().eq(expected));
        left -= a_turn.min(left);
        if left > 0 {
            assert!(poll!(frame(&mut answers)).is_pending(), "{left} are left");
        }
    }
    let trailers = frame(&mut answers).await.into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
}

/// The memory of a large batch is released when the batch is answered, even if its client does not
/// read the answer.
#[tokio::test]
async fn an_answered_batch_holds_no_memory() {
    let batch = QueryAndAddStreamRequest {
        keys: vec!["k".repeat(TURN_BYTES / 1000); 1000],
        ..Default::default()
    };
    let mut arrived: Bytes = framed(&batch.encode_to_vec()).collect();
    let first = arrived.split_to(10);
    let connection = testing::connection();
    let free = connection.held_bytes();
    let pieces = Arrived::new([first, arrived]);
    let messages = Messages::new(pieces, &connection, testing::MAX_MESSAGE_BYTES).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let (_drain, draining) = watch::channel(Drain::No);
    let engine = engine(dir.path(), Durability::Snapshot).await;
    let mut answers = Answers::new(
        engine,
        messages,
        &testing::connection(),
        no_deadline(),
        draining,
    );
    assert!(frame(&mut answers).await.is_data());
    assert_eq!(connection.held_bytes(), free + CALL_BYTES);
}

/// A batch that arrives after the deadline adds nothing, and the stream ends without waiting for
/// more.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path(), Durability::Snapshot).await;
    for sends_late in [false, true] {
        let (client, arriving) = mpsc::unbounded_channel();
        let messages = testing::messages(Arriving(arriving));
        let (_drain, draining) = watch::channel(Drain::No);
        let second = [("grpc-timeout".parse().unwrap(), "1S".parse().unwrap())];
        let deadline = Deadline::of(&HeaderMap::from_iter(second));
        let mut answers = Answers::new(
            engine.clone(),
            messages,
            &testing::connection(),
            deadline,
            draining,
        );
        let send = |key: &str| {
            let batch = QueryAndAddStreamRequest {
                keys: vec![key.to_owned()],
                ..Default::default()
            };
            let message = framed(&batch.encode_to_vec()).collect();
            client.send(message).unwrap();
        };
        send(&format!("in time {sends_late}"));
        assert!(frame(&mut answers).await.is_data());
        assert!(poll!(frame(&mut answers)).is_pending());
        if sends_late {
            advance(Duration::from_secs(2)).await;
            send("late");
        }
        let trailers = frame(&mut answers).await.into_trailers().unwrap();
        let status = Status::from_header_map(&trailers).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    assert!(engine.query("", "in time true").await.unwrap());
    assert!(!engine.query("", "late").await.unwrap());
}
