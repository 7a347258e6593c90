//! Repairs the checksums of snapshots from the inside to the outside: pages, table, header.

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Repairs, long, put, seal};

// The offsets of fields of the header.
const FILE_BYTES: usize = 16;
const EXTENSION_BYTES: usize = 24;
const TABLE_BYTES: usize = 32;
const FILTER: usize = 40;
const NUMBER: usize = 48;
const BODY: usize = 272;
const NUMBERS: usize = 280;

const HEADER_BYTES: usize = 384;
const ROW_BYTES: usize = 40;
const PAGE_BYTES: usize = 64 << 10;
const BLOCK_BYTES: usize = 4 << 10;
const MAX_SHARD_BYTES: usize = 4 << 20;

/// Repairs a snapshot.
pub fn repair(repairs: Repairs, bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    if repairs.lengths {
        put(bytes, FILE_BYTES, bytes.len() as u64);
    }
    let extension = extension(bytes);
    if let Some(table) = table(bytes) {
        rows(repairs, bytes, &extension, &table);
        if repairs.checksums {
            seal(&mut bytes[table]);
        }
    }
    if repairs.checksums {
        seal(&mut bytes[extension]);
        seal(&mut bytes[..HEADER_BYTES]);
    }
}

/// Returns the tag of the body.
fn body(bytes: &[u8]) -> u32 {
    let tag = bytes.get(BODY..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(tag.copied().unwrap_or_default())
}

/// Returns the bits of each shard of a filter without layers. Of one of another program these are
/// all its bits: no input is so large that they need two shards.
fn shard_bits(bytes: &[u8], extension: &Range<usize>) -> u64 {
    match body(bytes) {
        8 | 9 => long(bytes, NUMBERS).unwrap_or_default().saturating_mul(64),
        10 => {
            let extension = bytes.get(extension.clone()).unwrap_or_default();
            let layers = extension.get(8..).unwrap_or_default().as_chunks::<40>().0;
            let words = layers
                .iter()
                .map(|layer| long(layer, 0).unwrap_or_default());
            words.fold(0, u64::saturating_add).saturating_mul(64)
        }
        _ => long(bytes, NUMBERS + 8).unwrap_or_default(),
    }
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
        match body(bytes) {
            3 => Self::Counters,
            4 => Self::Stamps,
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
    let length = long(bytes, EXTENSION_BYTES).unwrap_or_default();
    let end = usize::try_from(length).ok();
    let end = end.and_then(|length| length.checked_add(HEADER_BYTES));
    let end = end.filter(|end| *end <= bytes.len());
    HEADER_BYTES..end.unwrap_or(HEADER_BYTES)
}

/// Returns the number of shards of each layer, and the bits of each of these shards. Empty for a
/// filter without layers.
fn layers(bytes: &[u8], extension: &Range<usize>) -> Vec<(u64, u64)> {
    if !(5..=7).contains(&body(bytes)) {
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
fn table(bytes: &[u8]) -> Option<Range<usize>> {
    let length = usize::try_from(long(bytes, TABLE_BYTES)?).ok()?;
    let start = bytes.len().checked_sub(length)?;
    (start >= HEADER_BYTES && length >= 8).then_some(start..bytes.len())
}

/// Makes the rows of the table at the end fit the shards before it, as far as these exist.
fn rows(repairs: Repairs, bytes: &mut [u8], extension: &Range<usize>, table: &Range<usize>) {
    let (shards, rows) = bytes.split_at_mut(table.start);
    let [filter, number] = [FILTER, NUMBER].map(|at| long(shards, at).unwrap_or_default());
    let shard_bits = shard_bits(shards, extension);
    let cells = Cells::of(shards);
    let layers = layers(shards, extension);
    let shard_bytes = |shard: u64| match cells {
        Cells::Bits => layer_bits(&layers, shard).unwrap_or(shard_bits) as usize / 8,
        Cells::Counters | Cells::Stamps => shard_bits as usize / 2,
    };
    let mut left = shards.get(extension.end..).unwrap_or_default();
    let mut row = 0;
    while let (Some(shard), Some(bits)) = (long(rows, row), long(rows, row + 24)) {
        let mut end = row + ROW_BYTES;
        if bits > 0 {
            let length = shard_bytes(shard);
            if length > MAX_SHARD_BYTES {
                return;
            }
            let pages = length.div_ceil(PAGE_BYTES);
            let mut blocks = vec![0; pages];
            for blocks in blocks.chunks_mut(4) {
                let Some(number) = long(rows, end) else {
                    return;
                };
                for (blocks, bits) in blocks.iter_mut().zip(number.to_le_bytes().as_chunks().0) {
                    *blocks = u16::from_le_bytes(*bits);
                }
                end += 8;
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

/// Returns the number of bits that are set.
fn ones(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}
