//! The memory that messages take while they arrive and are answered.
//!
//! A message may have [`MAX_MESSAGE_BYTES`], a connection may have hundreds of them under way,
//! and a server thousands of connections: more than any machine has. So the large ones share
//! a room. Before the body of a large message is read its length is taken from the room; one
//! that does not fit waits, and the flow control of HTTP/2 makes its sender wait. What the
//! sender could send before it noticed takes memory too, so not everybody may wait: past
//! [`MAX_WAITING`] a call is refused.
//!
//! A call never waits while it holds a part of the room, so two cannot wait for each other:
//! it gives back what the message before took before it asks for the next. And as a message
//! that does not come would hold its part for ever, it has [`ARRIVAL_TIMEOUT`] to arrive.
//!
//! [`MAX_MESSAGE_BYTES`]: crate::config::MAX_MESSAGE_BYTES

mod framing;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tonic::{Status, body::Body, codegen::Bytes};

use self::framing::Framing;
use super::stream;

/// What all large messages together may take, as they are on the wire. Decoded, keys of a few
/// bytes take several times as much.
const ROOM_BYTES: usize = 256 << 20;
/// The longest message that takes its memory without asking: as much as flow control lets
/// through anyway.
const SMALL_BYTES: usize = 64 << 10;
/// How long a large message may take to arrive once it has been given room: at 16 MiB, some
/// 300 KB a second.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The most messages that may wait for room. Each may have filled the window of its stream: all
/// of them take no more than the room.
const MAX_WAITING: usize = ROOM_BYTES / stream::WINDOW_BYTES as usize;

/// The room is counted in units of this, because a semaphore counts no further than `u32`.
const UNIT_BYTES: usize = 1 << 10;

/// The room that large messages share. Cheap to clone; clones are the same room.
#[derive(Debug, Clone)]
pub struct Room {
    units: Arc<Semaphore>,
    total: usize,
    waiting: Arc<Semaphore>,
}

/// What one call holds of the room. The call keeps a clone for as long as it needs the
/// message; the last one to go gives the memory back.
#[derive(Debug, Clone, Default)]
pub struct Share(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Default for Room {
    fn default() -> Self {
        Self::of(ROOM_BYTES)
    }
}

impl Room {
    fn of(bytes: usize) -> Self {
        let total = bytes / UNIT_BYTES;
        Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        }
    }

    /// Takes room for a message, and waits for it if it must and may.
    async fn take(self, bytes: usize) -> Result<OwnedSemaphorePermit, Status> {
        // No more than there is, or it would be waited for without end.
        let units = bytes.div_ceil(UNIT_BYTES).min(self.total);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let busy = |_| {
            Status::resource_exhausted(format!(
                "more than {MAX_WAITING} large messages wait for the server's memory, and this \
                 one of {bytes} bytes was not read: send fewer or smaller batches at once"
            ))
        };
        match self.units.clone().try_acquire_many_owned(units) {
            Ok(taken) => Ok(taken),
            Err(_) => {
                let _waiting = self.waiting.try_acquire().map_err(busy)?;
                let taken = self.units.acquire_many_owned(units).await;
                taken.map_err(|_| Status::unavailable("the server is stopping"))
            }
        }
    }
}

type Taking = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Status>> + Send>>;

/// The body of a request, read no faster than there is room for it.
pub struct Intake {
    body: Body,
    room: Arc<Room>,
    share: Share,
    framing: Framing,
    state: State,
}

enum State {
    /// The message under way needs no room, or there is none.
    Free,
    /// The message of this number waits for room.
    Waiting(u64, Taking),
    /// The message of this number has its room, and must arrive in time.
    Arriving(u64, Pin<Box<Sleep>>),
}

impl State {
    fn message(&self) -> Option<u64> {
        match self {
            Self::Free => None,
            Self::Waiting(number, _) | Self::Arriving(number, _) => Some(*number),
        }
    }
}

impl Intake {
    pub fn new(body: Body, room: &Arc<Room>, share: Share) -> Self {
        Self {
            body,
            room: room.clone(),
            share,
            framing: Framing::default(),
            state: State::Free,
        }
    }

    /// Gives back what the message before took, and asks for what the one under way needs.
    fn turn_to_next(&mut self) {
        let Some(message) = self.framing.under_way() else {
            return;
        };
        if self.state.message() == Some(message.number) {
            return;
        }
        self.give_back();
        if message.bytes > SMALL_BYTES {
            let taking = Room::clone(&self.room).take(message.bytes);
            self.state = State::Waiting(message.number, Box::pin(taking));
        }
    }

    /// The message before has been dealt with, or more would not be asked for.
    fn give_back(&mut self) {
        if !matches!(self.state, State::Free) {
            self.share.0.lock().take();
            self.state = State::Free;
        }
    }

    /// Waits for room, and for no longer than a message may take to arrive.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if let State::Waiting(number, taking) = &mut self.state {
            let taken = ready!(taking.as_mut().poll(cx))?;
            *self.share.0.lock() = Some(taken);
            self.state = State::Arriving(*number, Box::pin(sleep(ARRIVAL_TIMEOUT)));
        }
        Poll::Ready(Ok(()))
    }
}

impl HttpBody for Intake {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let intake = &mut *self;
        intake.turn_to_next();
        if let Err(status) = ready!(intake.poll_room(cx)) {
            return Poll::Ready(Some(Err(status)));
        }
        match Pin::new(&mut intake.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                {
                    intake.framing.feed(data);
                }
                Poll::Ready(frame)
            }
            Poll::Pending if intake.framing.under_way().is_none() => {
                intake.give_back();
                Poll::Pending
            }
            Poll::Pending => {
                if let State::Arriving(_, late) = &mut intake.state {
                    ready!(late.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(Status::deadline_exceeded(format!(
                        "the message did not arrive within {} seconds: send smaller batches",
                        ARRIVAL_TIMEOUT.as_secs()
                    )))));
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
