//! Batches: what is written to the log at once.

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::record::{self, Record, RecordHead};
use crate::filter::hash::KeyHash;

/// The most bytes that the records of a batch may have. What a file says of a longer one is not
/// believed.
pub const MAX_BODY_BYTES: usize = 256 << 10;

/// Records that are written at once.
#[derive(Debug)]
pub struct Batch {
    /// The records, behind the place for the header.
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
    /// The most bytes that a batch takes in a segment.
    pub const MAX_BYTES: u64 = (BatchHeader::BYTES + MAX_BODY_BYTES) as u64;

    /// A batch of records that have been encoded.
    pub(super) fn of(records: &[u8]) -> Self {
        let mut batch = Self::default();
        batch.bytes.extend_from_slice(records);
        batch
    }

    /// The bytes that a record of a batch of its own takes.
    pub const fn bytes_for(hashes: usize) -> u64 {
        (BatchHeader::BYTES + record::encoded_bytes(hashes)) as u64
    }

    /// Adds a record of so many hashes.
    pub fn push(&mut self, head: &RecordHead, count: usize, hashes: impl Iterator<Item = KeyHash>) {
        record::encode(head, count, hashes, &mut self.bytes);
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == BatchHeader::BYTES
    }

    /// The bytes that it takes in a segment.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether a record of so many hashes fits beside those there are, into so many bytes in
    /// all.
    pub fn fits(&self, hashes: usize, max_bytes: u64) -> bool {
        self.bytes() + record::encoded_bytes(hashes) as u64 <= max_bytes.min(Self::MAX_BYTES)
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let mut left = self.bytes.get(BatchHeader::BYTES..).unwrap_or_default();
        std::iter::from_fn(move || record::decode(&mut left))
    }

    /// Removes the records, and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(BatchHeader::BYTES);
    }
}

/// What stands before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Of all that follows.
    pub checksum: u64,
    /// The length of the records.
    pub body_bytes: usize,
    /// Up to where the segment had been synced when the batch was written. In the first batch of
    /// a segment: where the log ends before it, in another segment; 0 if there is none.
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

/// Where the magic is in a batch.
pub const MAGIC_AT: usize = 8;

impl BatchHeader {
    /// The length of a header.
    pub const BYTES: usize = size_of::<Encoded>();
    /// Where in a header the checksum of the batch before stands.
    pub const PREVIOUS_AT: u64 = std::mem::offset_of!(Encoded, previous) as u64;

    /// Fills in the header of a batch, whose records stand behind the place for it, and returns
    /// the checksum.
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

    /// Whether the bytes are a header's, whole or not, that names the checksum of the batch before:
    /// but for a few bits, which no other has in common with it.
    pub fn once_followed(bytes: &[u8; Self::BYTES], before: u64) -> bool {
        let encoded: Encoded = bytemuck::pod_read_unaligned(bytes);
        let differences = u64::from_le_bytes(encoded.previous) ^ before;
        before != 0 && differences.count_ones() < 8
    }

    /// What the bytes say, if they may be a header's.
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

/// The checksum of a batch, header and records, without itself.
pub fn checksum(batch: &[u8], salt: u64) -> u64 {
    xxh3_64_with_seed(batch.get(MAGIC_AT..).unwrap_or_default(), salt)
}
