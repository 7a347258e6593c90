//! Lanes: records on their way from calls to the log.
//!
//! Each thread, or each few threads, has a lane, so that calls on different cores do not contend.
//! The order in which their records reach the log does not matter, because additions commute.
//! Recovery sorts the records that do not commute (`engine/recovery/order.rs`).
//!
//! # Room before bits
//!
//! A call [reserves](Lanes::reserve) disk room for all keys that it may add before it sets a bit.
//! So no bit is set without room for it in the log. The room comes from segments that exist
//! already.
//!
//! Lanes take room in large pieces, because otherwise every call would write one number that all
//! threads share. A lane keeps the room that a call has not used for the next call. If too little
//! room is left, lanes must give it up.

use std::{iter, mem};

use crossbeam_utils::CachePadded;

use crate::{
    engine::striped::Striped,
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

/// All lanes.
#[derive(Debug)]
pub struct Lanes {
    lanes: Striped<Mutex<Lane>>,
    /// The room that no lane has taken. It is negative if more has been promised than a new segment
    /// has, after an earlier segment was given up.
    free_bytes: AtomicI64,
    /// The number of calls that wait for room.
    waiting: CachePadded<AtomicUsize>,
    /// Notifies calls when there may be more room, or when there is none and the reason is known.
    pub more_room: Notify,
    /// The largest size of a batch: a segment has room for several batches.
    max_batch_bytes: u64,
    /// The room that a lane takes at once, beyond the room that it needs.
    piece_bytes: u64,
    spent: Mutex<Vec<Batch>>,
}

#[derive(Debug, Default)]
struct Lane {
    filled: Vec<Filled>,
    ends: Vec<End>,
    room_bytes: u64,
}

/// A batch of records.
#[derive(Debug)]
pub struct Filled {
    pub batch: Batch,
    /// The room that was reserved for the batch.
    pub reserved_bytes: u64,
}

/// A mark that a version of a filter is complete in the batches.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub filter: FilterId,
    pub version: u64,
}

/// Room in the log for one call. Unused room is given back when it is dropped.
#[derive(Debug)]
pub struct Room<'a> {
    lanes: &'a Lanes,
    lane: &'a Mutex<Lane>,
    bytes: u64,
}

impl<'a> Room<'a> {
    /// Splits the room for two calls: the first gets at most `bytes`, the second the rest.
    pub fn split(mut self, bytes: u64) -> [Room<'a>; 2] {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let (lanes, lane) = (self.lanes, self.lane);
        [Room { lanes, lane, bytes }, self]
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.lane.lock().room_bytes += self.bytes;
        self.lanes.tell_of_more_room();
    }
}

/// A guard of a call that waits for room. The call stops waiting when it is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Lanes);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// Creates the lanes for segments of this size.
    pub fn new(segment_bytes: u64) -> Self {
        Self {
            lanes: Striped::default(),
            free_bytes: AtomicI64::new(0),
            waiting: CachePadded::new(AtomicUsize::new(0)),
            more_room: Notify::default(),
            max_batch_bytes: (segment_bytes / 4).min(Batch::MAX_BYTES),
            piece_bytes: segment_bytes / 256,
            spent: Mutex::default(),
        }
    }

    /// Returns the largest size of a batch.
    pub fn max_batch_bytes(&self) -> u64 {
        self.max_batch_bytes
    }

    /// Adds room, or removes it if `bytes` is negative.
    pub fn add_room(&self, bytes: i64) {
        self.free_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Marks the caller as waiting until the returned guard is dropped: every call that gives room
    /// back then notifies `more_room`. A call that finds no room after this is notified when there
    /// may be some.
    pub fn wait(&self) -> Waiting<'_> {
        // A call that gives room back to a lane after that lane was checked sees this count: both
        // have held the lock of the lane.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Returns the number of calls that wait for room.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn tell_of_more_room(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.more_room.notify_waiters();
        }
    }

    /// Reserves room for up to `hashes` hashes in `records` records; `None` if there is not enough.
    pub fn reserve(&self, hashes: usize, records: usize) -> Option<Room<'_>> {
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

    /// Takes back the unused room of all lanes.
    fn collect(&self) {
        for lane in self.lanes.iter() {
            let bytes = mem::take(&mut lane.lock().room_bytes);
            // The value is never more than was added.
            self.add_room(bytes as i64);
        }
    }

    fn reserve_bytes(&self, bytes: u64) -> Option<Room<'_>> {
        let own = self.lanes.own();
        let mut lane = own.lock();
        if lane.room_bytes < bytes {
            let missing = bytes - lane.room_bytes;
            lane.room_bytes += match self.take_room(missing) {
                None if Bug::NoReservation.is_planted() => missing,
                taken => taken?,
            };
        }
        lane.room_bytes -= bytes;
        Some(Room {
            lanes: self,
            lane: own,
            bytes,
        })
    }

    /// Takes at least `least` bytes of the room that no lane has.
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

    /// Appends `count` hashes, which a call has changed and for which room was reserved. `head` has
    /// the version of the call. A version without hashes has a record too.
    pub fn append(
        &self,
        room: &mut Room<'_>,
        head: &RecordHead,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        self.append_parts(room, iter::once((*head, count, hashes)));
    }

    /// Like [`Self::append`], for a version whose hashes have different heads.
    pub fn append_parts<H: Iterator<Item = KeyHash>>(
        &self,
        room: &mut Room<'_>,
        parts: impl Iterator<Item = (RecordHead, usize, H)>,
    ) {
        let mut lane = room.lane.lock();
        let mut end = None;
        for (head, count, hashes) in parts {
            self.push(&mut lane, room, &head, count, hashes);
            end = Some(head);
        }
        // The mark is added after all records of the version.
        if let Some(RecordHead {
            filter, version, ..
        }) = end.filter(|head| head.version > 0)
        {
            lane.ends.push(End { filter, version });
        }
    }

    fn push(
        &self,
        lane: &mut Lane,
        room: &mut Room<'_>,
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
            if !lane.filled.last().is_some_and(fits) {
                let batch = self.spent.lock().pop().unwrap_or_default();
                lane.filled.push(Filled {
                    batch,
                    reserved_bytes: 0,
                });
            }
            if let Some(filled) = lane.filled.last_mut() {
                let hashes = hashes.by_ref();
                filled.batch.push(head, count, hashes);
                // Only the reserved part is counted. Otherwise room would be given back that nobody
                // has taken.
                let reserved = bytes.min(room.bytes);
                room.bytes -= reserved;
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
        for lane in self.lanes.iter() {
            let mut lane = lane.lock();
            filled.extend(lane.filled.drain(..));
            ends.append(&mut lane.ends);
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
        let mut lanes = self.lanes.iter();
        lanes.all(|lane| lane.lock().filled.is_empty())
    }
}
