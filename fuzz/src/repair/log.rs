//! Repairs the checksums of the log, and the links from each batch and segment to the one before.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Repairs, long, put, seal};
use crate::files::Files;

const TAIL: &str = "log.tail";
const HEADER_BYTES: usize = 64;
const BATCH_HEADER_BYTES: usize = 32;

/// A place between two batches.
struct Place {
    at: u64,
    /// The checksum of the batch before this place: first as it was found, then as it is now.
    found: u64,
    checksum: u64,
}

/// Repairs all segments, and the part of the tail that continues them after their last batch.
pub fn repair(repairs: Repairs, files: &mut Files) {
    let mut tail = files.remove(TAIL);
    // The number of the segment before, and the places in it where the log may end.
    let begin = Place {
        at: 0,
        found: 0,
        checksum: 0,
    };
    let mut before: (u64, Vec<Place>) = (0, vec![begin]);
    // All names have the same length, so the files come in order.
    for (name, bytes) in files.iter_mut() {
        let Some(number) = number(name).filter(|_| bytes.len() >= HEADER_BYTES) else {
            continue;
        };
        if repairs.checksums {
            seal(&mut bytes[..HEADER_BYTES]);
        }
        let (last, ends) = &before;
        let ends = if last + 1 == number { &**ends } else { &[] };
        let mut chain = Chain {
            repairs,
            salt: long(bytes, 24).unwrap_or_default(),
            ends,
            places: Vec::new(),
        };
        chain.segment(bytes);
        chain.tail(tail.as_deref_mut().unwrap_or_default(), bytes.len());
        let places = chain.places;
        before.0 = number;
        // A segment without batches does not show where the log ends.
        if !places.is_empty() {
            before.1 = places;
        }
    }
    files.extend(tail.map(|bytes| (TAIL.to_owned(), bytes)));
}

/// Returns the number of a segment.
fn number(file: &str) -> Option<u64> {
    u32::from_str_radix(file.strip_suffix(".log")?, 16)
        .ok()
        .map(u64::from)
}

/// The batches of a segment, as far as they are repaired.
struct Chain<'a> {
    repairs: Repairs,
    salt: u64,
    /// The places that the first batch may follow.
    ends: &'a [Place],
    /// The places after the batches.
    places: Vec<Place>,
}

impl Chain<'_> {
    /// Repairs batches as long as one follows the other.
    fn segment(&mut self, bytes: &mut [u8]) {
        while let Some(batch) = batch(&mut bytes[self.end()..]) {
            self.link(batch);
        }
    }

    /// Continues in the tail, as far as the segment has room. The tail also holds batches of
    /// earlier rounds. They do not name the batch before them, so the repair ends there.
    fn tail(&mut self, tail: &mut [u8], segment_bytes: usize) {
        while !tail.is_empty() {
            let begin = self.end() % tail.len();
            let mut turned = tail.to_vec();
            turned.rotate_left(begin);
            let left = segment_bytes.saturating_sub(self.end());
            let Some(batch) = batch(&mut turned).filter(|batch| batch.len() <= left) else {
                return;
            };
            let before = match &*self.places {
                [] => self.ends,
                [.., last] => std::slice::from_ref(last),
            };
            let previous = long(batch, 24);
            if !before.iter().any(|end| Some(end.found) == previous) {
                return;
            }
            self.link(batch);
            turned.rotate_right(begin);
            tail.copy_from_slice(&turned);
        }
    }

    /// Returns where the next batch begins.
    fn end(&self) -> usize {
        self.places
            .last()
            .map_or(HEADER_BYTES, |place| place.at as usize)
    }

    /// Repairs the next batch.
    fn link(&mut self, batch: &mut [u8]) {
        let found = long(batch, 0).unwrap_or_default();
        if self.repairs.contents {
            match self.places.last() {
                Some(before) => put(batch, 24, before.checksum),
                None => {
                    // The server may have given up the segment before its last batch.
                    let end = long(batch, 16);
                    let known = self.ends.iter().find(|place| Some(place.at) == end);
                    if let Some(place) = known.or(self.ends.last()) {
                        put(batch, 16, place.at);
                        put(batch, 24, place.checksum);
                    }
                }
            }
        }
        if self.repairs.checksums {
            put(batch, 0, xxh3_64_with_seed(&batch[8..], self.salt));
        }
        self.places.push(Place {
            at: (self.end() + batch.len()) as u64,
            found,
            checksum: long(batch, 0).unwrap_or_default(),
        });
    }
}

/// Returns the batch at the beginning, if there is one.
fn batch(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let (magic, length) = bytes.get(8..16)?.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
    let is_batch = magic == b"SEEN";
    is_batch.then_some(bytes.get_mut(..BATCH_HEADER_BYTES + length)?)
}
