//! The header of a snapshot: all data of a filter except its bits.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use super::{
    checksum, extension,
    fields::{Hex, Reader, Writer, padded},
};
use crate::{
    filter::{
        cells::CellLines,
        division::Division,
        exchange::Parts,
        hash::{HashFunction, Secret},
        scaling::{GROWTHS, OnFull, Scaling},
        spec::{Aging, FilterSpec, Kind, KindName, Layout, MAX_BIT_COUNT, MAX_HASH_COUNT},
    },
    store::{FilterId, FilterName, MAX_NUMBER, StoreError},
};

const MAGIC: [u8; 8] = *b"SEENSNAP";
/// The newest format, of files without the blocks that are all zeros. Each file is written in the
/// oldest format that can hold its data, so that older servers can read it.
pub const FORMAT: u32 = 9;
/// The format of filters in more shards than their bits need.
const FORMAT_OF_SHARDS: u32 = 8;
/// The format of counters and stamps in two lines.
const FORMAT_OF_LINES: u32 = 7;
const FORMAT_OF_OTHER_PROGRAMS: u32 = 6;
const FORMAT_OF_LAYERS: u32 = 5;
const FORMAT_OF_AGING: u32 = 4;
/// The format of snapshots that have a kind or an extension.
const FORMAT_OF_KINDS: u32 = 3;
const FORMAT_OF_PLAIN: u32 = 2;
const HASH_NAME_BYTES: usize = 32;
/// The offset of the kind of filter, from format 3 on. After it is the way keys age, or the action
/// when the filter is full.
const KIND_AT: usize = 296;
const KIND_BYTES: usize = 4 + 8 + 4 + 4;
/// The value of the next field, from format 7 on: the counters or stamps of a key are in two lines.
const TWO_LINES: u32 = 2;
/// The unused bytes between that field and the length of the extension.
const SPARE_BYTES: usize = 40;
const REFRESH: u32 = 1;
/// The treatment of new keys when the filter is full.
const SCALE: u32 = 0;
const REJECT: u32 = 1;
const DEGRADE: u32 = 2;
/// The value for no memory limit, in a filter that can grow without end.
const NO_BOUND: u64 = u64::MAX;

/// The data of a snapshot about its filter.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotHeader {
    /// The id of the filter; 0 in format 1.
    pub filter: FilterId,
    /// The number of the file; 0 in format 1.
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

impl SnapshotHeader {
    /// The length of an encoded header.
    pub(super) const BYTES: usize = 384;

    /// Encodes the header of a snapshot file. `file_bytes` is the length of the file with its table
    /// and its extension. If `has_blocks`, blocks of zeros can be left out.
    pub(super) fn encode(
        &self,
        file_bytes: u64,
        table_bytes: u64,
        extension_bytes: u64,
        has_blocks: bool,
    ) -> [u8; Self::BYTES] {
        let lines = lines_code(&self.spec);
        let division = Division::of(&self.spec);
        let format = match (self.spec.kind, extension_bytes) {
            _ if has_blocks => FORMAT,
            _ if self.spec.layers.is_none() && !division.shape(0).is_in_fewest_shards() => {
                FORMAT_OF_SHARDS
            }
            _ if lines > 0 => FORMAT_OF_LINES,
            _ if !Layout::OWN.contains(&self.spec.layout) => FORMAT_OF_OTHER_PROGRAMS,
            (Kind::Plain, 0) => FORMAT_OF_PLAIN,
            (Kind::Plain | Kind::Counting, _) => FORMAT_OF_KINDS,
            (Kind::Aging(_), _) => FORMAT_OF_AGING,
            (Kind::Scaling(_), _) => FORMAT_OF_LAYERS,
        };
        let mut to = Writer::default();
        to.put(&MAGIC);
        to.put(&format.to_le_bytes());
        to.put(&(Self::BYTES as u32).to_le_bytes());
        to.put(&file_bytes.to_le_bytes());
        to.put(&self.version.to_le_bytes());
        to.put(&nanoseconds(self.create_time).to_le_bytes());
        to.put(&nanoseconds(self.store_time).to_le_bytes());
        to.put(&self.spec.capacity.to_le_bytes());
        to.put(&self.spec.false_positive_rate.to_le_bytes());
        to.put(&self.spec.bit_count.to_le_bytes());
        to.put(&self.spec.hash_count.to_le_bytes());
        to.put(&layout_code(self.spec.layout).to_le_bytes());
        to.put(&padded::<HASH_NAME_BYTES>(self.spec.hash_function.name()));
        to.put(self.secret.as_bytes());
        to.put(&(division.shard_count() as u64).to_le_bytes());
        to.put(&division.shape(0).shard_bits().to_le_bytes());
        to.put(&padded::<{ FilterName::MAX_BYTES }>(self.name.as_str()));
        to.put(&self.filter.0.to_le_bytes());
        to.put(&self.number.to_le_bytes());
        to.put(&table_bytes.to_le_bytes());
        to.put(&kind_code(self.spec.kind.name()).to_le_bytes());
        let (most, parts, code) = match self.spec.kind {
            Kind::Plain | Kind::Counting => (0, 0, 0),
            Kind::Aging(aging) => {
                let flags = if aging.refresh { REFRESH } else { 0 };
                // A spec has no more than a century.
                (aging.max_age.as_nanos() as u64, aging.slices, flags)
            }
            Kind::Scaling(OnFull::Scale(scaling)) => {
                let bytes = scaling.max_memory_bytes.unwrap_or(NO_BOUND);
                (bytes, scaling.growth, SCALE)
            }
            Kind::Scaling(OnFull::Reject) => (0, 0, REJECT),
            Kind::Scaling(OnFull::Degrade) => (0, 0, DEGRADE),
        };
        to.put(&most.to_le_bytes());
        to.put(&parts.to_le_bytes());
        to.put(&code.to_le_bytes());
        to.put(&lines.to_le_bytes());
        to.put(&[0; SPARE_BYTES]);
        to.put(&extension_bytes.to_le_bytes());
        to.finish()
    }

    /// Returns the kind of filter, from the fields at the end of the header.
    fn kind(bytes: &[u8; Self::BYTES], path: &Path) -> Result<Kind, StoreError> {
        let bytes = bytes.get(KIND_AT..).unwrap_or_default();
        let mut from = Reader { bytes, path };
        let code = u32::from_le_bytes(from.take());
        let name = KindName::ALL
            .into_iter()
            .find(|&kind| kind_code(kind) == code)
            .ok_or_else(|| from.damaged("kind", "0, 1, 2 or 3", &code.to_string()))?;
        let (most, parts) = (from.u64(), u32::from_le_bytes(from.take()));
        let code = u32::from_le_bytes(from.take());
        match name {
            KindName::Plain => Ok(Kind::Plain),
            KindName::Counting => Ok(Kind::Counting),
            KindName::Aging => {
                let aging = Aging {
                    max_age: Duration::from_nanos(most),
                    slices: parts,
                    refresh: code & REFRESH != 0,
                };
                let whole = aging.check().is_ok() && code & !REFRESH == 0;
                let found = format!("{aging:?}, flags {code}");
                from.require("ages", whole, "those of a spec", &found)?;
                Ok(Kind::Aging(aging))
            }
            KindName::Scaling => match (code, parts, most) {
                (SCALE, growth, bytes) if GROWTHS.contains(&growth) => {
                    Ok(Kind::Scaling(OnFull::Scale(Scaling {
                        growth,
                        max_memory_bytes: Some(bytes).filter(|&bytes| bytes != NO_BOUND),
                    })))
                }
                (REJECT, 0, 0) => Ok(Kind::Scaling(OnFull::Reject)),
                (DEGRADE, 0, 0) => Ok(Kind::Scaling(OnFull::Degrade)),
                found => Err(from.damaged("growth", "that of a spec", &format!("{found:?}"))),
            },
        }
    }

    /// Decodes and verifies a header.
    pub(super) fn decode(bytes: &[u8; Self::BYTES], path: &Path) -> Result<Decoded, StoreError> {
        let mut from = Reader { bytes, path };
        let magic: [u8; 8] = from.take();
        from.expect("magic", &MAGIC.escape_ascii(), &magic.escape_ascii())?;
        let format = u32::from_le_bytes(from.take());
        if format > FORMAT {
            return Err(StoreError::NewerFormat {
                path: path.into(),
                expected: FORMAT,
                found: format,
            });
        }
        from.require(
            "format version",
            format > 0,
            &format!("1 to {FORMAT}"),
            &format,
        )?;
        let header_bytes = u32::from_le_bytes(from.take());
        from.expect("header length", &(Self::BYTES as u32), &header_bytes)?;
        let (covered, stored) = bytes.split_at(Self::BYTES - 8);
        let stored = u64::from_le_bytes(stored.try_into().unwrap_or_default());
        from.expect(
            "checksum of the header",
            &Hex(checksum(covered)),
            &Hex(stored),
        )?;
        // The checksum is right, so these bytes were written. The rest checks that this program
        // understands them.
        let file_bytes = from.u64();
        let version = from.u64();
        let counts_on = version <= MAX_NUMBER;
        from.require(
            "version",
            counts_on,
            &format!("at most {MAX_NUMBER}"),
            &version,
        )?;
        let create_time = time(from.u64());
        let store_time = time(from.u64());
        let kind = match format {
            1 | FORMAT_OF_PLAIN => Kind::Plain,
            _ => Self::kind(bytes, path)?,
        };
        let (mut spec, secret) = from.spec(kind)?;
        let (shard_count, shard_bits) = (from.u64(), from.u64());
        if !matches!(kind, Kind::Scaling(_)) {
            let are_some = (1..=spec.bit_count).contains(&shard_count);
            from.require(
                "shard count",
                are_some,
                "at least 1, and no more than bits",
                &shard_count,
            )?;
            spec.shard_count = shard_count;
        }
        let name = from.text::<{ FilterName::MAX_BYTES }>();
        let name = name
            .parse()
            .map_err(|_| from.damaged("filter name", "a filter name", &format!("{name:?}")))?;
        let mut header = Self {
            filter: FilterId(from.u64()),
            number: from.u64(),
            name,
            spec,
            secret,
            version,
            create_time,
            store_time,
        };
        let table_bytes = from.u64();
        let _: [u8; KIND_BYTES] = from.take();
        header.spec.cell_lines = from.cell_lines(kind, format)?;
        let _: [u8; SPARE_BYTES] = from.take();
        let extension_bytes = match format {
            1 | FORMAT_OF_PLAIN => 0,
            _ => from.u64(),
        };
        extension::check_length(extension_bytes, path)?;
        Ok(Decoded {
            header,
            format,
            file_bytes,
            table_bytes,
            extension_bytes,
            shard_count,
            shard_bits,
        })
    }
}

/// A decoded header, and its data about the file.
pub(super) struct Decoded {
    pub header: SnapshotHeader,
    pub format: u32,
    /// The length that the file must have.
    pub file_bytes: u64,
    /// The length of the table at its end; 0 in format 1.
    pub table_bytes: u64,
    /// The length of the extension after the header; 0 if there is none. Until the extension has
    /// been read, the header has no key profile and no layers.
    pub extension_bytes: u64,
    shard_count: u64,
    shard_bits: u64,
}

impl Decoded {
    /// Returns whether the table says which blocks are stored.
    pub fn has_blocks(&self) -> bool {
        self.format >= FORMAT
    }

    /// Verifies that the shards agree with the spec, which must be complete.
    pub fn check_division(&self, path: &Path) -> Result<(), StoreError> {
        let from = Reader { bytes: &[], path };
        let spec = &self.header.spec;
        if matches!(spec.kind, Kind::Scaling(_)) && spec.layers.is_none() {
            return Err(from.damaged("layers", "those of a filter that grows", "none"));
        }
        let division = Division::of(spec);
        let first = division.shape(0);
        let is_own = Layout::OWN.contains(&spec.layout);
        let bit_count = match is_own {
            true => first.bit_count(),
            false => from.bits_of_parts(spec)?,
        };
        let holds = match (&spec.layers, is_own) {
            (Some(_), _) => true,
            (None, true) => first.has_good_shards(),
            (None, false) => first.is_in_fewest_shards(),
        };
        from.require(
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
                division.shard_count() as u64,
                self.shard_count,
            ),
            ("bits per shard", first.shard_bits(), self.shard_bits),
        ] {
            from.expect(what, &expected, &found)?;
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn spec(&mut self, kind: Kind) -> Result<(FilterSpec, Secret), StoreError> {
        let capacity = self.u64();
        let false_positive_rate = f64::from_le_bytes(self.take());
        let bit_count = self.u64();
        let hash_count = u32::from_le_bytes(self.take());
        let layout = u32::from_le_bytes(self.take());
        let hash_function = self.text::<HASH_NAME_BYTES>();
        let secret = Secret::new(self.take());

        self.require("capacity", capacity > 0, "at least 1", &capacity)?;
        let is_rate = false_positive_rate > 0.0 && false_positive_rate < 1.0;
        self.require(
            "false_positive_rate",
            is_rate,
            "above 0 and below 1",
            &false_positive_rate,
        )?;
        let fits = (1..=MAX_BIT_COUNT).contains(&bit_count);
        self.require(
            "bit_count",
            fits,
            &format!("1 to {MAX_BIT_COUNT}"),
            &bit_count,
        )?;
        let fits = (1..=MAX_HASH_COUNT).contains(&hash_count);
        self.require(
            "hash_count",
            fits,
            &format!("1 to {MAX_HASH_COUNT}"),
            &hash_count,
        )?;
        let layout = Layout::ALL
            .into_iter()
            .find(|&known| layout_code(known) == layout)
            .ok_or_else(|| self.damaged("layout", "1 to 5", &layout.to_string()))?;
        let hash_function = hash_function
            .parse::<HashFunction>()
            .map_err(|error| self.damaged("hash function", "a known one", &error))?;
        let spec = FilterSpec {
            capacity,
            false_positive_rate,
            bit_count,
            hash_count,
            layout,
            hash_function,
            kind,
            key_profile: None,
            cell_lines: CellLines::default(),
            shard_count: 1,
            layers: None,
            chain: None,
        };
        self.require(
            "hash function",
            layout.takes(hash_function),
            &format!("one of the layout {layout}"),
            &hash_function,
        )?;
        if kind != Kind::Plain && layout != Layout::Blocked {
            return Err(self.damaged(
                "layout",
                &format!("blocked, of a filter of the kind {}", kind.name()),
                layout.name(),
            ));
        }
        Ok((spec, secret))
    }

    /// Returns the number of lines that hold the cells of a key. Older formats leave that field at
    /// zero.
    fn cell_lines(&mut self, kind: Kind, format: u32) -> Result<CellLines, StoreError> {
        let lines = u32::from_le_bytes(self.take());
        match (kind.has_cells(), lines) {
            (false, 0) => Ok(CellLines::default()),
            // Format 7 is only for filters with two lines.
            (true, 0) if format != FORMAT_OF_LINES => Ok(CellLines::Four),
            (true, TWO_LINES) if format >= FORMAT_OF_LINES => Ok(CellLines::Two),
            _ => Err(self.damaged(
                "lines of a key",
                "2 in format 7, and from there on where there are counters or stamps in two lines, else 0",
                &lines.to_string(),
            )),
        }
    }

    /// Returns the number of bits in all parts of a filter of another program.
    fn bits_of_parts(&self, spec: &FilterSpec) -> Result<u64, StoreError> {
        let parts = Parts::of(spec).ok_or_else(|| {
            let found = format!("{} bits, {} hashes", spec.bit_count, spec.hash_count);
            self.damaged(
                "layout",
                &format!("a possible filter of {}", spec.layout),
                &found,
            )
        })?;
        self.expect("hash_count", &parts.last().hash_count(), &spec.hash_count)?;
        Ok(parts.last().words().end * 64)
    }
}

fn kind_code(kind: KindName) -> u32 {
    match kind {
        KindName::Plain => 0,
        KindName::Counting => 1,
        KindName::Aging => 2,
        KindName::Scaling => 3,
    }
}

/// Returns the field for the lines of the cells of a key. It is 0 for cells as older formats have
/// them.
fn lines_code(spec: &FilterSpec) -> u32 {
    match spec.cell_lines {
        CellLines::Two if spec.kind.has_cells() => TWO_LINES,
        _ => 0,
    }
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
