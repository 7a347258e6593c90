//! Batches: the records of one write to the log.

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::{self, Record, RecordHead};
use crate::filter::hash::KeyHash;

/// The greatest length of the records of a batch. A greater length in a file is not believed.
pub const MAX_BODY_BYTES: usize = 256 << 10;

/// Records that are written at once.
#[derive(Debug)]
pub struct Batch {
    /// The records, after the place for the header.
    pub(super) bytes: Vec<u8>,
}

impl Default for Batch {
    /// No records.
    fn default() -> Self {
        Self {
            bytes: vec![0; BatchHeader::BYTES],
        }
    }
}

impl Batch {
    /// The greatest number of bytes that a batch takes in a segment.
    pub const MAX_BYTES: u64 = (BatchHeader::BYTES + MAX_BODY_BYTES) as u64;

    /// Returns a batch of encoded records.
    pub(super) fn of(records: &[u8]) -> Self {
        let mut batch = Self::default();
        batch.bytes.extend_from_slice(records);
        batch
    }

    /// Returns the bytes that a batch with one record of `hashes` hashes takes.
    pub const fn bytes_for(hashes: usize) -> u64 {
        (BatchHeader::BYTES + record::encoded_bytes(hashes)) as u64
    }

    /// Adds a record with `count` hashes.
    pub fn push(&mut self, head: &RecordHead, count: usize, hashes: impl Iterator<Item = KeyHash>) {
        record::encode(head, count, hashes, &mut self.bytes);
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == BatchHeader::BYTES
    }

    /// Returns the bytes that the batch takes in a segment.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns whether a record with `hashes` hashes fits into the batch, if the batch may have
    /// `max_bytes` bytes in all.
    pub fn fits(&self, hashes: usize, max_bytes: u64) -> bool {
        self.bytes() + record::encoded_bytes(hashes) as u64 <= max_bytes.min(Self::MAX_BYTES)
    }

    /// Returns the records.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let mut left = self
            .bytes
            .get(BatchHeader::BYTES..)
            .expect("a batch begins with its header");
        std::iter::from_fn(move || record::decode(&mut left))
    }

    /// Removes the records, and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(BatchHeader::BYTES);
    }
}

/// The header of a batch. It is before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// The checksum of all that follows.
    pub checksum: u64,
    /// The length of the records.
    pub body_bytes: usize,
    /// The offset up to which the segment was synced when the batch was written. In the first batch
    /// of a segment: the offset at which the log ends in an earlier segment; 0 if there is none.
    pub synced: u64,
    /// The checksum of the batch before, in this segment or another; 0 if there is none.
    pub previous: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Encoded {
    checksum: [u8; 8],
    magic: [u8; 4],
    body_bytes: [u8; 4],
    synced: [u8; 8],
    previous: [u8; 8],
}

pub const MAGIC: [u8; 4] = *b"SEEN";

/// The offset of the magic in a batch.
pub const MAGIC_AT: usize = 8;

impl BatchHeader {
    /// The length of a header.
    pub const BYTES: usize = size_of::<Encoded>();
    /// The offset in a header of the checksum of the batch before.
    pub const PREVIOUS_AT: u64 = std::mem::offset_of!(Encoded, previous) as u64;

    /// Fills in the header of a batch, whose records are after the place for it, and returns the
    /// checksum.
    pub fn write(batch: &mut [u8], salt: u64, synced: u64, previous: u64) -> u64 {
        let Some((head, body)) = batch.split_at_mut_checked(Self::BYTES) else {
            return previous;
        };
        let encoded = Encoded {
            checksum: [0; 8],
            magic: MAGIC,
            // No more than `MAX_BODY_BYTES`.
            body_bytes: (body.len() as u32).to_le_bytes(),
            synced: synced.to_le_bytes(),
            previous: previous.to_le_bytes(),
        };
        head.copy_from_slice(bytemuck::bytes_of(&encoded));
        let checksum = checksum(batch, salt);
        if let Some(place) = batch.first_chunk_mut() {
            *place = checksum.to_le_bytes();
        }
        checksum
    }

    /// Returns whether the bytes are a header, whole or not, that names the checksum `before` as
    /// that of the batch before. A few bits may differ: a header with another checksum differs in
    /// more.
    pub fn once_followed(bytes: &[u8; Self::BYTES], before: u64) -> bool {
        let encoded: Encoded = bytemuck::pod_read_unaligned(bytes);
        let differences = u64::from_le_bytes(encoded.previous) ^ before;
        before != 0 && differences.count_ones() < 8
    }

    /// Returns the header that the bytes hold; `None` if they cannot be a header.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let encoded: Encoded = bytemuck::pod_read_unaligned(bytes);
        let header = Self {
            checksum: u64::from_le_bytes(encoded.checksum),
            body_bytes: u32::from_le_bytes(encoded.body_bytes) as usize,
            synced: u64::from_le_bytes(encoded.synced),
            previous: u64::from_le_bytes(encoded.previous),
        };
        let is_batch = encoded.magic == MAGIC && header.body_bytes <= MAX_BODY_BYTES;
        is_batch.then_some(header)
    }
}

/// Returns the checksum of a batch: of header and records, without the checksum itself.
pub fn checksum(batch: &[u8], salt: u64) -> u64 {
    let covered = batch
        .get(MAGIC_AT..)
        .expect("a batch begins with its header");
    xxh3_64_with_seed(covered, salt)
}
