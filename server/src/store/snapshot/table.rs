//! The table of a snapshot: the shards that it holds, and the data to verify them.

use std::path::Path;

use bytemuck::{Pod, Zeroable};

use super::{
    checksum,
    fields::Hex,
    pages::{Blocks, Page, Pages},
};
use crate::{
    filter::shard_map::ShardMap,
    store::{MAX_NUMBER, StoreError},
};

/// The state of a shard, apart from its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardState {
    /// The greatest version of the calls that changed the shard.
    pub version: u64,
    /// The number of new keys that were added to the shard.
    pub keys_added: u64,
    /// The number of bits that are set.
    pub bits_set: u64,
    /// The epoch at which the shard was last cleared of old keys, in a filter whose keys age; else
    /// 0.
    pub cleared: u64,
}

/// The row of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub shard: usize,
    pub state: ShardState,
    /// The pages. There are none if no bit is set: the shard is then not stored.
    pub pages: Vec<Page>,
}

/// A row, before its pages. All numbers are little-endian. The bits of the stored blocks follow: 16
/// for each page, four pages in each number. Then follow the checksums of the pages that have
/// stored blocks.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Encoded {
    pub shard: u64,
    pub version: u64,
    pub keys_added: u64,
    pub bits_set: u64,
    pub cleared: u64,
}

/// The number of pages whose block bits are in one number of a row.
const PAGES_A_NUMBER: usize = 4;

/// Encodes a table of shards that are divided into `pages`.
pub(super) fn encode(rows: &[Row], shard_map: &ShardMap, pages: Pages) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in rows {
        let state = &row.state;
        let encoded = Encoded {
            shard: (row.shard as u64).to_le(),
            version: state.version.to_le(),
            keys_added: state.keys_added.to_le(),
            bits_set: state.bits_set.to_le(),
            cleared: state.cleared.to_le(),
        };
        bytes.extend_from_slice(bytemuck::bytes_of(&encoded));
        let lengths = pages.lengths(shard_map.shape(row.shard).shard_bytes() as usize);
        let blocks: Vec<u16> = row
            .pages
            .iter()
            .zip(lengths)
            .map(|(page, length)| page.blocks.bits(length))
            .collect();
        let blocks = blocks.chunks(PAGES_A_NUMBER).map(|blocks| {
            let bits = blocks.iter().rev();
            bits.fold(0, |number, &bits| number << 16 | u64::from(bits))
        });
        let stored = row.pages.iter().filter(|page| !page.blocks.is_empty());
        let checksums = stored.map(|page| page.checksum);
        bytes.extend(blocks.chain(checksums).flat_map(u64::to_le_bytes));
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// The pages of a row, and the bytes that follow it.
type PagesOfRow<'b> = (Vec<Page>, &'b [u8]);

/// A table that is not decoded yet.
pub(super) struct Table<'a> {
    pub bytes: &'a [u8],
    /// The shards of the filter.
    pub shard_map: &'a ShardMap,
    /// Whether the keys of the filter age.
    pub ages: bool,
    pub pages: Pages,
    pub path: &'a Path,
}

impl Table<'_> {
    /// Decodes and verifies the table.
    pub fn decode(&self) -> Result<Vec<Row>, StoreError> {
        let mut left = self.covered()?;
        let mut rows: Vec<Row> = Vec::new();
        while let Some((encoded, rest)) = left.split_at_checked(size_of::<Encoded>()) {
            let encoded: Encoded = bytemuck::pod_read_unaligned(encoded);
            let state = ShardState {
                version: u64::from_le(encoded.version),
                keys_added: u64::from_le(encoded.keys_added),
                bits_set: u64::from_le(encoded.bits_set),
                cleared: u64::from_le(encoded.cleared),
            };
            let shard = u64::from_le(encoded.shard);
            let next = rows.last().map_or(0, |row| row.shard + 1);
            if !(next as u64..self.shard_map.shard_count() as u64).contains(&shard) {
                let expected = format!(
                    "{next} to {}",
                    self.shard_map.shard_count().saturating_sub(1)
                );
                return Err(self.damaged("shard number", expected, shard.to_string()));
            }
            let shard = shard as usize;
            self.check(shard, state)?;
            let Some((pages, rest)) = self.pages_of(shard, state, rest)? else {
                break;
            };
            rows.push(Row {
                shard,
                state,
                pages,
            });
            left = rest;
        }
        if left.is_empty() {
            return Ok(rows);
        }
        let found = format!("{} bytes more", left.len());
        Err(self.damaged("shard table", "whole rows".to_owned(), found))
    }

    /// Decodes the pages of a row, and returns them with the bytes that follow; `None` if the row
    /// is cut off.
    fn pages_of<'b>(
        &self,
        shard: usize,
        state: ShardState,
        bytes: &'b [u8],
    ) -> Result<Option<PagesOfRow<'b>>, StoreError> {
        if state.bits_set == 0 {
            return Ok(Some((Vec::new(), bytes)));
        }
        let shard_bytes = self.shard_map.shape(shard).shard_bytes() as usize;
        let count = self.pages.count(shard_bytes);
        let numbers = count.div_ceil(PAGES_A_NUMBER);
        let Some((bits, bytes)) = bytes.split_at_checked(8 * numbers) else {
            return Ok(None);
        };
        let mut bits = bits
            .as_chunks::<2>()
            .0
            .iter()
            .map(|bits| u16::from_le_bytes(*bits));
        let mut pages = Vec::with_capacity(count);
        for length in self.pages.lengths(shard_bytes) {
            let bits = bits.next().expect("a number has the blocks of four pages");
            let known = Blocks::bits_of_all(length);
            if bits & !known != 0 {
                let what = format!("blocks of page {} of shard {shard}", pages.len());
                return Err(self.damaged(
                    &what,
                    format!("some of {known:#x}"),
                    format!("{bits:#x}"),
                ));
            }
            pages.push(Page {
                blocks: Blocks::from_bits(length, bits),
                checksum: 0,
            });
        }
        let left_over = bits.next().is_some_and(|bits| bits != 0);
        let stored = pages.iter_mut().filter(|page| !page.blocks.is_empty());
        let mut bytes = bytes;
        for page in stored {
            let Some((checksum, rest)) = bytes.split_first_chunk() else {
                return Ok(None);
            };
            page.checksum = u64::from_le_bytes(*checksum);
            bytes = rest;
        }
        if left_over {
            let what = format!("blocks of shard {shard}");
            return Err(self.damaged(&what, format!("{count} pages"), "more".to_owned()));
        }
        Ok(Some((pages, bytes)))
    }

    /// Returns the rows, if the checksum after them is right.
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
        let most = self.shard_map.shape(shard).shard_bits();
        // A new key has set at least one bit. In a filter whose keys age, that bit may have been
        // cleared since.
        if (keys_added > bits_set && !self.ages) || bits_set > most {
            let what = format!("counts of shard {shard}");
            let expected = format!("at most {most} set bits, and no more keys than those");
            let found = format!("{bits_set} bits, {keys_added} keys");
            return Err(self.damaged(&what, expected, found));
        }
        let most_cleared = if self.ages { MAX_NUMBER } else { 0 };
        for (field, value, most) in [
            ("version", version, MAX_NUMBER),
            ("epoch", cleared, most_cleared),
        ] {
            if value > most {
                let what = format!("{field} of shard {shard}");
                let expected = format!("at most {most}");
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
