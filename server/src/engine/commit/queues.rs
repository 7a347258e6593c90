//! Queues of the WAL: records on their way from calls to the log.
//!
//! Each thread, or each few threads, has a queue, so that calls on different cores do not contend.
//! The order in which their records reach the log does not matter, because additions commute.
//! Recovery sorts the records that do not commute (`engine/persist/recovery/order.rs`).
//!
//! # Reservation before bits
//!
//! A call [reserves](WalQueues::reserve) disk space for all keys that it may add before it sets a
//! bit. So no bit is set without space for it in the log. The space comes from segments that exist
//! already.
//!
//! Queues take space in large pieces, because otherwise every call would write one number that all
//! threads share. A queue keeps the space that a call has not used for the next call. If too little
//! space is left, queues must give it up.

use std::{iter, mem};

use crossbeam_utils::CachePadded;

use crate::{
    engine::per_thread::PerThread,
    filter::hash::KeyHash,
    planted::Bug,
    store::{Batch, FilterId, RecordHead},
    sync::{
        Mutex, Notify,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

/// The most emptied batches that are kept, each with its memory.
const MAX_SPENT: usize = 128;

/// All queues.
#[derive(Debug)]
pub struct WalQueues {
    queues: PerThread<Mutex<WalQueue>>,
    /// The space that no queue has taken. It is negative if more has been promised than a new
    /// segment has, after an earlier segment was given up.
    free_bytes: AtomicI64,
    /// The number of calls that wait for space.
    waiting: CachePadded<AtomicUsize>,
    /// Notifies calls when there may be more space, or when there is none and the reason is known.
    pub more_space: Notify,
    /// The largest size of a batch: a segment has space for several batches.
    max_batch_bytes: u64,
    /// The space that a queue takes at once, beyond the space that it needs.
    piece_bytes: u64,
    spent: Mutex<Vec<Batch>>,
}

#[derive(Debug, Default)]
struct WalQueue {
    filled: Vec<Filled>,
    ends: Vec<End>,
    room_bytes: u64,
}

/// A batch of records.
#[derive(Debug)]
pub struct Filled {
    pub batch: Batch,
    /// The space that was reserved for the batch.
    pub reserved_bytes: u64,
}

/// A mark that a version of a filter is complete in the batches.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub filter: FilterId,
    pub version: u64,
}

/// Reserved space in the log for one call. Unused space is given back when it is dropped.
#[derive(Debug)]
pub struct WalReservation<'a> {
    queues: &'a WalQueues,
    queue: &'a Mutex<WalQueue>,
    bytes: u64,
}

impl<'a> WalReservation<'a> {
    /// Splits the reservation for two calls: the first gets at most `bytes`, the second the rest.
    pub fn split(mut self, bytes: u64) -> [WalReservation<'a>; 2] {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let (queues, queue) = (self.queues, self.queue);
        [
            WalReservation {
                queues,
                queue,
                bytes,
            },
            self,
        ]
    }
}

impl Drop for WalReservation<'_> {
    fn drop(&mut self) {
        self.queue.lock().room_bytes += self.bytes;
        self.queues.notify_more_space();
    }
}

/// A guard of a call that waits for space. The call stops waiting when it is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a WalQueues);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WalQueues {
    /// Creates the queues for segments of this size.
    pub fn new(segment_bytes: u64) -> Self {
        Self {
            queues: PerThread::default(),
            free_bytes: AtomicI64::new(0),
            waiting: CachePadded::new(AtomicUsize::new(0)),
            more_space: Notify::default(),
            max_batch_bytes: (segment_bytes / 4).min(Batch::MAX_BYTES),
            piece_bytes: segment_bytes / 256,
            spent: Mutex::default(),
        }
    }

    /// Returns the largest size of a batch.
    pub fn max_batch_bytes(&self) -> u64 {
        self.max_batch_bytes
    }

    /// Adds space, or removes it if `bytes` is negative.
    pub fn add_space(&self, bytes: i64) {
        self.free_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Marks the caller as waiting until the returned guard is dropped: every call that gives space
    /// back then notifies `more_space`. A call that finds no space after this is notified when
    /// there may be some.
    pub fn wait(&self) -> Waiting<'_> {
        // A call that gives space back to a queue after that queue was checked sees this count:
        // both have held the lock of the queue.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Returns the number of calls that wait for space.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn notify_more_space(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.more_space.notify_waiters();
        }
    }

    /// Reserves space for up to `hashes` hashes in `records` records; `None` if there is not
    /// enough.
    pub fn reserve(&self, hashes: usize, records: usize) -> Option<WalReservation<'_>> {
        let bytes = self.needed_bytes(hashes, records);
        self.reserve_bytes(bytes).or_else(|| {
            self.collect();
            self.reserve_bytes(bytes)
        })
    }

    /// Returns the most bytes that up to `hashes` hashes in `records` records take. For the hashes
    /// and records of two calls together it is at least the sum of both.
    pub fn needed_bytes(&self, hashes: usize, records: usize) -> u64 {
        let more = records.saturating_sub(1) as u64;
        self.bytes_for(hashes) + more * Batch::bytes_for(0)
    }

    /// Takes back the unused space of all queues.
    fn collect(&self) {
        for queue in self.queues.iter() {
            let bytes = mem::take(&mut queue.lock().room_bytes);
            // The value is never more than was added.
            self.add_space(bytes as i64);
        }
    }

    fn reserve_bytes(&self, bytes: u64) -> Option<WalReservation<'_>> {
        let own = self.queues.own();
        let mut queue = own.lock();
        if queue.room_bytes < bytes {
            let missing = bytes - queue.room_bytes;
            queue.room_bytes += match self.take_room(missing) {
                None if Bug::NoReservation.is_planted() => missing,
                taken => taken?,
            };
        }
        queue.room_bytes -= bytes;
        Some(WalReservation {
            queues: self,
            queue: own,
            bytes,
        })
    }

    /// Takes at least `least` bytes of the space that no queue has.
    fn take_room(&self, least: u64) -> Option<u64> {
        let mut free = self.free_bytes.load(Ordering::Acquire);
        loop {
            let available = u64::try_from(free).ok().filter(|&free| free >= least)?;
            let taken = available.min(least + self.piece_bytes);
            // This is at most `free`, which is an `i64`.
            let left = free - taken as i64;
            match self.free_bytes.compare_exchange_weak(
                free,
                left,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(taken),
                Err(now) => free = now,
            }
        }
    }

    /// Appends `count` hashes, which a call has changed and for which space was reserved. `head`
    /// has the version of the call. A version without hashes has a record too.
    pub fn append(
        &self,
        reservation: &mut WalReservation<'_>,
        head: &RecordHead,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        self.append_parts(reservation, iter::once((*head, count, hashes)));
    }

    /// Like [`Self::append`], for a version whose hashes have different heads.
    pub fn append_parts<H: Iterator<Item = KeyHash>>(
        &self,
        reservation: &mut WalReservation<'_>,
        parts: impl Iterator<Item = (RecordHead, usize, H)>,
    ) {
        let mut queue = reservation.queue.lock();
        let mut end = None;
        for (head, count, hashes) in parts {
            self.push(&mut queue, reservation, &head, count, hashes);
            end = Some(head);
        }
        // The mark is added after all records of the version.
        if let Some(RecordHead {
            filter, version, ..
        }) = end.filter(|head| head.version > 0)
        {
            queue.ends.push(End { filter, version });
        }
    }

    fn push(
        &self,
        queue: &mut WalQueue,
        reservation: &mut WalReservation<'_>,
        head: &RecordHead,
        count: usize,
        mut hashes: impl Iterator<Item = KeyHash>,
    ) {
        let mut left = count;
        loop {
            let count = left.min(self.hashes_of_a_record());
            left -= count;
            let bytes = self.bytes_for(count);
            let fits = |filled: &Filled| filled.batch.fits(count, self.max_batch_bytes);
            if !queue.filled.last().is_some_and(fits) {
                let batch = self.spent.lock().pop().unwrap_or_default();
                queue.filled.push(Filled {
                    batch,
                    reserved_bytes: 0,
                });
            }
            if let Some(filled) = queue.filled.last_mut() {
                let hashes = hashes.by_ref();
                filled.batch.push(head, count, hashes);
                // Only the reserved part is counted. Otherwise the queue would give back more space
                // than the call has reserved.
                let reserved = bytes.min(reservation.bytes);
                reservation.bytes -= reserved;
                filled.reserved_bytes += reserved;
            }
            if left == 0 {
                break;
            }
        }
    }

    /// Returns the most bytes that this number of hashes of one call takes.
    fn bytes_for(&self, hashes: usize) -> u64 {
        let whole = hashes / self.hashes_of_a_record();
        let rest = match hashes % self.hashes_of_a_record() {
            0 if whole > 0 => 0,
            rest => Batch::bytes_for(rest),
        };
        whole as u64 * Batch::bytes_for(self.hashes_of_a_record()) + rest
    }

    /// Returns the most hashes of one record. A call with more hashes has several records, because
    /// a batch is small compared with a segment.
    pub fn hashes_of_a_record(&self) -> usize {
        let bytes = (self.max_batch_bytes / 2).saturating_sub(Batch::bytes_for(0));
        (bytes / 16).max(1) as usize
    }

    /// Takes all batches and marks that were handed over.
    pub fn take(&self, filled: &mut impl Extend<Filled>, ends: &mut Vec<End>) {
        for queue in self.queues.iter() {
            let mut queue = queue.lock();
            filled.extend(queue.filled.drain(..));
            ends.append(&mut queue.ends);
        }
    }

    /// Takes an emptied batch back.
    pub fn reuse(&self, batch: Batch) {
        let mut spent = self.spent.lock();
        if spent.len() < MAX_SPENT {
            spent.push(batch);
        }
    }

    /// Returns whether no batch has been handed over.
    pub fn is_empty(&self) -> bool {
        let mut queues = self.queues.iter();
        queues.all(|queue| queue.lock().filled.is_empty())
    }
}
