//! The table of a snapshot: for each shard, what it holds and how to know its bytes.

use std::path::Path;

use super::{MAX_VERSION, checksum, header::Hex};
use crate::store::StoreError;

/// What is known of a shard beside its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardState {
    /// The greatest version of the calls that changed the shard.
    pub version: u64,
    /// The number of new keys that were added to the shard.
    pub keys_added: u64,
    /// The number of bits that are set.
    pub bits_set: u64,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// The bytes that the shard takes in the file: all of its own, or none if it is empty.
    pub stored_bytes: u64,
    pub state: ShardState,
    /// The checksum of the stored bytes.
    pub checksum: u64,
}

impl Entry {
    const BYTES: usize = 40;

    fn encode(&self) -> [u8; Self::BYTES] {
        let ShardState {
            version,
            keys_added,
            bits_set,
        } = self.state;
        let fields = [
            self.stored_bytes,
            version,
            keys_added,
            bits_set,
            self.checksum,
        ];
        let mut bytes = [0; Self::BYTES];
        for (to, field) in bytes.as_chunks_mut().0.iter_mut().zip(fields) {
            *to = field.to_le_bytes();
        }
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let mut fields = [0; Self::BYTES / 8];
        for (field, from) in fields.iter_mut().zip(bytes.as_chunks().0) {
            *field = u64::from_le_bytes(*from);
        }
        let [stored_bytes, version, keys_added, bits_set, checksum] = fields;
        Self {
            stored_bytes,
            state: ShardState {
                version,
                keys_added,
                bits_set,
            },
            checksum,
        }
    }
}

/// The length of an encoded table of `shard_count` shards, its checksum included.
pub(super) fn encoded_bytes(shard_count: usize) -> u64 {
    shard_count as u64 * Entry::BYTES as u64 + 8
}

pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Decodes and verifies a table of shards that have `shard_bytes` bytes each.
pub(super) fn decode(
    bytes: &[u8],
    shard_bytes: u64,
    path: &Path,
) -> Result<Vec<Entry>, StoreError> {
    let damaged = |what: String, expected: String, found: String| StoreError::Damaged {
        path: path.into(),
        what,
        expected,
        found,
    };
    let (covered, stored) = bytes.split_last_chunk().unwrap_or((bytes, &[0; 8]));
    let (computed, stored) = (checksum(covered), u64::from_le_bytes(*stored));
    if computed != stored {
        let what = "checksum of the shard table".to_owned();
        return Err(damaged(
            what,
            Hex(computed).to_string(),
            Hex(stored).to_string(),
        ));
    }
    let entries: Vec<Entry> = covered.as_chunks().0.iter().map(Entry::decode).collect();
    for (index, entry) in entries.iter().enumerate() {
        if entry.stored_bytes != 0 && entry.stored_bytes != shard_bytes {
            let what = format!("stored bytes of shard {index}");
            let expected = format!("0 or {shard_bytes}");
            return Err(damaged(what, expected, entry.stored_bytes.to_string()));
        }
        let ShardState {
            version,
            keys_added,
            bits_set,
        } = entry.state;
        if (entry.stored_bytes == 0) != (bits_set == 0) || keys_added > bits_set {
            let what = format!("counts of shard {index}");
            let expected = "as many set bits as keys, and bytes where there are any".to_owned();
            let found = format!(
                "{keys_added} keys, {bits_set} bits, {} bytes",
                entry.stored_bytes
            );
            return Err(damaged(what, expected, found));
        }
        if version > MAX_VERSION {
            let what = format!("version of shard {index}");
            return Err(damaged(
                what,
                format!("at most {MAX_VERSION}"),
                version.to_string(),
            ));
        }
        let most = entry.stored_bytes * 8;
        if entry.state.bits_set > most {
            let what = format!("set bits of shard {index}");
            return Err(damaged(
                what,
                format!("at most {most}"),
                entry.state.bits_set.to_string(),
            ));
        }
    }
    Ok(entries)
}
