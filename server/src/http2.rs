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

/// The calls that a client may cancel before the server has accepted them; one more closes the
/// connection, with all other calls on it. All calls that may be in flight may have a deadline and
/// end at once, and others in their place, for as long as the thread of the connection is busy
/// elsewhere. There must be a bound (CVE-2023-44487): each takes memory until it is accepted.
const MAX_CANCELLED: usize = 8 * MAX_STREAMS as usize;

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
        .max_pending_accept_reset_streams(MAX_CANCELLED)
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

#[cfg(test)]
mod tests {
    use std::{
        future::{Ready, ready},
        io::{Read, Write},
        os::unix::net::UnixStream,
        sync::Arc,
    };

    use futures_util::stream;
    use http_body_util::Empty;
    use hyper::service::service_fn;

    use super::*;
    use crate::{config::Address, connections::Connections, listeners::Listeners};

    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u8 = 11;
    const END_STREAM_AND_HEADERS: u8 = 5;
    /// POST, http and the path "/", as numbers of the protocol.
    const HEAD: [u8; 3] = [0x83, 0x86, 0x84];

    fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let stream = (stream as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream, payload].concat()
    }

    /// Cancels calls, all of which are in the server's hands before it looks at the first, and makes
    /// one more. Returns whether that is answered; if not, the server has closed the connection.
    async fn is_answered_after(cancelled: usize) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listeners = Listeners::bind(&[Address::Unix(path.clone())])
            .await
            .unwrap();
        let connections = Connections::new(listeners, 1);
        let mut client = UnixStream::connect(&path).unwrap();
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend(frame(SETTINGS, 0, 0, &[]));
        for call in 0..cancelled {
            sent.extend(frame(HEADERS, 4, 2 * call + 1, &HEAD));
            sent.extend(frame(RST_STREAM, 0, 2 * call + 1, &[0, 0, 0, 8]));
        }
        let last = 2 * cancelled + 1;
        sent.extend(frame(HEADERS, END_STREAM_AND_HEADERS, last, &HEAD));
        client.write_all(&sent).unwrap();

        let accepted = connections.accept().await.open(Arc::default()).unwrap();
        let incoming: Incoming = Box::pin(stream::iter([Ok(accepted)]).chain(stream::pending()));
        let answer =
            |_| -> Ready<Result<_, Infallible>> { ready(Ok(Response::new(Empty::<Bytes>::new()))) };
        let serving = tokio::spawn(serve(incoming, service_fn(answer)));
        let answered = tokio::task::spawn_blocking(move || {
            loop {
                let mut header = [0; 9];
                client.read_exact(&mut header).unwrap();
                let [_, high, low, kind, _, _, _, _, _] = header;
                let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
                client.read_exact(&mut payload).unwrap();
                match kind {
                    HEADERS => return true,
                    GOAWAY => {
                        assert_eq!(payload[7], ENHANCE_YOUR_CALM);
                        return false;
                    }
                    _ => {}
                }
            }
        });
        let answered = answered.await.unwrap();
        serving.abort();
        answered
    }

    #[tokio::test]
    async fn cancelled_calls_close_a_connection_when_they_are_far_too_many() {
        assert!(is_answered_after(MAX_STREAMS as usize).await);
        assert!(is_answered_after(MAX_CANCELLED).await);
        assert!(!is_answered_after(MAX_CANCELLED + 1).await);
    }
}
