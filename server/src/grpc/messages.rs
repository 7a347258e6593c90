//! The messages of a call, as they arrive: each is preceded by one byte that says whether it is
//! compressed, and four of its length, the greatest first.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
//!
//! A message that comes in one piece is a part of what was received, and nothing is copied.
//!
//! A message may have 16 MiB, a connection may have hundreds of them under way, and a server
//! thousands of connections: more than any machine has. So the large ones share a room. Before the body of a large message is read its length is taken from the room; one
//! that does not fit waits, and the flow control of HTTP/2 makes its sender wait. What the
//! sender could send before it noticed takes memory too, so not everybody may wait: past
//! [`room::MAX_WAITING`] a call is refused.
//!
//! A call never waits for room while it holds a part of it, so two cannot wait for each other:
//! it gives back what the message before took before it asks for the next. And as a message
//! that does not come would hold its part for ever, it has [`ARRIVAL_TIMEOUT`] to arrive; with
//! the end of its request, if that has no other.

mod room;

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
use tokio::time::{Sleep, sleep};
use tonic::{
    Status,
    codegen::{
        StdError,
        http::{HeaderMap, HeaderName},
    },
};

pub use self::room::Room;
use self::room::{Share, Taking};
use super::request_body::RequestBody;

/// What a message is preceded by.
const HEADER_BYTES: usize = 5;

/// The longest message that takes its memory without asking: as much as flow control lets
/// through anyway.
pub const SMALL_BYTES: usize = 64 << 10;

/// How long a large message may take to arrive once it has been given room: at 16 MiB, some
/// 300 KB a second.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// How the messages of a request are compressed, and how those of its response may be.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED: &str = "grpc-accept-encoding";
/// Not at all.
const IDENTITY: &str = "identity";

/// The messages of a call.
pub struct Messages<B = RequestBody> {
    body: B,
    /// What has come and has not been looked at.
    frame: Bytes,
    /// The beginning of a message that comes in several pieces, its header included.
    begun: BytesMut,
    memory: Memory,
    room: Arc<Room>,
}

/// What the message under way, or the last one, has of the room.
enum Memory {
    /// None: it is small, or nobody knows how long it is.
    Free,
    /// It waits for its part.
    Waiting(Taking),
    /// It has its part, and must arrive in time, to the end of the request if it is the only one.
    Taken {
        #[expect(dead_code, reason = "given back when dropped")]
        share: Share,
        late: Pin<Box<Sleep>>,
    },
}

impl Memory {
    /// Waits until what takes memory is late, if anything does.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let Self::Taken { late, .. } = self else {
            return Poll::Pending;
        };
        ready!(late.as_mut().poll(cx));
        Poll::Ready(Status::deadline_exceeded(format!(
            "the message did not arrive within {} seconds: send smaller batches",
            ARRIVAL_TIMEOUT.as_secs()
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
    pub fn new(body: B, room: &Arc<Room>) -> Self {
        Self {
            body,
            frame: Bytes::new(),
            begun: BytesMut::new(),
            memory: Memory::Free,
            room: room.clone(),
        }
    }

    /// The next message; `None` if there are no more. To ask for it gives back the memory of
    /// the one before. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// What is wrong with the message, or with its arrival; nothing more is to be asked for.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Self::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(message) = self.take_whole()? {
                return Poll::Ready(Ok(Some(message)));
            }
            if let Memory::Waiting(taking) = &mut self.memory {
                let share = ready!(taking.as_mut().poll(cx))?;
                let late = Box::pin(sleep(ARRIVAL_TIMEOUT));
                self.memory = Memory::Taken { share, late };
                continue;
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // What else there may be, trailers, says nothing.
                    self.frame = frame.into_data().unwrap_or_default();
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Status::from_error(error.into())));
                }
                Poll::Ready(None) if self.begun.is_empty() => {
                    self.memory = Memory::Free;
                    return Poll::Ready(Ok(None));
                }
                Poll::Ready(None) => return Poll::Ready(Err(cut_short())),
                Poll::Pending => return self.memory.poll_late(cx).map(Err),
            }
        }
    }

    /// Gives back the memory of the last message, which has been dealt with.
    pub fn dealt_with(&mut self) {
        if self.begun.is_empty() {
            self.memory = Memory::Free;
        }
    }

    /// Takes the next message, if all of it has come, and keeps what has come of it otherwise.
    fn take_whole(&mut self) -> Result<Option<Bytes>, Status> {
        if self.begun.is_empty() {
            // The message before has been dealt with, or more would not be asked for.
            self.memory = Memory::Free;
            let length = self.message_bytes(&self.frame)?;
            if let Some(length) = length
                && self.frame.len() >= HEADER_BYTES + length
            {
                self.frame.advance(HEADER_BYTES);
                return Ok(Some(self.frame.split_to(length)));
            }
        }
        self.gather(HEADER_BYTES);
        let Some(length) = self.message_bytes(&self.begun)? else {
            return Ok(None);
        };
        if length > SMALL_BYTES && matches!(self.memory, Memory::Free) {
            let taking = Room::clone(&self.room).take(length);
            self.memory = Memory::Waiting(Box::pin(taking));
            return Ok(None);
        }
        if matches!(self.memory, Memory::Waiting(_)) {
            return Ok(None);
        }
        self.gather(HEADER_BYTES + length);
        if self.begun.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        // Nothing is kept of its memory, which may not be used for the next one: that asks for
        // its own.
        let mut message = mem::take(&mut self.begun).freeze();
        message.advance(HEADER_BYTES);
        Ok(Some(message))
    }

    /// Moves what has come to the message that has begun, until that has so many bytes.
    fn gather(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.begun.len());
        let taken = self.frame.split_to(missing.min(self.frame.len()));
        if !taken.is_empty() {
            self.begun.reserve(missing);
            self.begun.extend_from_slice(&taken);
        }
    }

    /// The length of the message that some bytes begin with, header not included; `None` if there
    /// are too few to tell.
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
        let limit = self.room.max_message_bytes();
        if length > limit {
            return Err(Status::resource_exhausted(format!(
                "the message has {length} bytes; a message may have at most {limit}: send smaller \
                 batches"
            )));
        }
        Ok(Some(length))
    }

    /// Waits until it is certain that nothing is behind the last message, whose memory is kept.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        loop {
            if !self.frame.is_empty() {
                return Poll::Ready(Err(Status::invalid_argument(
                    "the request holds more than one message; a call has one",
                )));
            }
            // Asked first, for it costs less.
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
                Poll::Pending => return self.memory.poll_late(cx).map(Err),
            }
        }
    }
}

/// The only message of a call. Holds its memory.
pub struct Only<B = RequestBody> {
    messages: Messages<B>,
    message: Option<Bytes>,
}

impl<B> Only<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    pub fn new(messages: Messages<B>) -> Self {
        Self {
            messages,
            message: None,
        }
    }

    /// Waits for the message, and takes it.
    ///
    /// # Errors
    ///
    /// As [`Messages::next`], or if there is not one message.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        let message = match self.message.take() {
            Some(message) => message,
            None => ready!(self.messages.poll_next(cx))?.ok_or_else(none)?,
        };
        if self.messages.poll_end(cx)?.is_pending() {
            self.message = Some(message);
            return Poll::Pending;
        }
        Poll::Ready(Ok(message))
    }
}

/// What a request is told that holds no message.
pub fn none() -> Status {
    Status::invalid_argument(
        "the request holds no message; a call has one, even if all its fields are empty",
    )
}

/// What a request is told whose last message is not whole.
pub fn cut_short() -> Status {
    Status::invalid_argument("the request ends in the middle of a message")
}

#[cfg(test)]
mod tests;
