//! The checksums of snapshots, from the inside to the outside: pages, table, header.

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Repairs, long, put, seal};

const HEADER_BYTES: usize = 384;
const PAGE_BYTES: usize = 64 << 10;

/// Repairs a snapshot of any format.
pub fn repair(repairs: Repairs, bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    if repairs.lengths {
        put(bytes, 16, bytes.len() as u64);
    }
    let is_format1 = bytes[8..12] == 1_u32.to_le_bytes();
    let extension = extension(bytes);
    if let Some(table) = table(bytes, is_format1) {
        if is_format1 {
            format1_rows(repairs, bytes, &table);
        } else {
            rows(repairs, bytes, extension.end, &table);
        }
        if repairs.checksums {
            seal(&mut bytes[table]);
        }
    }
    if repairs.checksums {
        seal(&mut bytes[extension]);
        seal(&mut bytes[..HEADER_BYTES]);
    }
}

/// Where the extension is, as far as the header and the length of the file tell: nothing where
/// there is none.
fn extension(bytes: &[u8]) -> Range<usize> {
    let length = match bytes[8..12] == 3_u32.to_le_bytes() {
        true => long(bytes, 360).unwrap_or_default(),
        false => 0,
    };
    let end = usize::try_from(length).ok();
    let end = end.and_then(|length| length.checked_add(HEADER_BYTES));
    let end = end.filter(|end| *end <= bytes.len());
    HEADER_BYTES..end.unwrap_or(HEADER_BYTES)
}

/// Where the table is, as far as the header and the length of the file tell.
fn table(bytes: &[u8], is_format1: bool) -> Option<Range<usize>> {
    if is_format1 {
        let shards = usize::try_from(long(bytes, 128)?).ok()?;
        let end = shards.checked_mul(40)?.checked_add(HEADER_BYTES + 8)?;
        return (end <= bytes.len()).then_some(HEADER_BYTES..end);
    }
    let length = usize::try_from(long(bytes, 288)?).ok()?;
    let start = bytes.len().checked_sub(length)?;
    (start >= HEADER_BYTES && length >= 8).then_some(start..bytes.len())
}

/// Makes the rows of the table at the end fit the shards before them, as far as there are any.
fn rows(repairs: Repairs, bytes: &mut [u8], shards_at: usize, table: &Range<usize>) {
    let (shards, rows) = bytes.split_at_mut(table.start);
    let fields = [272, 280, 136].map(|at| long(shards, at).unwrap_or_default());
    let [filter, number, shard_bits] = fields;
    let shard_bytes = shard_bits as usize / 8;
    let mut left = shards.get(shards_at..).unwrap_or_default();
    let mut row = 0;
    while let (Some(shard), Some(bits)) = (long(rows, row), long(rows, row + 24)) {
        let mut end = row + 32;
        if bits > 0 {
            let Some((words, rest)) = left.split_at_checked(shard_bytes) else {
                return;
            };
            left = rest;
            if repairs.contents {
                put(rows, row + 24, ones(words));
            }
            for (page, bytes) in (0..).zip(words.chunks(PAGE_BYTES)) {
                if repairs.checksums {
                    let place = [filter, number, shard, page].map(u64::to_le_bytes);
                    let checksum = xxh3_64_with_seed(bytes, xxh3_64(place.as_flattened()));
                    put(rows, end, checksum);
                }
                end += 8;
            }
        }
        // Behind the rows there is their checksum.
        if end + 8 >= rows.len() {
            return;
        }
        row = end;
    }
}

/// Makes the rows of format 1 fit the shards behind them.
fn format1_rows(repairs: Repairs, bytes: &mut [u8], table: &Range<usize>) {
    let (rows, mut shards) = bytes.split_at_mut(table.end);
    let rows = &mut rows[HEADER_BYTES..table.end - 8];
    for row in rows.as_chunks_mut::<40>().0 {
        let stored = long(row, 0).unwrap_or_default() as usize;
        let Some((words, rest)) = std::mem::take(&mut shards).split_at_mut_checked(stored) else {
            return;
        };
        shards = rest;
        if stored > 0 && repairs.contents {
            put(row, 24, ones(words));
        }
        if stored > 0 && repairs.checksums {
            put(row, 32, xxh3_64(words));
        }
    }
}

/// How many bits are set.
fn ones(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}
