//! Records: what one call added to one filter.

use bytemuck::{Pod, Zeroable};

use crate::{filter::hash::KeyHash, store::MAX_NUMBER};

/// Which filter a record is of. No two filters of a data directory ever have the same, not even
/// one after the other under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId(pub u64);

/// What a caller called its request, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub [u8; 16]);

/// The keys that a call added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The filter.
    pub filter: FilterId,
    /// The version that the call gave it.
    pub version: u64,
    /// What the caller called its request, if anything.
    pub request: Option<RequestId>,
    /// The hashes of the keys that were new.
    pub hashes: Vec<KeyHash>,
}

impl Record {
    /// The bytes that it takes in the log, at most.
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

/// The bytes that a record with so many hashes takes at most.
pub const fn encoded_bytes(hashes: usize) -> usize {
    size_of::<Head>() + 16 + 16 * hashes
}

/// Appends a record of so many hashes to those of a batch.
pub fn encode(
    filter: FilterId,
    version: u64,
    request: Option<&RequestId>,
    count: usize,
    hashes: impl Iterator<Item = KeyHash>,
    to: &mut Vec<u8>,
) {
    let head = Head {
        filter: filter.0.to_le_bytes(),
        version: version.to_le_bytes(),
        // A message has no more keys than fit into 16 MiB.
        count: (count as u32).to_le_bytes(),
        flags: if request.is_some() { HAS_REQUEST } else { 0 }.to_le_bytes(),
    };
    to.extend_from_slice(bytemuck::bytes_of(&head));
    if let Some(RequestId(id)) = request {
        to.extend_from_slice(id);
    }
    // All room at once: to look for it with each hash takes as long as to copy it.
    let at = to.len();
    to.resize(at + 16 * count, 0);
    let places = to.get_mut(at..).unwrap_or_default().as_chunks_mut().0;
    for (place, KeyHash { low, high }) in places.iter_mut().zip(hashes) {
        *place = (u128::from(low) | (u128::from(high) << 64)).to_le_bytes();
    }
}

/// Takes the first record off those of a batch. `None` if there is none, of known form and as
/// long as it says.
pub fn decode(from: &mut &[u8]) -> Option<Record> {
    let mut rest = *from;
    let head: Head = bytemuck::pod_read_unaligned(take(&mut rest, size_of::<Head>())?);
    let request = match u32::from_le_bytes(head.flags) {
        0 => None,
        HAS_REQUEST => Some(RequestId(take(&mut rest, 16)?.try_into().ok()?)),
        _ => return None,
    };
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
    // Those after it are counted from here.
    if filter > MAX_NUMBER || version > MAX_NUMBER {
        return None;
    }
    *from = rest;
    Some(Record {
        filter: FilterId(filter),
        version,
        request,
        hashes: hashes.collect(),
    })
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}
