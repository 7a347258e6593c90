//! The server for metrics: `GET /metrics`, over HTTP/1.1, on a port of its own.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout;

use super::metrics::MEDIA_TYPE;
use crate::connections::{ConnectionLimits, Connections};

/// The limits on connections: few clients fetch metrics.
pub const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    for_each_address: 64,
};

/// The time that a client has to send the head of a request, and the time that a connection is
/// kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

const PATH: &str = "/metrics";

/// Serves the text that `metrics` returns, for ever. Each request calls `metrics` anew. Dropping
/// the future ends the connections.
pub async fn serve<F>(
    connections: Connections,
    metrics: impl Fn() -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Result<String, String>> + Send,
{
    let mut open = FuturesUnordered::new();
    loop {
        let accepted = tokio::select! {
            accepted = connections.accept() => accepted,
            Some(()) = open.next() => continue,
        };
        let connection = match accepted.open(Arc::new(())) {
            Ok(connection) => TokioIo::new(connection),
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics is lost");
                continue;
            }
        };
        let metrics = metrics.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let metrics = metrics.clone();
            async move { Ok::<_, Infallible>(answer(&request, metrics).await) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(connection, answer);
        open.push(async move {
            // A client that does not read, or is idle, must make room for others.
            if let Ok(Err(error)) = timeout(CONNECTION_TIMEOUT, serving).await {
                tracing::debug!(
                    ?error,
                    "a connection for metrics ended before it was closed"
                );
            }
        });
    }
}

async fn answer<F>(request: &Request<Incoming>, metrics: impl Fn() -> F) -> Response<Full<Bytes>>
where
    F: Future<Output = Result<String, String>>,
{
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, format!("metrics are at {PATH}\n"));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = plain(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{} is not allowed; use GET\n", request.method()),
        );
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allowed);
        return response;
    }
    match metrics().await {
        Ok(text) => respond(StatusCode::OK, MEDIA_TYPE, text),
        Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text)
}

fn respond(status: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
