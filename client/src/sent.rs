//! Tracks whether a request was handed to a connection.
//!
//! A request that was not handed to a connection cannot have been applied. So it can be repeated
//! whatever it does, and the error says so. The transport asks for the body of a request after it
//! has a connection and has sent the headers.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use tonic::{
    Status,
    body::Body,
    codegen::{
        Body as HttpBody, Service,
        http::{Request, Response},
    },
    transport::{self, Channel, channel::ResponseFuture},
};

const WAITING: u8 = 0;
const SENT: u8 = 1;
const CLOSED: u8 = 2;

/// The state of the request of one attempt: waiting, sent or closed. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<AtomicU8>);

impl Sent {
    /// Notes that the request is about to be sent. Returns false if it must not be sent any more.
    pub(crate) fn note(&self) -> bool {
        let noted = self.0.compare_exchange(WAITING, SENT, Relaxed, Relaxed);
        noted != Err(CLOSED)
    }

    /// Closes the attempt and returns whether the request was sent. If it was not sent, it never
    /// will be, even if another thread is about to send it.
    pub(crate) fn close(&self) -> bool {
        let closed = self.0.compare_exchange(WAITING, CLOSED, Relaxed, Relaxed);
        closed == Err(SENT)
    }
}

/// A channel that notes when the request of one attempt is sent.
#[derive(Debug, Clone)]
pub(crate) struct WatchedChannel {
    channel: Channel,
    sent: Sent,
}

impl WatchedChannel {
    pub(crate) fn new(channel: Channel, sent: Sent) -> Self {
        Self { channel, sent }
    }
}

impl Service<Request<Body>> for WatchedChannel {
    type Response = Response<Body>;
    type Error = transport::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sent = self.sent.clone();
        self.channel
            .call(request.map(|body| Body::new(WatchedBody { body, sent })))
    }
}

/// The body of a request. It notes when the transport asks for it.
struct WatchedBody {
    body: Body,
    sent: Sent,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        if !self.sent.note() {
            let closed = Status::cancelled("the attempt is over");
            return Poll::Ready(Some(Err(closed)));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_sent_when_it_was_asked_is_never_sent() {
        let sent = Sent::default();
        assert!(!sent.close());
        assert!(!sent.clone().note());
        assert!(!sent.close());

        let sent = Sent::default();
        assert!(sent.clone().note());
        assert!(sent.close());
        // The rest of the body follows.
        assert!(sent.note());
    }
}
