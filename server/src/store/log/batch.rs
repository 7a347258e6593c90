//! Batches: what is written to the log at once.

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most bytes that the records of a batch may have: those of the largest message, and some.
/// What a file says of a longer one is not believed.
pub const MAX_BODY_BYTES: usize = 32 << 20;

/// What stands before the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Of all that follows.
    pub checksum: u64,
    /// The length of the records.
    pub body_bytes: usize,
    /// Up to where the segment had been synced when the batch was written.
    pub synced: u64,
    /// The checksum of the batch before; the salt of the segment in its first batch.
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
