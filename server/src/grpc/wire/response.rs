//! The responses of calls that are answered without tonic.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::Message;
use tonic::{
    Status,
    body::Body,
    codegen::http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE},
};

use super::{calls::Token, memory::Charge, received::Kept};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: HeaderValue = HeaderValue::from_static("0");

/// The body of a response, as a connection sends it.
pub trait Sendable: HttpBody<Data = Bytes, Error = Status> + Send + Unpin + 'static {
    /// Called instead of polling the body while its last data waits until the client reads.
    fn wait_to_be_sent(&mut self, cx: &mut Context<'_>);

    /// Returns whether a long part of the body can be left out if there is no memory for it,
    /// because the client can ask for it again.
    fn may_be_refused(&self) -> bool;
}

/// The frames of a response that has several messages.
pub trait FrameSource: Send {
    /// Returns the next frame: messages, or the trailers at the end.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Frame<Bytes>>;
}

/// The content of a response.
pub enum Content {
    /// One message.
    Message(Bytes),
    /// Messages as they are made, and the data of the request.
    Stream(Box<dyn FrameSource>, Kept),
    /// The trailers of a successful call.
    Success,
    /// The body that tonic has made, and the memory of the call.
    Routed(Body, Option<Charge>),
    /// Nothing more.
    Over,
}

/// Returns the head of a response to a call that has not failed so far.
pub fn success(content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Returns the response to a call that fails.
pub fn failure(status: Status) -> Response<Content> {
    status.into_http::<Body>().map(Content::routed)
}

/// Returns the end of a response whose call failed after its head was sent.
pub fn failed(status: &Status) -> Frame<Bytes> {
    Frame::trailers(trailers(status))
}

/// Returns the trailers of a response that ends with an error.
pub fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // It fails if the message cannot be encoded; the code is added nevertheless.
    let _ = status.add_header(&mut trailers);
    trailers
}

/// Returns the end of a response whose call succeeded.
pub fn succeeded() -> Frame<Bytes> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    Frame::trailers(trailers)
}

/// Appends a message with its header: the flag that it is not compressed, and its length.
pub fn append(message: &impl Message, to: &mut BytesMut) {
    let length = message.encoded_len();
    to.put_u8(0);
    // No answer comes near the limit.
    to.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(to);
}

/// The body of a response. Its call is in flight until all of it has been sent.
pub struct ResponseBody {
    content: Content,
    token: Option<Token>,
}

impl ResponseBody {
    pub fn new(content: Content, token: Option<Token>) -> Self {
        Self { content, token }
    }
}

impl Content {
    /// Returns a body that tonic has made.
    pub fn routed(body: Body) -> Self {
        Self::Routed(body, None)
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, then) = match self {
            Self::Message(message) => (Frame::data(message.clone()), Self::Success),
            Self::Success => (succeeded(), Self::Over),
            Self::Over => return Poll::Ready(None),
            Self::Stream(answers, kept) => {
                let Poll::Ready(frame) = answers.poll_frame(cx) else {
                    kept.keep_waiting(cx);
                    return Poll::Pending;
                };
                if frame.is_trailers() {
                    *self = Self::Over;
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Self::Routed(body, _) => return Pin::new(body).poll_frame(cx),
        };
        *self = then;
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Sendable for ResponseBody {
    fn wait_to_be_sent(&mut self, cx: &mut Context<'_>) {
        if let Content::Stream(_, kept) = &self.content {
            kept.keep_waiting(cx);
        }
    }

    fn may_be_refused(&self) -> bool {
        matches!(self.content, Content::Routed(..))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { content, token } = &mut *self;
        let frame = content.poll(cx);
        match (&frame, &mut *token) {
            (Poll::Ready(None), token) => *token = None,
            (Poll::Ready(Some(_)), Some(token)) => token.sending(),
            (Poll::Pending, Some(token)) => token.working(),
            (_, None) => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Routed(body, _) => body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Routed(body, _) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
