//! The table of a snapshot: which shards it holds, and how to know their bytes.

use std::path::Path;

use bytemuck::{Pod, Zeroable};

use super::{checksum, fields::Hex, pages::Pages};
use crate::{
    filter::division::Division,
    store::{MAX_NUMBER, StoreError},
};

/// What is known of a shard beside its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardState {
    /// The greatest version of the calls that changed the shard.
    pub version: u64,
    /// The number of new keys that were added to the shard.
    pub keys_added: u64,
    /// The number of bits that are set.
    pub bits_set: u64,
    /// The epoch at which it was cleared of what was too old, in a filter whose keys age; else 0.
    pub cleared: u64,
}

/// What a snapshot says of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub shard: usize,
    pub state: ShardState,
    /// Those of its pages; none if no bit is set, for then it is not stored.
    pub checksums: Vec<u64>,
}

/// A row from format 2 on, before the checksums of its pages. All numbers are little-endian. In
/// a filter whose keys age, `cleared` stands between the two.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Encoded {
    shard: u64,
    version: u64,
    keys_added: u64,
    bits_set: u64,
}

/// A row of format 1, which has one for each shard of the filter.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Encoded1 {
    stored_bytes: u64,
    version: u64,
    keys_added: u64,
    bits_set: u64,
    checksum: u64,
}

/// The length of the table of format 1, its checksum included.
pub(super) fn format1_bytes(shard_count: usize) -> u64 {
    shard_count as u64 * size_of::<Encoded1>() as u64 + 8
}

/// Encodes a table, of a filter whose keys age or not.
pub(super) fn encode(rows: &[Row], ages: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Row {
        shard,
        state,
        checksums,
    } in rows
    {
        let fields = [
            *shard as u64,
            state.version,
            state.keys_added,
            state.bits_set,
        ];
        let cleared = ages.then_some(&state.cleared);
        for field in fields.iter().chain(cleared).chain(checksums) {
            bytes.extend(field.to_le_bytes());
        }
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// A table, of which no more is known than its bytes.
pub(super) struct Table<'a> {
    pub bytes: &'a [u8],
    /// The shards of the filter.
    pub division: &'a Division,
    /// Whether the filter's keys age.
    pub ages: bool,
    pub pages: Pages,
    pub path: &'a Path,
}

impl Table<'_> {
    /// Decodes and verifies a table, from format 2 on.
    pub fn decode(&self) -> Result<Vec<Row>, StoreError> {
        let mut left = self.covered()?;
        let mut rows: Vec<Row> = Vec::new();
        while let Some((encoded, rest)) = left.split_at_checked(size_of::<Encoded>()) {
            let encoded: Encoded = bytemuck::pod_read_unaligned(encoded);
            let (cleared, rest) = match self.ages {
                true => match rest.split_first_chunk() {
                    Some((cleared, rest)) => (u64::from_le_bytes(*cleared), rest),
                    None => break,
                },
                false => (0, rest),
            };
            let state = ShardState {
                version: u64::from_le(encoded.version),
                keys_added: u64::from_le(encoded.keys_added),
                bits_set: u64::from_le(encoded.bits_set),
                cleared,
            };
            let shard = u64::from_le(encoded.shard);
            let next = rows.last().map_or(0, |row| row.shard + 1);
            if !(next as u64..self.division.shard_count() as u64).contains(&shard) {
                let expected = format!(
                    "{next} to {}",
                    self.division.shard_count().saturating_sub(1)
                );
                return Err(self.damaged("shard number", expected, shard.to_string()));
            }
            let shard = shard as usize;
            self.check(shard, state)?;
            let pages = match state.bits_set {
                0 => 0,
                _ => self
                    .pages
                    .count(self.division.shape(shard).shard_bytes() as usize),
            };
            let Some((checksums, rest)) = rest.split_at_checked(8 * pages) else {
                break;
            };
            let checksums = checksums.as_chunks().0.iter().copied();
            rows.push(Row {
                shard,
                state,
                checksums: checksums.map(u64::from_le_bytes).collect(),
            });
            left = rest;
        }
        if left.is_empty() {
            return Ok(rows);
        }
        let found = format!("{} bytes more", left.len());
        Err(self.damaged("shard table", "whole rows".to_owned(), found))
    }

    /// Decodes and verifies a table of format 1.
    pub fn decode_format1(&self) -> Result<Vec<Row>, StoreError> {
        let rows = self.covered()?.as_chunks::<40>().0.iter();
        let mut stored = Vec::new();
        for (shard, row) in rows.enumerate() {
            let row: Encoded1 = bytemuck::pod_read_unaligned(row);
            let state = ShardState {
                version: u64::from_le(row.version),
                keys_added: u64::from_le(row.keys_added),
                bits_set: u64::from_le(row.bits_set),
                cleared: 0,
            };
            let expected = match state.bits_set {
                0 => 0,
                _ => self.division.shape(shard).shard_bytes(),
            };
            let stored_bytes = u64::from_le(row.stored_bytes);
            if stored_bytes != expected {
                let what = format!("stored bytes of shard {shard}");
                return Err(self.damaged(&what, expected.to_string(), stored_bytes.to_string()));
            }
            self.check(shard, state)?;
            if state.bits_set > 0 {
                stored.push(Row {
                    shard,
                    state,
                    checksums: vec![u64::from_le(row.checksum)],
                });
            }
        }
        Ok(stored)
    }

    /// The rows, if the checksum behind them is theirs.
    fn covered(&self) -> Result<&[u8], StoreError> {
        let (covered, stored) = self
            .bytes
            .split_last_chunk()
            .unwrap_or((self.bytes, &[0; 8]));
        let (computed, stored) = (checksum(covered), u64::from_le_bytes(*stored));
        if computed == stored {
            return Ok(covered);
        }
        let (computed, stored) = (Hex(computed).to_string(), Hex(stored).to_string());
        Err(self.damaged("checksum of the shard table", computed, stored))
    }

    fn check(&self, shard: usize, state: ShardState) -> Result<(), StoreError> {
        let ShardState {
            version,
            keys_added,
            bits_set,
            cleared,
        } = state;
        let most = self.division.shape(shard).shard_bits();
        // A new key has set a bit at least, which may have been forgotten with it.
        if (keys_added > bits_set && !self.ages) || bits_set > most {
            let what = format!("counts of shard {shard}");
            let expected = format!("at most {most} set bits, and no more keys than those");
            let found = format!("{bits_set} bits, {keys_added} keys");
            return Err(self.damaged(&what, expected, found));
        }
        for (field, value) in [("version", version), ("epoch", cleared)] {
            if value > MAX_NUMBER {
                let what = format!("{field} of shard {shard}");
                let expected = format!("at most {MAX_NUMBER}");
                return Err(self.damaged(&what, expected, value.to_string()));
            }
        }
        Ok(())
    }

    fn damaged(&self, what: &str, expected: String, found: String) -> StoreError {
        StoreError::Damaged {
            path: self.path.to_owned(),
            what: what.to_owned(),
            expected,
            found,
        }
    }
}
