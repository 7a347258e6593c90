//! The messages of a call, as they arrive. A header precedes each message: one byte that says
//! whether it is compressed, and the length in four bytes, big-endian.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
//!
//! A message that arrives in one piece is a slice of the received data; nothing is copied.
//!
//! Nothing is allocated for a length that is only declared: the buffer of a message grows with the
//! data that arrives, and is charged to the connection ([`super::memory`]).
//!
//! A message that has begun has a limited time to arrive. So has the only message of a unary call,
//! which begins with the call.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{
    Status,
    codegen::{
        StdError,
        http::{HeaderMap, HeaderName},
    },
};

use crate::grpc::{
    status::{out_of_memory, unapplied},
    wire::{
        memory::{CALL_BYTES, Charge, ConnectionMemory},
        request_body::RequestBody,
    },
};

/// The length of the header that precedes a message.
const HEADER_BYTES: usize = 5;

/// The number of bytes that the basic charge of a call covers.
const FREE_BYTES: usize = 1 << 10;

/// The smallest buffer that is allocated for a message in several pieces.
const LEAST_BUFFER_BYTES: usize = 4 << 10;

/// A message below this length is copied while it waits for the end of its request.
const COPIED_BYTES: usize = 16 << 10;

/// The time that a message has to arrive, plus a second for each `LEAST_BYTES_A_SECOND`: two
/// minutes for the largest message.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);
const LEAST_BYTES_A_SECOND: usize = 256 << 10;

/// The headers for the compression of the messages of a request, and for the encodings that the
/// server accepts.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED: &str = "grpc-accept-encoding";
/// The encoding without compression.
const IDENTITY: &str = "identity";

/// The messages of a call.
pub struct Messages<B = RequestBody> {
    body: B,
    /// The data that has arrived and is not parsed yet.
    frame: Bytes,
    /// The length of the frame that the data came in, as long as a part of it is in use.
    frame_bytes: usize,
    /// The beginning of a message that arrives in several pieces, including its header.
    begun: BytesMut,
    /// The memory of the last message, if it arrived in several pieces and is in use.
    used_bytes: usize,
    charge: Charge,
    /// Whether the call has one message only, which begins with the call.
    is_only: bool,
    arrival: Option<Arrival>,
    max_message_bytes: usize,
}

/// The time limit of the current message.
struct Arrival {
    begun: Instant,
    late: Pin<Box<Sleep>>,
    /// The length of the message that the time limit is for, as far as it is known.
    length: usize,
}

impl Arrival {
    fn timeout(length: usize) -> Duration {
        ARRIVAL_TIMEOUT + Duration::from_secs((length / LEAST_BYTES_A_SECOND) as u64)
    }

    fn of(length: usize) -> Self {
        let begun = Instant::now();
        Self {
            begun,
            late: Box::pin(sleep_until(begun + Self::timeout(length))),
            length,
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>, length: usize) -> Poll<Status> {
        if self.length != length {
            self.length = length;
            let end = self.begun + Self::timeout(length);
            self.late.as_mut().reset(end);
        }
        ready!(self.late.as_mut().poll(cx));
        Poll::Ready(unapplied(format!(
            "the message did not arrive within {} seconds, the time for one of {length} bytes: \
             send smaller batches",
            Self::timeout(length).as_secs()
        )))
    }
}

/// Refuses a request whose messages are compressed.
///
/// # Errors
///
/// UNIMPLEMENTED.
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(ENCODING) {
        None => Ok(()),
        Some(encoding) if encoding == IDENTITY => Ok(()),
        Some(encoding) => {
            let mut status = Status::unimplemented(format!(
                "grpc-encoding is {encoding:?}; this server takes messages that are not \
                 compressed, {IDENTITY:?}"
            ));
            if let Ok(accepted) = IDENTITY.parse() {
                status.metadata_mut().insert(ACCEPTED, accepted);
            }
            Err(status)
        }
    }
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    /// Returns the messages of a call, of at most `max_message_bytes` each, charged to its
    /// connection.
    ///
    /// # Errors
    ///
    /// RESOURCE_EXHAUSTED if the connection may hold no more memory.
    pub fn new(
        body: B,
        connection: &Arc<ConnectionMemory>,
        max_message_bytes: usize,
    ) -> Result<Self, Status> {
        Ok(Self {
            body,
            frame: Bytes::new(),
            frame_bytes: 0,
            begun: BytesMut::new(),
            used_bytes: 0,
            charge: connection.charge(CALL_BYTES).map_err(out_of_memory)?,
            is_only: false,
            arrival: None,
            max_message_bytes,
        })
    }

    /// Returns the next message; `None` if there are no more. The call gives back the memory of the
    /// previous message. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// The error of the message, or of its arrival. The caller must not ask for more messages after
    /// it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next message, as [`Self::next`] does.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(message) = self.take_whole()? {
                return Poll::Ready(Ok(Some(message)));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Other frames are trailers, which carry no information.
                    self.frame = frame.into_data().unwrap_or_default();
                    self.frame_bytes = self.frame.len();
                    self.charge()?;
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Status::from_error(error.into())));
                }
                Poll::Ready(None) if self.begun.is_empty() => return Poll::Ready(Ok(None)),
                Poll::Ready(None) => return Poll::Ready(Err(cut_short())),
                Poll::Pending => return self.poll_late(cx).map(Err),
            }
        }
    }

    /// Restarts the time limit of the current message, because nobody asked for it meanwhile.
    pub fn ask_again(&mut self) {
        self.arrival = None;
    }

    /// Gives back the memory of the last message, which is no longer in use.
    pub fn dealt_with(&mut self) {
        self.used_bytes = 0;
        if self.frame.is_empty() {
            self.frame = Bytes::new();
            self.frame_bytes = 0;
        }
        // The charge is lower than before, so it is never refused.
        let _ = self.charge();
    }

    /// Charges the memory that the call holds now.
    fn charge(&mut self) -> Result<(), Status> {
        let bytes = self.frame_bytes + self.begun.capacity() + self.used_bytes;
        let bytes = if bytes <= FREE_BYTES { 0 } else { bytes };
        self.charge
            .try_set(CALL_BYTES + bytes)
            .map_err(out_of_memory)
    }

    /// Waits until the current message is late, if there is one.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.begun.is_empty() && !self.is_only {
            self.arrival = None;
            return Poll::Pending;
        }
        // An error of the header was reported when it arrived.
        let length = self.message_bytes(&self.begun).ok().flatten().unwrap_or(0);
        let arrival = self.arrival.get_or_insert_with(|| Arrival::of(length));
        arrival.poll_late(cx, length)
    }

    /// Takes the next message if all of it has arrived. Otherwise keeps the part that has arrived.
    fn take_whole(&mut self) -> Result<Option<Bytes>, Status> {
        let mut length = None;
        if self.begun.is_empty() {
            // The previous message is no longer in use, or the caller would not ask for more.
            self.used_bytes = 0;
            length = self.message_bytes(&self.frame)?;
            if let Some(length) = length
                && self.frame.len() >= HEADER_BYTES + length
            {
                self.frame.advance(HEADER_BYTES);
                return Ok(Some(self.frame.split_to(length)));
            }
        }
        if length.is_none() {
            self.gather(HEADER_BYTES)?;
            length = self.message_bytes(&self.begun)?;
        }
        let Some(length) = length else {
            return Ok(None);
        };
        let whole = HEADER_BYTES + length;
        self.gather(whole)?;
        if self.begun.len() < whole {
            return Ok(None);
        }
        // Its memory is not reused: the message still uses it, and the next one allocates its own.
        let mut message = mem::take(&mut self.begun);
        self.used_bytes = message.capacity();
        self.arrival = None;
        message.advance(HEADER_BYTES);
        Ok(Some(message.freeze()))
    }

    /// Moves data to the message that has begun, until that has the given number of bytes.
    fn gather(&mut self, bytes: usize) -> Result<(), Status> {
        let missing = bytes.saturating_sub(self.begun.len());
        let come = self.frame.split_to(missing.min(self.frame.len()));
        if self.frame.is_empty() {
            // All of it is copied.
            self.frame_bytes = 0;
        }
        if come.is_empty() {
            return Ok(());
        }
        let needed = self.begun.len() + come.len();
        if needed > self.begun.capacity() {
            // Twice the data that has arrived, but no more than the whole message.
            let capacity = (2 * needed).min(bytes).max(LEAST_BUFFER_BYTES);
            let mut larger = BytesMut::with_capacity(capacity);
            larger.extend_from_slice(&self.begun);
            self.begun = larger;
            self.charge()?;
        }
        self.begun.extend_from_slice(&come);
        Ok(())
    }

    /// Returns the length of the message that `bytes` begin with, without its header; `None` if
    /// there are too few bytes for a header.
    fn message_bytes(&self, bytes: &[u8]) -> Result<Option<usize>, Status> {
        let Some(&[compressed, ref length @ ..]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        if compressed != 0 {
            return Err(Status::internal(format!(
                "a message is marked as compressed ({compressed}) in a call without grpc-encoding"
            )));
        }
        let length = u32::from_be_bytes(*length) as usize;
        let limit = self.max_message_bytes;
        if length > limit {
            return Err(Status::resource_exhausted(format!(
                "the message has {length} bytes; a message may have at most {limit}: send smaller \
                 batches"
            )));
        }
        Ok(Some(length))
    }

    /// Waits until it is certain that nothing follows the last message, whose memory is kept.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        loop {
            if !self.frame.is_empty() {
                return Poll::Ready(Err(Status::invalid_argument(
                    "the request holds more than one message; a call has one",
                )));
            }
            // Checked first, because it costs less.
            if self.body.is_end_stream() {
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.frame = frame.into_data().unwrap_or_default();
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Status::from_error(error.into())));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return self.poll_late(cx).map(Err),
            }
        }
    }
}

/// The only message of a call. It keeps the charge for its memory.
pub struct Only<B = RequestBody> {
    messages: Messages<B>,
    message: Option<Bytes>,
}

impl<B> Only<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    pub fn new(mut messages: Messages<B>) -> Self {
        messages.is_only = true;
        Self {
            messages,
            message: None,
        }
    }

    /// Waits for the message and takes it.
    ///
    /// # Errors
    ///
    /// Fails as [`Messages::next`], or if the request does not have exactly one message.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        let message = match self.message.take() {
            Some(message) => message,
            None => ready!(self.messages.poll_next(cx))?.ok_or_else(none)?,
        };
        if self.messages.poll_end(cx)?.is_pending() {
            // A slice would keep a whole buffer of HTTP/2 in memory.
            self.message = Some(match message.len() {
                ..COPIED_BYTES => Bytes::copy_from_slice(&message),
                _ => message,
            });
            return Poll::Pending;
        }
        Poll::Ready(Ok(message))
    }
}

/// Returns the status of a request that holds no message.
pub fn none() -> Status {
    Status::invalid_argument(
        "the request holds no message; a call has one, even if all its fields are empty",
    )
}

/// Returns the status of a request whose last message is not whole.
pub fn cut_short() -> Status {
    Status::invalid_argument("the request ends in the middle of a message")
}

#[cfg(test)]
mod tests;
