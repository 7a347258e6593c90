//! Messages past the size limit, answered as the contract says.
//!
//! tonic refuses a message by the length in its header, before it is read, which is right;
//! but with OUT_OF_RANGE, where the contract and the rest of gRPC say RESOURCE_EXHAUSTED.
//! No method of ours answers OUT_OF_RANGE, so that code always means this.

use tonic::{
    Code, Status,
    body::Body,
    codegen::http::{Response, header::HeaderMap},
};

/// Puts the status of the contract in the place of tonic's, in responses to single calls.
pub fn name_the_limit(response: Response<Body>) -> Response<Body> {
    match refused(response.headers()) {
        Some(status) => correct(status).into_http(),
        None => response,
    }
}

fn refused(headers: &HeaderMap) -> Option<Status> {
    // Looked at first because it costs nothing: most responses have no status up front.
    headers.get(Status::GRPC_STATUS)?;
    Status::from_header_map(headers).filter(|status| status.code() == Code::OutOfRange)
}

/// The same for a status that reading a stream of requests ended with.
pub fn correct(status: Status) -> Status {
    if status.code() != Code::OutOfRange {
        return status;
    }
    let numbers: Vec<&str> = status
        .message()
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .collect();
    Status::resource_exhausted(match numbers[..] {
        [found, limit] => format!(
            "the message has {found} bytes; a message may have at most {limit}: send smaller \
             batches"
        ),
        _ => format!("the message is too large: {}", status.message()),
    })
}
