//! One call: answers its request, and sends the response as fast as the client reads it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{SendStream, server::SendResponse};
use tonic::{Status, codegen::http::Response};

use crate::grpc::{self, CALL_BYTES, Charge, ConnectionMemory, QueuePlace, Sendable};

/// The length up to which a piece of a response is covered by the charge of its call.
const FREE_BYTES: usize = 1 << 10;

/// The length up to which a piece of a response is sent whatever else the connection holds.
const SMALL_BYTES: usize = 64 << 10;

/// The maximum window that a response reserves at a time. Without a limit, one long response would
/// reserve all of the connection's window.
const WINDOW_BYTES: usize = 64 << 10;

/// The number of bytes that the headers of a response count for in the queue of the socket.
const HEAD_BYTES: usize = 128;

/// A call, until its response has been handed to HTTP/2.
pub struct Responding<F, B> {
    state: State<F, B>,
    connection: Arc<ConnectionMemory>,
}

enum State<F, B> {
    Answering(F, SendResponse<Bytes>),
    Sending(Sending<B>),
}

struct Sending<B> {
    body: B,
    stream: SendStream<Bytes>,
    /// The piece of the body that is being sent.
    piece: Bytes,
    charge: Charge,
    place: QueuePlace,
}

impl<B> Drop for Sending<B> {
    fn drop(&mut self) {
        self.charge.connection().leave_queue(&mut self.place);
    }
}

/// The call ended early: the client has cancelled it, or the connection is gone.
struct Over;

impl From<h2::Error> for Over {
    fn from(_: h2::Error) -> Self {
        Self
    }
}

impl<F, B> Responding<F, B> {
    /// Answers a call by `answer`.
    pub fn new(answer: F, respond: SendResponse<Bytes>, connection: Arc<ConnectionMemory>) -> Self {
        Self {
            state: State::Answering(answer, respond),
            connection,
        }
    }
}

impl<F, B> Future for Responding<F, B>
where
    F: Future<Output = Response<B>> + Unpin,
    B: Sendable,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { state, connection } = &mut *self;
        if let State::Answering(answer, respond) = state {
            let Poll::Ready(response) = Pin::new(answer).poll(cx) else {
                // This also wakes the task when the client cancels the call.
                return respond.poll_reset(cx).map(drop);
            };
            let (head, body) = response.into_parts();
            let is_over = body.is_end_stream();
            connection.queue(HEAD_BYTES);
            let sent = respond.send_response(Response::from_parts(head, ()), is_over);
            let Ok(stream) = sent else {
                return Poll::Ready(());
            };
            if is_over {
                return Poll::Ready(());
            }
            *state = State::Sending(Sending {
                body,
                stream,
                piece: Bytes::new(),
                charge: connection.charge_always(CALL_BYTES),
                place: QueuePlace::default(),
            });
        }
        match state {
            State::Answering(..) => Poll::Pending,
            State::Sending(sending) => sending.poll(cx).map(|_| ()),
        }
    }
}

impl<B> Sending<B>
where
    B: Sendable,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        if self.stream.poll_reset(cx)?.is_ready() {
            return Poll::Ready(Err(Over));
        }
        loop {
            if !self.piece.is_empty() {
                let Poll::Ready(sent) = self.poll_piece(cx) else {
                    self.body.wait_to_be_sent(cx);
                    return Poll::Pending;
                };
                sent?;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        if let Err(refused) = self.charge(data.len()) {
                            return Poll::Ready(self.fail(&refused));
                        }
                        self.piece = data;
                    }
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.stream.send_trailers(trailers)?;
                        return Poll::Ready(Ok(()));
                    }
                },
                Some(Err(status)) => return Poll::Ready(self.fail(&status)),
                None => {
                    self.stream.send_data(Bytes::new(), true)?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Sends the rest of the piece.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        while !self.piece.is_empty() {
            // A short answer does not wait for long ones.
            if self.piece.len() > FREE_BYTES {
                ready!(self.charge.connection().poll_queue(&mut self.place, cx));
            }
            let wanted = self.piece.len().min(WINDOW_BYTES);
            if self.stream.capacity() == 0 {
                self.stream.reserve_capacity(wanted);
            }
            let window = self.stream.capacity();
            if window == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => return Poll::Ready(Err(Over)),
                }
            }
            let sent = self.piece.split_to(wanted.min(window));
            self.charge.connection().queue(sent.len());
            self.stream.send_data(sent, false)?;
        }
        self.piece = Bytes::new();
        self.charge.set(CALL_BYTES);
        Poll::Ready(Ok(()))
    }

    /// Charges a piece of the response.
    fn charge(&mut self, bytes: usize) -> Result<(), Status> {
        let wanted_bytes = CALL_BYTES + bytes;
        if bytes > SMALL_BYTES && self.body.may_be_refused() {
            return self.charge.try_set(wanted_bytes).map_err(grpc::unanswered);
        }
        if bytes > FREE_BYTES {
            self.charge.set(wanted_bytes);
        }
        Ok(())
    }

    /// Ends the response with an error.
    fn fail(&mut self, status: &Status) -> Result<(), Over> {
        Ok(self.stream.send_trailers(grpc::trailers(status))?)
    }
}
