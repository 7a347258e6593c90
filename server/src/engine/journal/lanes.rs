//! Lanes: records on their way from calls to the log.
//!
//! Each thread, or few, has a lane, so that calls on different cores do not contend; in which
//! order their records reach the log does not matter, for additions commute, and a start puts
//! those in order that do not (`engine/recovery/order.rs`).
//!
//! # Room before bits
//!
//! A call [reserves](Lanes::reserve) room on the disk for all that it may add before it sets a
//! bit, so that no bit is set that the log has no room for. The room comes from segments that
//! are there already. Lanes take it in large pieces, or every call would write one number that
//! all share; and they keep what a call has not used, for the next one. Where there is too
//! little left, they have to part with it.

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

/// How many emptied batches are kept, each with its memory.
const MAX_SPENT: usize = 128;

/// All lanes.
#[derive(Debug)]
pub struct Lanes {
    lanes: Striped<Mutex<Lane>>,
    /// The room that no lane has taken. Less than none where more has been promised than a new
    /// segment has, after one was given up.
    free_bytes: AtomicI64,
    /// How many wait for room.
    waiting: CachePadded<AtomicUsize>,
    /// Has come when there may be more room, or none for a reason that can be told.
    pub more_room: Notify,
    /// How large a batch gets: segments have room for several.
    max_batch_bytes: u64,
    /// How much room a lane takes at once, beyond what it needs.
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
    /// The room that was reserved for it.
    pub reserved_bytes: u64,
}

/// That a version of a filter is in the batches.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub filter: FilterId,
    pub version: u64,
}

/// Room in the log for what one call adds. What it does not use is given back.
#[derive(Debug)]
pub struct Room<'a> {
    lanes: &'a Lanes,
    lane: &'a Mutex<Lane>,
    bytes: u64,
}

impl<'a> Room<'a> {
    /// Room for two calls: of so many bytes for the first, and what is left for the second.
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

/// That somebody waits for room, until dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Lanes);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// Lanes to segments of so many bytes.
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

    /// No batch is larger.
    pub fn max_batch_bytes(&self) -> u64 {
        self.max_batch_bytes
    }

    /// Has so much more room, or less.
    pub fn add_room(&self, bytes: i64) {
        self.free_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Has everybody who gives room back tell so, until what is returned is dropped. Whoever
    /// finds no room after this is told when there may be some.
    pub fn wait(&self) -> Waiting<'_> {
        // Whoever gives room back to a lane after that lane was looked into sees this: both have
        // had its lock.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// How many wait for room.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn tell_of_more_room(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.more_room.notify_waiters();
        }
    }

    /// Reserves room for up to so many hashes in so many records; `None` if there is not as much.
    pub fn reserve(&self, hashes: usize, records: usize) -> Option<Room<'_>> {
        let bytes = self.needed_bytes(hashes, records);
        self.reserve_bytes(bytes).or_else(|| {
            self.collect();
            self.reserve_bytes(bytes)
        })
    }

    /// What up to so many hashes in so many records take at most. The hashes and the records of two
    /// calls take no less together than each by itself.
    pub fn needed_bytes(&self, hashes: usize, records: usize) -> u64 {
        let more = records.saturating_sub(1) as u64;
        self.bytes_for(hashes) + more * Batch::bytes_for(0)
    }

    /// Takes from all lanes what their calls have not used.
    fn collect(&self) {
        for lane in self.lanes.iter() {
            let bytes = mem::take(&mut lane.lock().room_bytes);
            // No more than was added.
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

    /// Takes at least so much of the room that no lane has.
    fn take_room(&self, least: u64) -> Option<u64> {
        let mut free = self.free_bytes.load(Ordering::Acquire);
        loop {
            let available = u64::try_from(free).ok().filter(|&free| free >= least)?;
            let taken = available.min(least + self.piece_bytes);
            // No more than what is free, which is a number of that kind.
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

    /// Hands over so many hashes, which a call of a version has changed, and for which room was
    /// reserved. Of a version without any there is a record nevertheless.
    pub fn append(
        &self,
        room: &mut Room<'_>,
        head: &RecordHead,
        count: usize,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        self.append_parts(room, iter::once((*head, count, hashes)));
    }

    /// [`Self::append`] for a version whose hashes are not all of one head, but in that.
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
        // Not before all of the version is there.
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
                // As much of it as was reserved, or room would be given back that nobody has taken.
                let reserved = bytes.min(room.bytes);
                room.bytes -= reserved;
                filled.reserved_bytes += reserved;
            }
            if left == 0 {
                break;
            }
        }
    }

    /// The bytes that so many hashes of one call take at most.
    fn bytes_for(&self, hashes: usize) -> u64 {
        let whole = hashes / self.hashes_of_a_record();
        let rest = match hashes % self.hashes_of_a_record() {
            0 if whole > 0 => 0,
            rest => Batch::bytes_for(rest),
        };
        whole as u64 * Batch::bytes_for(self.hashes_of_a_record()) + rest
    }

    /// Calls with more hashes have several records, for batches are small beside a segment.
    pub fn hashes_of_a_record(&self) -> usize {
        let bytes = (self.max_batch_bytes / 2).saturating_sub(Batch::bytes_for(0));
        (bytes / 16).max(1) as usize
    }

    /// Takes all that has been handed over.
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

    /// Whether nothing has been handed over.
    pub fn is_empty(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.all(|lane| lane.lock().filled.is_empty())
    }
}
