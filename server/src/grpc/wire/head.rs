//! The head of a request: the check that it is gRPC.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
//!
//! A request that is not gRPC is refused before any of it is decoded: an HTML form, a health check
//! over HTTP or a request of another protocol must not reach `DeleteFilter`. The header `te` is not
//! checked, because proxies drop it.

use hyper::{Method, StatusCode, header};
use tonic::{
    Status,
    body::Body,
    codegen::{
        Bytes,
        http::{HeaderMap, HeaderValue, Request, Response},
    },
};

use super::response::{Content, failure};

/// The content type of a request, and its suffix for protobuf messages.
const GRPC: &str = "application/grpc";
const PROTO: &str = "+proto";

/// The maximum number of characters of a client's header that an error message repeats.
const SHOWN: usize = 100;

/// Returns the response that refuses a request which is not gRPC: 405 or 415, or UNIMPLEMENTED for
/// messages that are not protobuf. Returns `None` if the request is gRPC.
pub fn refusal<B>(request: &Request<B>) -> Option<Response<Content>> {
    if request.method() != Method::POST {
        let text = format!("the method is {}; gRPC has POST alone\n", request.method());
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, text);
        let headers = response.headers_mut();
        headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        return Some(response);
    }
    match message_type(request.headers()) {
        Some(None | Some(PROTO)) => None,
        Some(Some(other)) => Some(failure(Status::unimplemented(format!(
            "content-type is {GRPC}{}; this server takes {GRPC} and {GRPC}{PROTO}",
            shown(other)
        )))),
        None => {
            let given = content_type(request.headers());
            let given = given.map_or_else(
                || "not given".to_owned(),
                |value| shown(&format!("{value:?}")),
            );
            let text = format!(
                "content-type is {given}; this server speaks gRPC: {GRPC} or {GRPC}{PROTO}\n"
            );
            Some(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
        }
    }
}

/// Returns the suffix after `application/grpc` in the content type of a request; `None` if it is
/// another type.
fn message_type(headers: &HeaderMap) -> Option<Option<&str>> {
    let value = content_type(headers)?.to_str().ok()?;
    let (name, _parameters) = value.split_once(';').unwrap_or((value, ""));
    let (start, rest) = name.trim_ascii().split_at_checked(GRPC.len())?;
    if !start.eq_ignore_ascii_case(GRPC) {
        return None;
    }
    match rest {
        "" => Some(None),
        _ if rest.eq_ignore_ascii_case(PROTO) => Some(Some(PROTO)),
        _ if rest.starts_with('+') => Some(Some(rest)),
        // Another protocol, such as `application/grpc-web`, whose messages have another format.
        _ => None,
    }
}

/// Returns the content type of a request if it has exactly one.
fn content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    values.next().filter(|_| values.next().is_none())
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Returns a response for a client that may not know gRPC.
fn plain(code: StatusCode, text: String) -> Response<Content> {
    let body = http_body_util::Full::new(Bytes::from(text));
    let mut response = Response::new(Content::routed(Body::new(body)));
    *response.status_mut() = code;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
