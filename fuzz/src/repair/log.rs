//! The checksums of the log, and the links from each batch and segment to the one before.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Repairs, long, put, seal};
use crate::files::Files;

const HEADER_BYTES: usize = 64;
const BATCH_HEADER_BYTES: usize = 32;

/// A place between two batches, and the checksum of the one before it.
type Place = (u64, u64);

/// Repairs all segments. Batches are looked for as long as one follows the other.
pub fn repair(repairs: Repairs, files: &mut Files) {
    // The number of the segment before, and where the log may end there or before.
    let mut before: (u64, Vec<Place>) = (0, vec![(0, 0)]);
    // Their names are as long as each other, so they come in their order.
    for (name, bytes) in files {
        let Some(number) = number(name).filter(|_| bytes.len() >= HEADER_BYTES) else {
            continue;
        };
        if repairs.checksums {
            seal(&mut bytes[..HEADER_BYTES]);
        }
        let (last, ends) = &before;
        let ends = if last + 1 == number { &**ends } else { &[] };
        let places = batches(repairs, bytes, ends);
        before.0 = number;
        // One without batches says nothing of where the log ends.
        if !places.is_empty() {
            before.1 = places;
        }
    }
}

/// The number of a segment.
fn number(file: &str) -> Option<u64> {
    u32::from_str_radix(file.strip_suffix(".log")?, 16)
        .ok()
        .map(u64::from)
}

/// Repairs the batches of a segment, the first of which follows one of `ends`, and returns the
/// places behind them.
fn batches(repairs: Repairs, bytes: &mut [u8], ends: &[Place]) -> Vec<Place> {
    let salt = long(bytes, 24).unwrap_or_default();
    let mut at = HEADER_BYTES;
    let mut places: Vec<Place> = Vec::new();
    while let Some(batch) = batch(&mut bytes[at..]) {
        if repairs.contents {
            match places.last() {
                Some((_, previous)) => put(batch, 24, *previous),
                None => {
                    // The segment before may have been given up before its last batch.
                    let end = long(batch, 16);
                    let known = ends.iter().find(|(at, _)| Some(*at) == end);
                    if let Some((at, checksum)) = known.or(ends.last()) {
                        put(batch, 16, *at);
                        put(batch, 24, *checksum);
                    }
                }
            }
        }
        if repairs.checksums {
            put(batch, 0, xxh3_64_with_seed(&batch[8..], salt));
        }
        let checksum = long(batch, 0).unwrap_or_default();
        at += batch.len();
        places.push((at as u64, checksum));
    }
    places
}

/// The batch at the beginning, if there is one.
fn batch(bytes: &mut [u8]) -> Option<&mut [u8]> {
    let (magic, length) = bytes.get(8..16)?.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
    let is_batch = magic == b"SEEN";
    is_batch.then_some(bytes.get_mut(..BATCH_HEADER_BYTES + length)?)
}
