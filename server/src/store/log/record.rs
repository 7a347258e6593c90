//! Records: the change of one call to one filter.

use bytemuck::{Pod, Zeroable};

use crate::{
    filter::hash::KeyHash,
    store::{FilterId, MAX_NUMBER, RequestId},
};

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
    /// The change.
    pub kind: RecordKind,
}

impl RecordHead {
    /// Returns the head of a record of added keys, without a request id.
    pub fn added(filter: FilterId, version: u64) -> Self {
        Self {
            filter,
            version,
            request: None,
            kind: RecordKind::Added,
        }
    }
}

/// The change that a record makes. Keys that were added can be added again; keys that were counted
/// cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// The keys were added.
    Added,
    /// The keys were added at an epoch, in a filter whose keys age.
    AddedAt {
        /// The epoch.
        epoch: u64,
    },
    /// The keys were added to a layer, in a filter with layers. Keys that were taken for seen in
    /// that layer depend on its bits.
    AddedTo {
        /// The number of the layer.
        layer: u64,
    },
    /// The keys were counted, in a counting filter.
    Counted(Counted),
}

impl RecordKind {
    /// Returns whether the keys were added, and not removed.
    pub fn adds(self) -> bool {
        match self {
            Self::Added | Self::AddedAt { .. } | Self::AddedTo { .. } => true,
            Self::Counted(counted) => counted.direction == Direction::Up,
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

/// The start of a record. The request id follows, if there is one, then the number of the kind, if
/// it has one, and then the hashes.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    filter: [u8; 8],
    version: [u8; 8],
    count: [u8; 4],
    tag: u8,
    has_request: u8,
    zeros: [u8; 2],
}

impl RecordKind {
    /// Returns the tag of the kind, and its number.
    fn encode(self) -> (u8, Option<u64>) {
        match self {
            Self::Added => (0, None),
            Self::AddedAt { epoch } => (1, Some(epoch)),
            Self::AddedTo { layer } => (2, Some(layer)),
            Self::Counted(Counted { direction, since }) => match direction {
                Direction::Up => (3, Some(since)),
                Direction::Down => (4, Some(since)),
            },
        }
    }

    /// Returns the kind with a tag. `number` returns its number. `None` if the tag is unknown, or
    /// there is no number.
    fn decode(tag: u8, number: impl FnOnce() -> Option<u64>) -> Option<Self> {
        let counted = |direction, since| Self::Counted(Counted { direction, since });
        Some(match tag {
            0 => Self::Added,
            1 => Self::AddedAt { epoch: number()? },
            2 => Self::AddedTo { layer: number()? },
            3 => counted(Direction::Up, number()?),
            4 => counted(Direction::Down, number()?),
            _ => return None,
        })
    }
}

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
    let (tag, number) = head.kind.encode();
    let encoded = Head {
        filter: head.filter.0.to_le_bytes(),
        version: head.version.to_le_bytes(),
        // A message has no more keys than fit into 16 MiB.
        count: (count as u32).to_le_bytes(),
        tag,
        has_request: head.request.is_some().into(),
        zeros: [0; 2],
    };
    to.extend_from_slice(bytemuck::bytes_of(&encoded));
    if let Some(RequestId(id)) = &head.request {
        to.extend_from_slice(id);
    }
    if let Some(number) = number {
        to.extend_from_slice(&number.to_le_bytes());
    }
    // Resizes once: a capacity check with each hash takes as long as the copy.
    let at = to.len();
    to.resize(at + 16 * count, 0);
    let places = to.get_mut(at..).expect("resized above").as_chunks_mut().0;
    for (place, KeyHash { low, high }) in places.iter_mut().zip(hashes) {
        *place = (u128::from(low) | (u128::from(high) << 64)).to_le_bytes();
    }
}

/// Removes and returns the first of the encoded records. `None` if there is no record of a known
/// form that is as long as it says.
pub fn decode(from: &mut &[u8]) -> Option<Record> {
    let mut rest = *from;
    let head: Head = bytemuck::pod_read_unaligned(take(&mut rest, size_of::<Head>())?);
    let request = match head.has_request {
        0 => None,
        1 => Some(RequestId(take(&mut rest, 16)?.try_into().ok()?)),
        _ => return None,
    };
    let kind = RecordKind::decode(head.tag, || {
        Some(u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?))
    })?;
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
    let is_known = match kind {
        RecordKind::Added => true,
        RecordKind::AddedAt { epoch: number } | RecordKind::AddedTo { layer: number } => {
            number <= MAX_NUMBER
        }
        RecordKind::Counted(Counted { since, .. }) => version == 0 || since < version,
    };
    if filter.max(version) > MAX_NUMBER || !is_known {
        return None;
    }
    *from = rest;
    Some(Record {
        head: RecordHead {
            filter: FilterId(filter),
            version,
            request,
            kind,
        },
        hashes: hashes.collect(),
    })
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}
