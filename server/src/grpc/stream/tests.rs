//! How long a stream has its thread.

use std::{convert::Infallible, future::poll_fn};

use futures_util::poll;
use http_body::{Body as _, Frame};
use prost::Message as _;
use seenset_proto::{codec::ContractCodec, v1::QueryAndAddStreamRequest};
use tonic::{
    body::Body,
    codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride},
    codegen::Bytes,
};

use super::*;
use crate::{engine::Durability, grpc::testing::engine};

/// Messages that have arrived.
struct Arrived(Option<Bytes>);

impl http_body::Body for Arrived {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The length of a message, and the message.
fn framed(message: &[u8]) -> impl Iterator<Item = u8> {
    let length = (message.len() as u32).to_be_bytes();
    [0].into_iter().chain(length).chain(message.to_vec())
}

fn frame(body: &mut Body) -> impl Future<Output = Option<Result<Frame<Bytes>, Status>>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))
}

/// The answers to what has arrived leave after a part of a window, not after all of it, and the
/// thread is free then: or the client would have nothing to send before all is answered, and
/// the server nothing to answer before the client has sent that.
#[tokio::test]
async fn a_stream_gives_way_when_it_has_answered_a_part_of_its_window() {
    const BATCHES: usize = 12;
    let batch = QueryAndAddStreamRequest {
        keys: vec!["k".repeat(60); 1000],
        ..Default::default()
    };
    let batch = batch.encode_to_vec();
    let arrived: Bytes = (0..BATCHES).flat_map(|_| framed(&batch)).collect();

    let dir = tempfile::tempdir().unwrap();
    let mut codec = ContractCodec::<BatchResponse, BatchRequest>::default();
    let body = Body::new(Arrived(Some(arrived)));
    let batches = Streaming::new_request(codec.decoder(), body, None, None);
    let (_drain, draining) = watch::channel(Drain::No);
    let engine = engine(dir.path(), Durability::Snapshot).await;
    let answers = Answers::new(engine, batches, draining);
    let keep = SingleMessageCompressionOverride::default();
    let mut body = Body::new(EncodeBody::new_server(
        codec.encoder(),
        answers,
        None,
        keep,
        None,
    ));

    let answer_bytes = framed(
        &BatchResponse {
            seen: vec![true; 1000],
        }
        .encode_to_vec(),
    )
    .count();
    let a_turn = TURN_BYTES.div_ceil(batch.len());
    let mut left = BATCHES;
    while left > 0 {
        let Poll::Ready(Some(Ok(answers))) = poll!(frame(&mut body)) else {
            panic!("{left} are left");
        };
        let answers = answers.into_data().unwrap().len();
        assert_eq!(answers, a_turn.min(left) * answer_bytes);
        left -= a_turn.min(left);
        if left > 0 {
            assert!(poll!(frame(&mut body)).is_pending(), "{left} are left");
        }
    }
    assert!(frame(&mut body).await.unwrap().unwrap().is_trailers());
}
