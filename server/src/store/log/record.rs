//! Records: the change of one call to one filter.

use bytemuck::{Pod, Zeroable};

use crate::{filter::hash::KeyHash, store::MAX_NUMBER};

/// The id of the filter of a record. No two filters of a data directory ever have the same id, not
/// even two that had the same name one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId(pub u64);

/// The hash of the request id (idempotency key) that a caller gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub [u8; 16]);

/// The keys that a call added, or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The fields other than the hashes.
    pub head: RecordHead,
    /// The hashes of the keys that were new or, in a counting filter, that were counted.
    pub hashes: Vec<KeyHash>,
}

/// The fields of a record other than its hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// The filter.
    pub filter: FilterId,
    /// The version that the call gave the filter; 0 if it does not matter because the change is
    /// stored.
    pub version: u64,
    /// The request id that the caller gave, if any.
    pub request: Option<RequestId>,
    /// The way the keys were counted. `None` if they were added: adding can be repeated.
    pub counted: Option<Counted>,
    /// The epoch at which the keys were added, in a filter whose keys age.
    pub epoch: Option<u64>,
    /// The layer that the keys were added to, in a filter with layers. Keys that were taken for
    /// seen in that layer depend on its bits.
    pub layer: Option<u64>,
}

impl RecordHead {
    /// Returns the head of a record of added keys, without a request id.
    pub fn added(filter: FilterId, version: u64) -> Self {
        Self {
            filter,
            version,
            request: None,
            counted: None,
            epoch: None,
            layer: None,
        }
    }
}

/// The way keys were counted. Such a record must be applied once, and in the order of the versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Up or down.
    pub direction: Direction,
    /// The version that the filter had when the server that wrote this record started. That server
    /// gave each later version to one record. The versions between the last record of an earlier
    /// server and this version have no record.
    pub since: u64,
}

/// The direction of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A key was added.
    Up,
    /// A key was removed.
    Down,
}

impl Record {
    /// Returns the greatest number of bytes that the record takes in the log.
    pub fn encoded_bytes(&self) -> u64 {
        encoded_bytes(self.hashes.len()) as u64
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    filter: [u8; 8],
    version: [u8; 8],
    count: [u8; 4],
    flags: [u8; 4],
}

const HAS_REQUEST: u32 = 1;
const IS_COUNTED: u32 = 2;
const IS_DOWN: u32 = 4;
/// Not together with [`IS_COUNTED`].
const HAS_EPOCH: u32 = 8;
/// Not together with [`IS_COUNTED`] or [`HAS_EPOCH`].
const HAS_LAYER: u32 = 16;

/// Returns the greatest number of bytes that a record with `hashes` hashes takes.
pub const fn encoded_bytes(hashes: usize) -> usize {
    size_of::<Head>() + 16 + 8 + 16 * hashes
}

/// Appends a record with `count` hashes to the records of a batch.
pub fn encode(
    head: &RecordHead,
    count: usize,
    hashes: impl Iterator<Item = KeyHash>,
    to: &mut Vec<u8>,
) {
    let request = head.request.map_or(0, |_| HAS_REQUEST);
    let counted = match head.counted.map(|counted| counted.direction) {
        None => 0,
        Some(Direction::Up) => IS_COUNTED,
        Some(Direction::Down) => IS_COUNTED | IS_DOWN,
    };
    let epoch = head.epoch.map_or(0, |_| HAS_EPOCH);
    let layer = head.layer.map_or(0, |_| HAS_LAYER);
    let encoded = Head {
        filter: head.filter.0.to_le_bytes(),
        version: head.version.to_le_bytes(),
        // A message has no more keys than fit into 16 MiB.
        count: (count as u32).to_le_bytes(),
        flags: (request | counted | epoch | layer).to_le_bytes(),
    };
    to.extend_from_slice(bytemuck::bytes_of(&encoded));
    if let Some(RequestId(id)) = &head.request {
        to.extend_from_slice(id);
    }
    if let Some(Counted { since, .. }) = &head.counted {
        to.extend_from_slice(&since.to_le_bytes());
    }
    for number in [head.epoch, head.layer].into_iter().flatten() {
        to.extend_from_slice(&number.to_le_bytes());
    }
    // Resizes once: a capacity check with each hash takes as long as the copy.
    let at = to.len();
    to.resize(at + 16 * count, 0);
    let places = to.get_mut(at..).unwrap_or_default().as_chunks_mut().0;
    for (place, KeyHash { low, high }) in places.iter_mut().zip(hashes) {
        *place = (u128::from(low) | (u128::from(high) << 64)).to_le_bytes();
    }
}

/// Removes and returns the first of the encoded records. `None` if there is no record of a known
/// form that is as long as it says.
pub fn decode(from: &mut &[u8]) -> Option<Record> {
    let mut rest = *from;
    let head: Head = bytemuck::pod_read_unaligned(take(&mut rest, size_of::<Head>())?);
    let flags = u32::from_le_bytes(head.flags);
    let request = match flags & HAS_REQUEST {
        0 => None,
        _ => Some(RequestId(take(&mut rest, 16)?.try_into().ok()?)),
    };
    let direction = match flags & !HAS_REQUEST {
        0 | HAS_EPOCH | HAS_LAYER => None,
        IS_COUNTED => Some(Direction::Up),
        flags if flags == IS_COUNTED | IS_DOWN => Some(Direction::Down),
        _ => return None,
    };
    let counted = match direction {
        None => None,
        Some(direction) => {
            let since = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
            Some(Counted { direction, since })
        }
    };
    let mut number = |flag| {
        Some(match flags & flag {
            0 => None,
            _ => Some(u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
        })
    };
    let (epoch, layer) = (number(HAS_EPOCH)?, number(HAS_LAYER)?);
    let count = u32::from_le_bytes(head.count) as usize;
    let hashes = take(&mut rest, count.checked_mul(16)?)?;
    let hashes = hashes.as_chunks().0.iter().map(|hash: &[u8; 16]| {
        let hash = u128::from_le_bytes(*hash);
        KeyHash {
            low: hash as u64,
            high: (hash >> 64) as u64,
        }
    });
    let (filter, version) = (
        u64::from_le_bytes(head.filter),
        u64::from_le_bytes(head.version),
    );
    // New numbers are counted on from these numbers. A counting filter gives a version to each
    // record that changes it. All these versions are greater than `since`.
    let is_behind = |counted: Counted| version == 0 || counted.since < version;
    let greatest = [Some(filter), Some(version), epoch, layer]
        .into_iter()
        .max();
    let greatest = greatest.flatten().unwrap_or_default();
    if greatest > MAX_NUMBER || !counted.is_none_or(is_behind) {
        return None;
    }
    *from = rest;
    Some(Record {
        head: RecordHead {
            filter: FilterId(filter),
            version,
            request,
            counted,
            epoch,
            layer,
        },
        hashes: hashes.collect(),
    })
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}
