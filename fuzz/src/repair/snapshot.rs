//! Repairs the checksums of snapshots from the inside to the outside: pages, table, header.

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Repairs, long, put, seal};

const HEADER_BYTES: usize = 384;
const PAGE_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 4 << 10;
const MAX_SHARD_BYTES: usize = 4 << 20;

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
            rows(repairs, bytes, &extension, &table);
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

/// Returns whether the header has the fields of format 3.
fn has_kind(bytes: &[u8]) -> bool {
    [3_u32, 4, 5, 6, 7, 8, 9]
        .map(u32::to_le_bytes)
        .contains(&word(bytes, 8))
}

/// Returns four bytes of a header.
fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.copied().unwrap_or_default()
}

/// The kind of cell that a filter has for each bit.
#[derive(Clone, Copy, PartialEq)]
enum Cells {
    Bits,
    Counters,
    Stamps,
}

impl Cells {
    fn of(bytes: &[u8]) -> Self {
        match u32::from_le_bytes(word(bytes, 296)) {
            1 if has_kind(bytes) => Self::Counters,
            2 if has_kind(bytes) => Self::Stamps,
            _ => Self::Bits,
        }
    }

    /// Returns the number of bits that are set.
    fn set(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Bits => ones(bytes),
            Self::Counters | Self::Stamps => bytes
                .iter()
                .map(|byte| u64::from(byte & 15 > 0) + u64::from(byte >> 4 > 0))
                .sum(),
        }
    }
}

/// Returns the range of the extension, according to the header and the length of the file. Empty if
/// there is no extension.
fn extension(bytes: &[u8]) -> Range<usize> {
    let length = match has_kind(bytes) {
        true => long(bytes, 360).unwrap_or_default(),
        false => 0,
    };
    let end = usize::try_from(length).ok();
    let end = end.and_then(|length| length.checked_add(HEADER_BYTES));
    let end = end.filter(|end| *end <= bytes.len());
    HEADER_BYTES..end.unwrap_or(HEADER_BYTES)
}

/// Returns the number of shards of each layer, and the bits of each of these shards. Empty for a
/// filter without layers.
fn layers(bytes: &[u8], extension: &Range<usize>) -> Vec<(u64, u64)> {
    if !has_kind(bytes) || word(bytes, 296) != 3_u32.to_le_bytes() {
        return Vec::new();
    }
    let extension = bytes.get(extension.clone()).unwrap_or_default();
    let partitions = long(extension, 0).unwrap_or_default();
    let specs = extension.get(16..).unwrap_or_default().as_chunks::<40>().0;
    let count = long(extension, 8).unwrap_or_default().min(32) as usize;
    let layer = |spec: &[u8; 40]| {
        let [shards, bits] = [0, 8].map(|at| long(spec, at).unwrap_or_default());
        (shards.saturating_mul(partitions), bits)
    };
    specs.iter().take(count).map(layer).collect()
}

/// Returns the bits of a shard in its layer.
fn layer_bits(layers: &[(u64, u64)], mut shard: u64) -> Option<u64> {
    for &(shards, bits) in layers {
        match shard.checked_sub(shards) {
            Some(left) => shard = left,
            None => return Some(bits),
        }
    }
    None
}

/// Returns the range of the table, according to the header and the length of the file.
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

/// Makes the rows of the table at the end fit the shards before it, as far as these exist.
fn rows(repairs: Repairs, bytes: &mut [u8], extension: &Range<usize>, table: &Range<usize>) {
    let (shards, rows) = bytes.split_at_mut(table.start);
    let fields = [272, 280, 136].map(|at| long(shards, at).unwrap_or_default());
    let [filter, number, shard_bits] = fields;
    let cells = Cells::of(shards);
    let layers = layers(shards, extension);
    let shard_bytes = |shard: u64| match cells {
        Cells::Bits => layer_bits(&layers, shard).unwrap_or(shard_bits) as usize / 8,
        Cells::Counters | Cells::Stamps => shard_bits as usize / 2,
    };
    let row_bytes = match cells {
        Cells::Bits | Cells::Counters => 32,
        // The slice in which the shard was cleared.
        Cells::Stamps => 40,
    };
    let has_blocks = word(shards, 8) == 9_u32.to_le_bytes();
    let mut left = shards.get(extension.end..).unwrap_or_default();
    let mut row = 0;
    while let (Some(shard), Some(bits)) = (long(rows, row), long(rows, row + 24)) {
        let mut end = row + row_bytes;
        if bits > 0 {
            let length = shard_bytes(shard);
            if length > MAX_SHARD_BYTES {
                return;
            }
            let pages = length.div_ceil(PAGE_BYTES);
            let mut blocks = vec![u16::MAX; pages];
            if has_blocks {
                for blocks in blocks.chunks_mut(4) {
                    let Some(number) = long(rows, end) else {
                        return;
                    };
                    for (blocks, bits) in blocks.iter_mut().zip(number.to_le_bytes().as_chunks().0)
                    {
                        *blocks = u16::from_le_bytes(*bits);
                    }
                    end += 8;
                }
            }
            let mut words = vec![0; length];
            for (page, &blocks) in words.chunks_mut(PAGE_BYTES).zip(&blocks) {
                for (index, block) in page.chunks_mut(BLOCK_BYTES).enumerate() {
                    if blocks >> index & 1 == 0 {
                        continue;
                    }
                    let Some((stored, rest)) = left.split_at_checked(block.len()) else {
                        return;
                    };
                    block.copy_from_slice(stored);
                    left = rest;
                }
            }
            if repairs.contents {
                put(rows, row + 24, cells.set(&words));
            }
            for ((page, bytes), blocks) in (0..).zip(words.chunks(PAGE_BYTES)).zip(blocks) {
                if blocks == 0 {
                    continue;
                }
                if repairs.checksums {
                    let place = [filter, number, shard, page].map(u64::to_le_bytes);
                    let checksum = xxh3_64_with_seed(bytes, xxh3_64(place.as_flattened()));
                    put(rows, end, checksum);
                }
                end += 8;
            }
        }
        // The checksum of the rows follows them.
        if end + 8 >= rows.len() {
            return;
        }
        row = end;
    }
}

/// Makes the rows of format 1 fit the shards that follow them.
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

/// Returns the number of bits that are set.
fn ones(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}
