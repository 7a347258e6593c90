//! The header of a snapshot: all data of a filter except its bits.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use bytemuck::{Pod, Zeroable};

use super::{
    checksum, extension,
    fields::{Checks, Hex, padded, text},
};
use crate::{
    filter::{
        hash::{HashFunction, Secret},
        limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
        scaling::{GROWTHS, OnFull, Scaling},
        shard_map::ShardMap,
        spec::{Aging, FilterSpec, Kind, Layout},
    },
    store::{FilterId, FilterName, MAX_NUMBER, StoreError, format},
};

const MAGIC: [u8; 8] = *b"SEENSNAP";
/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;
const REFRESH: u32 = 1;
/// The value for no memory limit, in a filter that can grow without end.
const NO_BOUND: u64 = u64::MAX;

/// The data of a snapshot about its filter.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotHeader {
    /// The id of the filter.
    pub filter: FilterId,
    /// The number of the file.
    pub number: u64,
    /// The filter's name.
    pub name: FilterName,
    /// The spec of the filter.
    pub spec: FilterSpec,
    /// The secret of the filter's hash.
    pub secret: Secret,
    /// The version up to which the snapshot holds every change.
    pub version: u64,
    /// The time when the filter was created.
    pub create_time: SystemTime,
    /// The time when this snapshot was begun.
    pub store_time: SystemTime,
}

/// The bytes of a header. `docs/format.md` describes the fields. All numbers are little-endian.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Encoded {
    magic: [u8; 8],
    pub format: [u8; 4],
    header_bytes: [u8; 4],
    pub file_bytes: [u8; 8],
    pub extension_bytes: [u8; 8],
    pub table_bytes: [u8; 8],
    pub filter: [u8; 8],
    pub number: [u8; 8],
    pub version: [u8; 8],
    create_time: [u8; 8],
    store_time: [u8; 8],
    pub name: [u8; FilterName::MAX_BYTES],
    pub capacity: [u8; 8],
    pub false_positive_rate: [u8; 8],
    pub bit_count: [u8; 8],
    pub hash_count: [u8; 4],
    pub layout: [u8; 4],
    pub hash_function: [u8; 32],
    secret: [u8; 16],
    pub shard_count: [u8; 8],
    pub shard_bits: [u8; 8],
    pub kind: EncodedKind,
    zeros: [u8; 48],
    pub checksum: [u8; 8],
}

/// The bytes of a kind of filter: a tag, and the numbers that go with it. The others are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct EncodedKind {
    pub tag: [u8; 4],
    pub flags: [u8; 4],
    pub amount: [u8; 8],
    pub count: [u8; 4],
    zeros: [u8; 4],
}

impl EncodedKind {
    fn new(tag: u32, flags: u32, amount: u64, count: u32) -> Self {
        Self {
            tag: tag.to_le_bytes(),
            flags: flags.to_le_bytes(),
            amount: amount.to_le_bytes(),
            count: count.to_le_bytes(),
            zeros: [0; 4],
        }
    }

    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Plain => Self::new(0, 0, 0, 0),
            Kind::Counting => Self::new(1, 0, 0, 0),
            Kind::Aging(aging) => {
                let flags = if aging.refresh { REFRESH } else { 0 };
                // A spec has no more than a century.
                Self::new(2, flags, aging.max_age.as_nanos() as u64, aging.slices)
            }
            Kind::Scaling(OnFull::Scale(scaling)) => {
                let bytes = scaling.max_memory_bytes.unwrap_or(NO_BOUND);
                Self::new(3, 0, bytes, scaling.growth)
            }
            Kind::Scaling(OnFull::Reject) => Self::new(4, 0, 0, 0),
            Kind::Scaling(OnFull::Degrade) => Self::new(5, 0, 0, 0),
        }
    }

    fn decode(self, checks: &Checks<'_>) -> Result<Kind, StoreError> {
        let tag = u32::from_le_bytes(self.tag);
        let amount = u64::from_le_bytes(self.amount);
        let count = u32::from_le_bytes(self.count);
        let kind = match tag {
            0 => Kind::Plain,
            1 => Kind::Counting,
            2 => Kind::Aging(Aging {
                max_age: Duration::from_nanos(amount),
                slices: count,
                refresh: u32::from_le_bytes(self.flags) == REFRESH,
            }),
            3 => Kind::Scaling(OnFull::Scale(Scaling {
                growth: count,
                max_memory_bytes: Some(amount).filter(|&bytes| bytes != NO_BOUND),
            })),
            4 => Kind::Scaling(OnFull::Reject),
            5 => Kind::Scaling(OnFull::Degrade),
            _ => return Err(checks.damaged("kind", "0 to 5", &tag.to_string())),
        };
        let is_of_a_spec = match kind {
            Kind::Aging(aging) => aging.check().is_ok(),
            Kind::Scaling(OnFull::Scale(scaling)) => GROWTHS.contains(&scaling.growth),
            _ => true,
        };
        // Each kind has one encoding, so the fields that it does not have are 0.
        let is_known = is_of_a_spec && Self::of(kind) == self;
        checks.require(
            "numbers of the kind",
            is_known,
            "those of a spec",
            &format!("{kind:?}, encoded as {self:?}"),
        )?;
        Ok(kind)
    }
}

impl SnapshotHeader {
    /// The length of an encoded header.
    pub(super) const BYTES: usize = size_of::<Encoded>();

    /// Encodes the header of a snapshot file. `file_bytes` is the length of the file with its table
    /// and its extension.
    pub(super) fn encode(
        &self,
        file_bytes: u64,
        table_bytes: u64,
        extension_bytes: u64,
    ) -> [u8; Self::BYTES] {
        let shard_map = ShardMap::of(&self.spec);
        let spec = &self.spec;
        let mut encoded = Encoded {
            magic: MAGIC,
            format: FORMAT.to_le_bytes(),
            header_bytes: (Self::BYTES as u32).to_le_bytes(),
            file_bytes: file_bytes.to_le_bytes(),
            extension_bytes: extension_bytes.to_le_bytes(),
            table_bytes: table_bytes.to_le_bytes(),
            filter: self.filter.0.to_le_bytes(),
            number: self.number.to_le_bytes(),
            version: self.version.to_le_bytes(),
            create_time: nanoseconds(self.create_time).to_le_bytes(),
            store_time: nanoseconds(self.store_time).to_le_bytes(),
            name: padded(self.name.as_str()),
            capacity: spec.capacity.to_le_bytes(),
            false_positive_rate: spec.false_positive_rate.to_le_bytes(),
            bit_count: spec.bit_count.to_le_bytes(),
            hash_count: spec.hash_count.to_le_bytes(),
            layout: layout_code(spec.layout).to_le_bytes(),
            hash_function: padded(spec.hash_function.name()),
            secret: *self.secret.as_bytes(),
            shard_count: (shard_map.shard_count() as u64).to_le_bytes(),
            shard_bits: shard_map.shape(0).shard_bits().to_le_bytes(),
            kind: EncodedKind::of(spec.kind),
            zeros: [0; 48],
            checksum: [0; 8],
        };
        encoded.checksum = checksum(covered(bytemuck::bytes_of(&encoded))).to_le_bytes();
        bytemuck::cast(encoded)
    }

    /// Decodes and verifies a header.
    pub(super) fn decode(bytes: &[u8; Self::BYTES], path: &Path) -> Result<Decoded, StoreError> {
        let encoded: Encoded = bytemuck::cast(*bytes);
        let checks = Checks { path };
        let magic = encoded.magic;
        checks.expect("magic", &MAGIC.escape_ascii(), &magic.escape_ascii())?;
        format::check(path, 1..=FORMAT, u32::from_le_bytes(encoded.format))?;
        let header_bytes = u32::from_le_bytes(encoded.header_bytes);
        checks.expect("header length", &(Self::BYTES as u32), &header_bytes)?;
        let (computed, stored) = (
            checksum(covered(bytes)),
            u64::from_le_bytes(encoded.checksum),
        );
        checks.expect("checksum of the header", &Hex(computed), &Hex(stored))?;
        // The checksum is right, so these bytes were written. The rest checks that this program
        // understands them.
        let version = u64::from_le_bytes(encoded.version);
        checks.at_most("version", MAX_NUMBER, version)?;
        let name = text(&encoded.name);
        let name = name
            .parse()
            .map_err(|_| checks.damaged("filter name", "a filter name", &format!("{name:?}")))?;
        let header = Self {
            filter: FilterId(u64::from_le_bytes(encoded.filter)),
            number: u64::from_le_bytes(encoded.number),
            name,
            spec: encoded.spec(&checks)?,
            secret: Secret::new(encoded.secret),
            version,
            create_time: time(u64::from_le_bytes(encoded.create_time)),
            store_time: time(u64::from_le_bytes(encoded.store_time)),
        };
        let extension_bytes = u64::from_le_bytes(encoded.extension_bytes);
        extension::check_length(extension_bytes, path)?;
        Ok(Decoded {
            header,
            file_bytes: u64::from_le_bytes(encoded.file_bytes),
            table_bytes: u64::from_le_bytes(encoded.table_bytes),
            extension_bytes,
            shard_count: u64::from_le_bytes(encoded.shard_count),
            shard_bits: u64::from_le_bytes(encoded.shard_bits),
        })
    }
}

/// Returns the bytes of a header that its checksum covers: all but the checksum.
fn covered(header: &[u8]) -> &[u8] {
    let split = header.split_last_chunk::<8>();
    split.map_or(header, |(covered, _)| covered)
}

/// A decoded header, and its data about the file.
pub(super) struct Decoded {
    pub header: SnapshotHeader,
    /// The length that the file must have.
    pub file_bytes: u64,
    /// The length of the table at its end.
    pub table_bytes: u64,
    /// The length of the extension after the header; 0 if there is none. Until the extension has
    /// been read, the header has no key profile and no layers.
    pub extension_bytes: u64,
    shard_count: u64,
    shard_bits: u64,
}

impl Decoded {
    /// Verifies that the shards agree with the spec, which must be complete.
    pub fn check_shards(&self, path: &Path) -> Result<(), StoreError> {
        let checks = Checks { path };
        let spec = &self.header.spec;
        if matches!(spec.kind, Kind::Scaling(_)) && spec.layers.is_none() {
            return Err(checks.damaged("layers", "those of a filter that grows", "none"));
        }
        let shard_map = ShardMap::of(spec);
        let first = shard_map.shape(0);
        let is_own = Layout::OWN.contains(&spec.layout);
        let bit_count = match is_own {
            true => first.bit_count(),
            false => bits_of_parts(spec, &checks)?,
        };
        let holds = match (&spec.layers, is_own) {
            (Some(_), _) => true,
            (None, true) => first.has_good_shards(),
            (None, false) => first.is_in_fewest_shards(),
        };
        checks.require(
            "shard count",
            holds,
            "one, or shards of 16 KiB to 4 MiB",
            &self.shard_count,
        )?;
        for (what, expected, found) in [
            ("bit_count", bit_count, spec.bit_count),
            (
                "hash_count",
                first.hash_count().into(),
                spec.hash_count.into(),
            ),
            (
                "shard count",
                shard_map.shard_count() as u64,
                self.shard_count,
            ),
            ("bits per shard", first.shard_bits(), self.shard_bits),
        ] {
            checks.expect(what, &expected, &found)?;
        }
        Ok(())
    }
}

impl Encoded {
    /// Returns the spec, without the parts that the extension holds.
    fn spec(&self, checks: &Checks<'_>) -> Result<FilterSpec, StoreError> {
        let kind = self.kind.decode(checks)?;
        let capacity = u64::from_le_bytes(self.capacity);
        let false_positive_rate = f64::from_le_bytes(self.false_positive_rate);
        let bit_count = u64::from_le_bytes(self.bit_count);
        let hash_count = u32::from_le_bytes(self.hash_count);
        checks.require("capacity", capacity > 0, "at least 1", &capacity)?;
        let is_rate = false_positive_rate > 0.0 && false_positive_rate < 1.0;
        checks.require(
            "false_positive_rate",
            is_rate,
            "above 0 and below 1",
            &false_positive_rate,
        )?;
        let fits = (1..=MAX_BIT_COUNT).contains(&bit_count);
        checks.require(
            "bit_count",
            fits,
            &format!("1 to {MAX_BIT_COUNT}"),
            &bit_count,
        )?;
        let fits = (1..=MAX_HASH_COUNT).contains(&hash_count);
        checks.require(
            "hash_count",
            fits,
            &format!("1 to {MAX_HASH_COUNT}"),
            &hash_count,
        )?;
        let layout = u32::from_le_bytes(self.layout);
        let layout = Layout::ALL
            .into_iter()
            .find(|&known| layout_code(known) == layout)
            .ok_or_else(|| checks.damaged("layout", "1 to 5", &layout.to_string()))?;
        let hash_function = text(&self.hash_function)
            .parse::<HashFunction>()
            .map_err(|error| checks.damaged("hash function", "a known one", &error))?;
        checks.require(
            "hash function",
            layout.takes(hash_function),
            &format!("one of the layout {layout}"),
            &hash_function,
        )?;
        if kind != Kind::Plain && layout != Layout::Blocked {
            return Err(checks.damaged(
                "layout",
                &format!("blocked, of a filter of the kind {}", kind.name()),
                layout.name(),
            ));
        }
        let mut spec = FilterSpec {
            capacity,
            false_positive_rate,
            bit_count,
            hash_count,
            layout,
            hash_function,
            kind,
            key_profile: None,
            shard_count: 1,
            layers: None,
            chain: None,
        };
        // The number of shards of a filter in layers follows from the layers.
        if !matches!(kind, Kind::Scaling(_)) {
            let shard_count = u64::from_le_bytes(self.shard_count);
            let are_some = (1..=bit_count).contains(&shard_count);
            checks.require(
                "shard count",
                are_some,
                "at least 1, and no more than bits",
                &shard_count,
            )?;
            spec.shard_count = shard_count;
        }
        Ok(spec)
    }
}

/// Returns the number of bits in all parts of a filter of another program.
fn bits_of_parts(spec: &FilterSpec, checks: &Checks<'_>) -> Result<u64, StoreError> {
    let parts = spec.foreign_bits().ok_or_else(|| {
        let found = format!("{} bits, {} hashes", spec.bit_count, spec.hash_count);
        checks.damaged(
            "layout",
            &format!("a possible filter of {}", spec.layout),
            &found,
        )
    })?;
    checks.expect("hash_count", &parts.last().hash_count(), &spec.hash_count)?;
    Ok(parts.last().words().end * 64)
}

fn layout_code(layout: Layout) -> u32 {
    match layout {
        Layout::Blocked => 1,
        Layout::Classic => 2,
        Layout::Guava => 3,
        Layout::GuavaMitz32 => 4,
        Layout::RedisBloom => 5,
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn time(nanoseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// The offsets of fields, for tests that change them.
#[cfg(test)]
pub(super) mod at {
    use std::mem::offset_of;

    use super::{Encoded, EncodedKind};

    pub const FORMAT: usize = offset_of!(Encoded, format);
    pub const FILE_BYTES: usize = offset_of!(Encoded, file_bytes);
    pub const EXTENSION_BYTES: usize = offset_of!(Encoded, extension_bytes);
    pub const TABLE_BYTES: usize = offset_of!(Encoded, table_bytes);
    pub const FILTER: usize = offset_of!(Encoded, filter);
    pub const NUMBER: usize = offset_of!(Encoded, number);
    pub const VERSION: usize = offset_of!(Encoded, version);
    pub const CREATE_TIME: usize = offset_of!(Encoded, create_time);
    pub const NAME: usize = offset_of!(Encoded, name);
    pub const CAPACITY: usize = offset_of!(Encoded, capacity);
    pub const RATE: usize = offset_of!(Encoded, false_positive_rate);
    pub const BIT_COUNT: usize = offset_of!(Encoded, bit_count);
    pub const HASH_COUNT: usize = offset_of!(Encoded, hash_count);
    pub const LAYOUT: usize = offset_of!(Encoded, layout);
    pub const HASH_FUNCTION: usize = offset_of!(Encoded, hash_function);
    pub const SHARD_COUNT: usize = offset_of!(Encoded, shard_count);
    pub const SHARD_BITS: usize = offset_of!(Encoded, shard_bits);
    pub const KIND_TAG: usize = offset_of!(Encoded, kind) + offset_of!(EncodedKind, tag);
    pub const KIND_FLAGS: usize = offset_of!(Encoded, kind) + offset_of!(EncodedKind, flags);
    pub const KIND_AMOUNT: usize = offset_of!(Encoded, kind) + offset_of!(EncodedKind, amount);
    pub const KIND_COUNT: usize = offset_of!(Encoded, kind) + offset_of!(EncodedKind, count);
    pub const ZEROS: usize = offset_of!(Encoded, zeros);
    pub const CHECKSUM: usize = offset_of!(Encoded, checksum);
}
