//! The connections of one core, over HTTP/2: hyper, without what tonic puts around it for each
//! call (`docs/decisions/0014-without-tonic.md`).

use std::convert::Infallible;

use futures_util::StreamExt;
use http_body::Body;
use hyper::{body::Incoming as RequestBody, server::conn::http2::Builder, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::graceful::GracefulShutdown,
};
use tonic::codegen::{
    Bytes, StdError,
    http::{Request, Response},
};

use crate::{cores::Incoming, grpc};

/// The calls that one connection may have in flight, each with a message of its own.
const MAX_STREAMS: u32 = 256;

/// What a client may send on all streams of a connection before the server has taken it. There
/// must be room for what each of them may send: or the streams that wait for room for their
/// message (`grpc/messages.rs`) would keep the others, whose messages are under way, from
/// making any.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * grpc::STREAM_WINDOW_BYTES;

/// The longest frame that a client may send: a batch of a thousand keys. It is read with two
/// calls to the system, and with eight in frames of the protocol's default, 16 KiB.
const MAX_FRAME_BYTES: u32 = 64 << 10;

// A message that comes in one frame takes its memory without asking.
const _: () = assert!(MAX_FRAME_BYTES as usize <= grpc::SMALL_MESSAGE_BYTES);

/// How often a connection may have the server reset a stream, in all its life, before it is
/// closed: a client that makes it do nothing else (RUSTSEC-2024-0003) ends there. One that
/// opens more streams than it may, before it is told, has some hundreds to itself.
const MAX_RESETS: usize = 64 * MAX_STREAMS as usize;

/// Serves connections until no more come; then asks those that are there to close, and returns
/// when they have.
pub async fn serve<S, B>(mut incoming: Incoming, service: S)
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError>,
{
    let mut http2 = Builder::new(TokioExecutor::new());
    http2
        .max_frame_size(MAX_FRAME_BYTES)
        .initial_stream_window_size(grpc::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .max_local_error_reset_streams(MAX_RESETS)
        // gRPC has no use for it.
        .auto_date_header(false);
    let connections = GracefulShutdown::new();
    while let Some(connection) = incoming.next().await {
        let connection = match connection {
            Ok(connection) => TokioIo::new(connection),
            Err(error) => {
                tracing::warn!(%error, "a connection is lost");
                continue;
            }
        };
        let serving = connections.watch(http2.serve_connection(connection, service.clone()));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::debug!(?error, "a connection ended before it was closed");
            }
        });
    }
    connections.shutdown().await;
}
