//! The memory that large messages share.

use std::{pin::Pin, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::super::{status::unapplied, stream};

/// What all large messages together may take, as they are on the wire. Decoded, keys of a few
/// bytes take several times as much.
const ROOM_BYTES: usize = 256 << 20;

/// The most messages that may wait for room. Each may have filled the window of its stream: all
/// of them take no more than the room.
pub const MAX_WAITING: usize = ROOM_BYTES / stream::WINDOW_BYTES as usize;

/// The room is counted in units of this, because a semaphore counts no further than `u32`.
const UNIT_BYTES: usize = 1 << 10;

/// The room that large messages share. Cheap to clone; clones are the same room.
#[derive(Debug, Clone)]
pub struct Room {
    units: Arc<Semaphore>,
    total: usize,
    waiting: Arc<Semaphore>,
    max_message_bytes: usize,
}

/// A part of the room, given back when dropped.
pub type Share = OwnedSemaphorePermit;

/// A message that takes its part of the room.
pub type Taking = Pin<Box<dyn Future<Output = Result<Share, Status>> + Send>>;

impl Room {
    /// For messages of no more than so many bytes each.
    pub fn new(max_message_bytes: usize) -> Self {
        Self::of(ROOM_BYTES, max_message_bytes)
    }

    pub fn of(bytes: usize, max_message_bytes: usize) -> Self {
        let total = bytes / UNIT_BYTES;
        Self {
            units: Arc::new(Semaphore::new(total)),
            total,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            max_message_bytes,
        }
    }

    /// The most bytes that a message may have.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    /// Takes room for a message, and waits for it if it must and may.
    pub async fn take(self, bytes: usize) -> Result<Share, Status> {
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
                taken.map_err(|_| unapplied("the server is stopping"))
            }
        }
    }

    /// Whether nobody has any of it.
    #[cfg(test)]
    pub fn is_free(&self) -> bool {
        self.units.available_permits() == self.total
    }
}
