//! The memory budget of clients: what they make the server hold, and its limits.
//!
//! Each connection is charged for its calls, for the bytes of messages that have arrived, for
//! stream data that waits, and for responses that are not sent yet. The server allocates nothing
//! for a length that a client only declares, so declared lengths are not charged. There are two
//! limits:
//!
//! * The limit of one connection. A charge above it is refused.
//! * The limit of all connections together. A charge above it is refused unless the connection
//!   holds little. The server also closes the connection that holds most and has released least
//!   lately, so that clients that keep memory make room for clients that use it.
//!
//! A connection takes its share of the common limit in steps, so that cores do not contend for one
//! counter with each call.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use slab::Slab;
use thiserror::Error;

/// The memory of a connection: its buffers, and the state of HTTP/2.
const CONNECTION_BYTES: usize = 32 << 10;

/// The memory of a call, including the headers of its request and a short message.
pub const CALL_BYTES: usize = 3 << 10;

/// The part of the common limit that a connection takes, or gives back, at a time.
const STEP_BYTES: usize = 32 << 10;

/// A connection that holds no more than this is not refused when the common limit is exceeded.
const ALWAYS_BYTES: usize = 1 << 20;

/// The limit of one connection is the common limit divided by this.
const PARTS: usize = 4;

/// The lowest limit of one connection: the largest message, and the copy that is made when its
/// buffer grows.
const LEAST_CONNECTION_BYTES: usize = 32 << 20;

/// The window of a connection: the data that HTTP/2 receives ahead of the calls.
const WINDOW_BYTES: u32 = 16 << 20;

/// The window of a connection while memory is scarce.
const SCARCE_WINDOW_BYTES: u32 = 1 << 20;

/// The largest window of HTTP/2.
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// The maximum number of ticks that count in the choice of the connection to close: ten seconds.
const MOST_TICKS: u32 = 40;

/// A connection that released this part of the memory it holds since the last tick is not stalled.
const RELEASED_PART: usize = 4;

/// The data of responses that a connection hands to HTTP/2 before its socket takes any.
const QUEUE_BYTES: usize = 256 << 10;

/// The memory that all clients make the server hold. Cheap to clone: clones share the same memory.
#[derive(Debug, Clone)]
pub struct ClientMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit_bytes: usize,
    connection_limit_bytes: usize,
    /// The sum of the steps that all connections have taken.
    taken_bytes: AtomicUsize,
    /// The steps of connections that are being closed.
    closing_bytes: AtomicUsize,
    connections: Mutex<Vec<Weak<ConnectionMemory>>>,
}

/// The error of a charge that would exceed a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// The limit of one connection.
    #[error(
        "the calls of this connection would hold {wanted_bytes} bytes of the server's memory, and \
         may hold {limit_bytes}: send fewer or smaller batches at once, and read the answers"
    )]
    Connection {
        /// The bytes that the connection would hold with the charge.
        wanted_bytes: usize,
        /// The limit of the connection.
        limit_bytes: usize,
    },
    /// The limit of all connections.
    #[error(
        "the calls of all clients hold {limit_bytes} bytes, which is all the memory that the server \
         has for them (--max-client-memory): try again"
    )]
    Server {
        /// The limit of all connections.
        limit_bytes: usize,
    },
}

impl ClientMemory {
    /// The lowest limit that can be set.
    pub const LEAST_BYTES: usize = LEAST_CONNECTION_BYTES;

    /// Returns a budget of `limit_bytes`, or of [`Self::LEAST_BYTES`] if that is more.
    pub fn new(limit_bytes: usize) -> Self {
        let limit_bytes = limit_bytes.max(Self::LEAST_BYTES);
        Self(Arc::new(Shared {
            limit_bytes,
            connection_limit_bytes: (limit_bytes / PARTS).max(LEAST_CONNECTION_BYTES),
            taken_bytes: AtomicUsize::new(0),
            closing_bytes: AtomicUsize::new(0),
            connections: Mutex::default(),
        }))
    }

    /// Returns the limit of all connections.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// Returns the bytes that all connections hold, rounded up to steps.
    pub fn held_bytes(&self) -> usize {
        self.0.taken_bytes.load(Relaxed)
    }

    /// Begins to count the memory of a new connection.
    pub fn connection(&self) -> Arc<ConnectionMemory> {
        let Self(shared) = self;
        let connection = Arc::new(ConnectionMemory {
            shared: shared.clone(),
            held_bytes: AtomicUsize::new(0),
            taken_bytes: AtomicUsize::new(0),
            released_bytes: AtomicUsize::new(0),
            stalled_ticks: AtomicU32::new(0),
            closing_bytes: AtomicUsize::new(0),
            close: AtomicWaker::new(),
            kept_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            waiting: Mutex::default(),
        });
        connection.add(CONNECTION_BYTES);
        shared.connections.lock().push(Arc::downgrade(&connection));
        connection
    }

    /// Wakes the tasks of all connections.
    pub fn wake_connections(&self) {
        let Self(shared) = self;
        let connections = shared.connections.lock().clone();
        let open = connections.iter().filter_map(Weak::upgrade);
        open.for_each(|connection| connection.close.wake());
    }

    /// Counts the ticks in which each connection released little, and takes back the steps that a
    /// connection does not need. Called at a fixed interval.
    pub fn tick(&self) {
        let Self(shared) = self;
        shared.connections.lock().retain(|connection| {
            let Some(connection) = connection.upgrade() else {
                return false;
            };
            let released_bytes = connection.released_bytes.swap(0, Relaxed);
            let stalled = match released_bytes >= connection.held_bytes() / RELEASED_PART {
                true => 0,
                false => connection.stalled_ticks.load(Relaxed) + 1,
            };
            let stalled = stalled.min(MOST_TICKS);
            connection.give_back(0);
            connection.stalled_ticks.store(stalled, Relaxed);
            true
        });
    }
}

impl Shared {
    /// Returns whether the windows of connections should be small.
    fn is_scarce(&self) -> bool {
        self.taken_bytes.load(Relaxed) > self.limit_bytes / 2
    }

    fn is_over(&self) -> bool {
        let closing_bytes = self.closing_bytes.load(Relaxed);
        self.taken_bytes.load(Relaxed).saturating_sub(closing_bytes) > self.limit_bytes
    }

    /// Closes the connection with the greatest [weight](ConnectionMemory::weight).
    fn close_one(&self) {
        // If another thread has the lock, that thread closes a connection.
        let Some(connections) = self.connections.try_lock() else {
            return;
        };
        if !self.is_over() {
            return;
        }
        let open = connections.iter().filter_map(Weak::upgrade);
        let open = open.filter(|connection| !connection.is_closing());
        if let Some(worst) = open.max_by_key(|connection| connection.weight()) {
            worst.close();
        }
    }
}

/// The memory that one connection makes the server hold.
#[derive(Debug)]
pub struct ConnectionMemory {
    shared: Arc<Shared>,
    held_bytes: AtomicUsize,
    /// The steps of the common limit that this connection has.
    taken_bytes: AtomicUsize,
    /// The bytes released since the last tick.
    released_bytes: AtomicUsize,
    /// The number of ticks in a row in which little was released.
    stalled_ticks: AtomicU32,
    /// The bytes held when the server decided to close the connection; 0 before.
    closing_bytes: AtomicUsize,
    /// Wakes the task of the connection, which then closes it.
    close: AtomicWaker,
    /// The data that is kept while its stream waits.
    kept_bytes: AtomicUsize,
    /// An upper bound on the response data that is in HTTP/2 and not yet in the socket.
    queued_bytes: AtomicUsize,
    /// The calls that wait until the socket accepts data.
    waiting: Mutex<Slab<Waker>>,
}

impl ConnectionMemory {
    /// Charges `bytes`.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]; nothing is charged then.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Result<Charge, MemoryError> {
        let mut charge = self.empty_charge();
        charge.try_set(bytes)?;
        Ok(charge)
    }

    /// Returns a charge of zero bytes.
    pub fn empty_charge(self: &Arc<Self>) -> Charge {
        Charge {
            connection: self.clone(),
            bytes: 0,
        }
    }

    /// Charges `bytes`, above the limits if need be.
    pub fn charge_always(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge {
            connection: self.clone(),
            bytes,
        }
    }

    fn try_add(&self, bytes: usize) -> Result<(), MemoryError> {
        let wanted_bytes = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        let limit_bytes = self.shared.connection_limit_bytes;
        if wanted_bytes > limit_bytes {
            self.held_bytes.fetch_sub(bytes, Relaxed);
            return Err(MemoryError::Connection {
                wanted_bytes,
                limit_bytes,
            });
        }
        self.take(wanted_bytes);
        if wanted_bytes > ALWAYS_BYTES && self.shared.is_over() {
            self.remove(bytes);
            return Err(MemoryError::Server {
                limit_bytes: self.shared.limit_bytes,
            });
        }
        Ok(())
    }

    fn add(&self, bytes: usize) {
        let held_bytes = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        self.take(held_bytes);
    }

    /// Takes steps of the common limit to cover `held_bytes`.
    fn take(&self, held_bytes: usize) {
        let taken_bytes = self.taken_bytes.load(Relaxed);
        if held_bytes <= taken_bytes {
            return;
        }
        let more = (held_bytes - taken_bytes).next_multiple_of(STEP_BYTES);
        self.taken_bytes.fetch_add(more, Relaxed);
        self.shared.taken_bytes.fetch_add(more, Relaxed);
        if self.shared.is_over() {
            self.shared.close_one();
        }
    }

    fn remove(&self, bytes: usize) {
        let held_bytes = self.held_bytes.fetch_sub(bytes, Relaxed) - bytes;
        self.released_bytes.fetch_add(bytes, Relaxed);
        let taken_bytes = self.taken_bytes.load(Relaxed);
        if taken_bytes.saturating_sub(held_bytes) > 4 * STEP_BYTES {
            self.give_back(2 * STEP_BYTES);
        }
    }

    /// Gives back the steps beyond the held bytes and `kept_bytes`.
    fn give_back(&self, kept_bytes: usize) {
        let taken_bytes = self.taken_bytes.load(Relaxed);
        let needed_bytes = self.held_bytes.load(Relaxed) + kept_bytes;
        let less = taken_bytes.saturating_sub(needed_bytes) / STEP_BYTES * STEP_BYTES;
        if less == 0 {
            return;
        }
        let given =
            self.taken_bytes
                .compare_exchange(taken_bytes, taken_bytes - less, Relaxed, Relaxed);
        // If another thread changes the value at the same time, nothing is given back now; the next
        // call does it.
        if given.is_ok() {
            self.shared.taken_bytes.fetch_sub(less, Relaxed);
        }
    }

    /// Returns the weight of the connection: the greatest is closed first. Connections that hold
    /// little come last, however long they have been idle.
    fn weight(&self) -> (usize, usize) {
        let ticks = self.stalled_ticks.load(Relaxed) as usize;
        let taken_bytes = self.taken_bytes.load(Relaxed);
        let much = taken_bytes.saturating_sub(ALWAYS_BYTES);
        (much.saturating_mul(1 + ticks), taken_bytes)
    }

    fn close(&self) {
        let bytes = self.taken_bytes.load(Relaxed).max(1);
        if self.closing_bytes.swap(bytes, Relaxed) == 0 {
            self.shared.closing_bytes.fetch_add(bytes, Relaxed);
        }
        self.close.wake();
    }

    /// Returns whether the connection should be closed because it holds too much.
    pub fn is_closing(&self) -> bool {
        self.closing_bytes.load(Relaxed) > 0
    }

    /// Registers the task to wake when the connection should be closed.
    pub fn wake_to_close(&self, task: &Waker) {
        self.close.register(task);
    }

    /// Returns the bytes that the connection holds.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Relaxed)
    }

    /// Returns the flow-control window that the connection should have.
    pub fn window_bytes(&self) -> u32 {
        if self.held_bytes() > self.shared.connection_limit_bytes / 2 {
            return SCARCE_WINDOW_BYTES;
        }
        let window_bytes = match self.shared.is_scarce() {
            true => SCARCE_WINDOW_BYTES,
            false => WINDOW_BYTES,
        };
        // Kept data is charged. It must not use up the window of other calls.
        let kept_bytes = self.kept_bytes.load(Relaxed) as u32;
        window_bytes
            .saturating_add(kept_bytes)
            .min(MAX_WINDOW_BYTES)
    }

    /// Counts data that is kept while its stream waits.
    pub fn keep(&self, bytes: usize) {
        self.kept_bytes.fetch_add(bytes, Relaxed);
    }

    /// Ends the keeping of data that [`Self::keep`] counted.
    pub fn end_keep(&self, bytes: usize) {
        self.kept_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts and charges data of a response that is handed to HTTP/2.
    pub fn queue(&self, bytes: usize) {
        self.queued_bytes.fetch_add(bytes, Relaxed);
        self.add(bytes);
    }

    /// Waits until HTTP/2 can take more response data.
    pub fn poll_queue(&self, place: &mut QueuePlace, cx: &mut Context<'_>) -> Poll<()> {
        if self.queued_bytes.load(Relaxed) < QUEUE_BYTES {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.lock();
        match place.0.and_then(|number| waiting.get_mut(number)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => place.0 = Some(waiting.insert(cx.waker().clone())),
        }
        Poll::Pending
    }

    /// Removes a call from the calls that wait.
    pub fn leave_queue(&self, place: &mut QueuePlace) {
        if let Some(number) = place.0.take() {
            self.waiting.lock().try_remove(number);
        }
    }

    /// Resets the queue, and wakes the calls that wait. Called when the socket has accepted all
    /// queued data.
    pub fn queue_is_empty(&self) {
        let queued_bytes = self.queued_bytes.swap(0, Relaxed);
        if queued_bytes == 0 {
            return;
        }
        self.remove(queued_bytes);
        let waiting = self.waiting.lock();
        waiting.iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// The place of a call among the calls that wait for the socket.
#[derive(Debug, Default)]
pub struct QueuePlace(Option<usize>);

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        let Self { shared, .. } = self;
        shared
            .taken_bytes
            .fetch_sub(*self.taken_bytes.get_mut(), Relaxed);
        shared
            .closing_bytes
            .fetch_sub(*self.closing_bytes.get_mut(), Relaxed);
    }
}

/// Memory that is charged to a connection. Dropping it releases the memory.
#[derive(Debug)]
pub struct Charge {
    connection: Arc<ConnectionMemory>,
    bytes: usize,
}

impl Charge {
    /// Returns the memory of the connection that is charged.
    pub fn connection(&self) -> &Arc<ConnectionMemory> {
        &self.connection
    }

    /// Changes the charge.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the charge would exceed a limit; it then stays as it was.
    pub fn try_set(&mut self, bytes: usize) -> Result<(), MemoryError> {
        if bytes > self.bytes {
            self.connection.try_add(bytes - self.bytes)?;
            self.bytes = bytes;
        } else {
            self.set(bytes);
        }
        Ok(())
    }

    /// Changes the charge, above the limits if need be.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.connection.add(bytes - self.bytes);
        } else if bytes < self.bytes {
            self.connection.remove(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
