//! Helpers for tests of the rpcs.

use std::{
    collections::VecDeque,
    convert::Infallible,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tonic::{codegen::StdError, service::Routes};

use crate::{
    engine::{Durability, Engine, Limits, RequestLimits, Settings, SpecRequest},
    grpc::{
        Services,
        core::Core,
        wire::{
            calls::Calls,
            memory::{ClientMemory, ConnectionMemory},
            messages::Messages,
        },
    },
    store::DataDirectory,
};

/// Returns an engine with the default filter.
pub async fn engine(dir: &Path, durability: Durability) -> Engine {
    let engine = Engine::new(
        DataDirectory::open(dir).unwrap(),
        Settings {
            limits: Limits {
                max_key_bytes: 10_000,
                max_batch_keys: 1000,
                max_filters: Limits::MAX_FILTERS,
            },
            max_memory_bytes: 1 << 30,
            durability,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    let spec = SpecRequest::new(1_000_000, 0.01);
    engine.recover(Some(spec)).await.unwrap();
    engine
}

/// Returns the state that calls of a core share.
pub async fn core(dir: &Path, durability: Durability) -> Arc<Core> {
    let engine = engine(dir, durability).await;
    let services = Services::new(
        engine,
        Calls::default(),
        MAX_MESSAGE_BYTES,
        Routes::default(),
    );
    services.for_core().core
}

/// The longest message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Returns the memory of a connection.
pub fn connection() -> Arc<ConnectionMemory> {
    ClientMemory::new(ClientMemory::LEAST_BYTES).connection()
}

/// Returns the messages of a call.
pub fn messages<B>(body: B) -> Messages<B>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    Messages::new(body, &connection(), MAX_MESSAGE_BYTES).unwrap()
}

/// A body that has arrived, in these pieces.
pub struct Arrived(VecDeque<Bytes>);

impl Arrived {
    pub fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self(pieces.into_iter().collect())
    }
}

impl Body for Arrived {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A body that never arrives.
pub struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// A body whose pieces arrive when they are sent.
pub struct Arriving(pub mpsc::UnboundedReceiver<Bytes>);

impl Body for Arriving {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
