//! Requests that tonic refuses before our own code runs. Their status is corrected to that of the
//! contract.
//!
//! A message that is too long is refused by the length in its header, before it is read, which is
//! right. But tonic answers OUT_OF_RANGE, where the contract and the rest of gRPC use
//! RESOURCE_EXHAUSTED. For a request that holds no message, or only a part of one, tonic answers
//! INTERNAL, although the caller is at fault. No method of ours answers OUT_OF_RANGE, and none
//! answers INTERNAL with those messages.

use tonic::{
    Code, Status,
    body::Body,
    codegen::http::{Response, header::HeaderMap},
};

use crate::grpc::wire::messages;

/// The messages of tonic for a request without a message, and for one that ends too early.
const NO_MESSAGE: &str = "Missing request message.";
const CUT_SHORT: &str = "Unexpected EOF decoding stream.";

/// Replaces the status of tonic with that of the contract, in responses to unary calls.
pub fn correct_response(response: Response<Body>) -> Response<Body> {
    match refused(response.headers()) {
        Some(status) => correct(status).into_http(),
        None => response,
    }
}

fn refused(headers: &HeaderMap) -> Option<Status> {
    // Checked first because it costs nothing: most responses have no status in their headers.
    headers.get(Status::GRPC_STATUS)?;
    Status::from_header_map(headers)
        .filter(|status| matches!(status.code(), Code::OutOfRange | Code::Internal))
}

fn correct(status: Status) -> Status {
    match (status.code(), status.message()) {
        (Code::OutOfRange, message) => Status::resource_exhausted(too_long(message)),
        (Code::Internal, NO_MESSAGE) => messages::none(),
        (Code::Internal, CUT_SHORT) => messages::cut_short(),
        _ => status,
    }
}

fn too_long(message: &str) -> String {
    let numbers: Vec<&str> = message
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .collect();
    match numbers[..] {
        [found, limit] => format!("the message has {found} bytes; it may have at most {limit}"),
        _ => format!("the message is too large: {message}"),
    }
}
