//! The header of a snapshot: all data of a filter except its bits.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use bytemuck::{Pod, Zeroable};

use super::{
    body::EncodedBody,
    checksum, extension,
    fields::{Checks, Hex, padded, text},
};
use crate::{
    filter::{
        hash::{HashFunction, Secret},
        spec::FilterSpec,
    },
    store::{FilterId, FilterName, MAX_NUMBER, StoreError, format},
};

const MAGIC: [u8; 8] = *b"SEENSNAP";
/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;

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
    pub hash_function: [u8; 32],
    secret: [u8; 16],
    pub body: EncodedBody,
    zeros: [u8; 48],
    pub checksum: [u8; 8],
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
            hash_function: padded(spec.hash_function.name()),
            secret: *self.secret.as_bytes(),
            body: EncodedBody::of(&spec.body),
            zeros: [0; 48],
            checksum: [0; 8],
        };
        encoded.checksum = checksum(covered(bytemuck::bytes_of(&encoded))).to_le_bytes();
        bytemuck::cast(encoded)
    }

    /// Verifies the checksum of an encoded header, and the numbers that say where its other parts
    /// lie.
    pub(super) fn begin_decoding(
        bytes: &[u8; Self::BYTES],
        path: &Path,
    ) -> Result<Encoded, StoreError> {
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
        extension::check_length(encoded.extension_bytes(), path)?;
        Ok(encoded)
    }
}

/// Returns the bytes of a header that its checksum covers: all but the checksum.
fn covered(header: &[u8]) -> &[u8] {
    let split = header.split_last_chunk::<8>();
    split.map_or(header, |(covered, _)| covered)
}

impl Encoded {
    /// Returns the length that the file must have.
    pub fn file_bytes(&self) -> u64 {
        u64::from_le_bytes(self.file_bytes)
    }

    /// Returns the length of the table at the end of the file.
    pub fn table_bytes(&self) -> u64 {
        u64::from_le_bytes(self.table_bytes)
    }

    /// Returns the length of the extension after the header; 0 if there is none.
    pub fn extension_bytes(&self) -> u64 {
        u64::from_le_bytes(self.extension_bytes)
    }

    /// Decodes and verifies the fields of the header, with its extension.
    ///
    /// Their checksum is right, so these bytes were written. This checks that this program
    /// understands them.
    pub fn decode(&self, extension: &[u8], path: &Path) -> Result<SnapshotHeader, StoreError> {
        let checks = Checks { path };
        let version = u64::from_le_bytes(self.version);
        checks.at_most("version", MAX_NUMBER, version)?;
        let name = text(&self.name);
        let name = name
            .parse()
            .map_err(|_| checks.damaged("filter name", "a filter name", &format!("{name:?}")))?;
        Ok(SnapshotHeader {
            filter: FilterId(u64::from_le_bytes(self.filter)),
            number: u64::from_le_bytes(self.number),
            name,
            spec: self.spec(extension, &checks)?,
            secret: Secret::new(self.secret),
            version,
            create_time: time(u64::from_le_bytes(self.create_time)),
            store_time: time(u64::from_le_bytes(self.store_time)),
        })
    }

    fn spec(&self, extension: &[u8], checks: &Checks<'_>) -> Result<FilterSpec, StoreError> {
        let capacity = u64::from_le_bytes(self.capacity);
        let false_positive_rate = f64::from_le_bytes(self.false_positive_rate);
        checks.require("capacity", capacity > 0, "at least 1", &capacity)?;
        let is_rate = false_positive_rate > 0.0 && false_positive_rate < 1.0;
        checks.require(
            "false_positive_rate",
            is_rate,
            "above 0 and below 1",
            &false_positive_rate,
        )?;
        let mut extension = extension::verified(extension, checks.path)?;
        let body = self.body.decode(&mut extension, checks)?;
        let hash_function = text(&self.hash_function)
            .parse::<HashFunction>()
            .map_err(|error| checks.damaged("hash function", "a known one", &error))?;
        let layout = body.layout();
        checks.require(
            "hash function",
            layout.takes(hash_function),
            &format!("one of the layout {layout}"),
            &hash_function,
        )?;
        Ok(FilterSpec {
            capacity,
            false_positive_rate,
            hash_function,
            key_profile: extension::decode_profile(extension, checks.path)?,
            body,
        })
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

    use super::{Encoded, EncodedBody};

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
    pub const HASH_FUNCTION: usize = offset_of!(Encoded, hash_function);
    pub const BODY: usize = offset_of!(Encoded, body) + offset_of!(EncodedBody, tag);
    /// The numbers of the body, of 8 bytes each.
    pub const NUMBERS: usize = offset_of!(Encoded, body) + offset_of!(EncodedBody, numbers);
    pub const ZEROS: usize = offset_of!(Encoded, zeros);
    pub const CHECKSUM: usize = offset_of!(Encoded, checksum);
}
