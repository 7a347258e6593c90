//! How long a stream has its thread.

use std::{future::poll_fn, sync::Arc};

use futures_util::poll;
use prost::Message as _;
use seenset_proto::v1::{QueryAndAddStreamRequest, QueryAndAddStreamResponse};

use super::*;
use crate::{
    engine::Durability,
    grpc::{
        messages::Room,
        testing::{Arrived, engine},
    },
};

/// The length of a message, and the message.
fn framed(message: &[u8]) -> impl Iterator<Item = u8> {
    let length = (message.len() as u32).to_be_bytes();
    [0].into_iter().chain(length).chain(message.to_vec())
}

fn frame(answers: &mut Answers) -> impl Future<Output = Frame<Bytes>> {
    poll_fn(|cx| answers.poll_frame(cx))
}

/// The answers to what has arrived leave after a part of a window, not after all of it, and the
/// thread is free then: or the client would have nothing to send before all is answered, and
/// the server nothing to answer before the client has sent that. So do those to batches without
/// a key, which count although they have no bytes.
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
    let messages = Messages::new(Arrived::new([arrived]), &Arc::new(Room::new(usize::MAX)));
    let (_drain, draining) = watch::channel(Drain::No);
    let engine = engine(dir.path(), Durability::Snapshot).await;
    let mut answers = Answers::new(engine, messages, draining);

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

/// The room of a large batch is free when it is answered, also if its client does not read that.
#[tokio::test]
async fn an_answered_batch_has_no_room() {
    let batch = QueryAndAddStreamRequest {
        keys: vec!["k".repeat(TURN_BYTES / 1000); 1000],
        ..Default::default()
    };
    let mut arrived: Bytes = framed(&batch.encode_to_vec()).collect();
    let first = arrived.split_to(10);
    let room = Arc::new(Room::new(usize::MAX));
    let messages = Messages::new(Arrived::new([first, arrived]), &room);

    let dir = tempfile::tempdir().unwrap();
    let (_drain, draining) = watch::channel(Drain::No);
    let engine = engine(dir.path(), Durability::Snapshot).await;
    let mut answers = Answers::new(engine, messages, draining);
    assert!(frame(&mut answers).await.is_data());
    assert!(room.is_free());
}
