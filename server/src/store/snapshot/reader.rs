//! Reads snapshots, and believes nothing of them before it has been verified.

use std::{
    mem,
    path::{Path, PathBuf},
};

use super::{
    ShardState, SnapshotFiles, SnapshotHeader,
    header::{Decoded, Hex},
    pages::Pages,
    table::{self, Row, Table},
};
use crate::{
    filter::shape::Shape,
    store::{DataDirectory, DiskFile, FilterId, FilterName, StoreError, manifest::Manifest, names},
};

/// A filter as it is stored: its snapshots, their headers and their tables verified.
#[derive(Debug)]
pub struct FilterReader {
    /// From the oldest to the newest.
    snapshots: Vec<SnapshotReader>,
    header: SnapshotHeader,
}

/// An open snapshot.
#[derive(Debug)]
pub struct SnapshotReader {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    bytes: u64,
    header: SnapshotHeader,
    shards_at: u64,
    pages: Pages,
    rows: Vec<Row>,
}

impl DataDirectory {
    /// Whether a file is a snapshot of this filter, as far as its header tells.
    pub(in crate::store) fn is_of(&self, file: &str, filter: FilterId) -> bool {
        let mut header = [0; SnapshotHeader::BYTES];
        let read = self
            .disk
            .open(file)
            .and_then(|opened| opened.read_exact_at(&mut header, 0));
        let decoded = SnapshotHeader::decode(&header, &self.path(file));
        read.is_ok() && decoded.is_ok_and(|decoded| decoded.header.filter == filter)
    }

    /// Opens the snapshots of a filter and verifies all but the shards: the headers, that the
    /// files are as long as they say, and the tables. Until a file's length bears its header
    /// out, nothing is allocated. `None` if there is no such filter.
    ///
    /// # Errors
    ///
    /// [`StoreError`], naming the file, what was expected and what was found.
    pub fn read_filter(&self, name: &FilterName) -> Result<Option<FilterReader>, StoreError> {
        let Some(stored) = self.filter(name) else {
            return Ok(None);
        };
        let mut snapshots: Vec<SnapshotReader> = Vec::new();
        for number in stored.files {
            let file = names::snapshot(name, number);
            let opened = self.disk.open(&file);
            let opened = opened.map_err(|error| self.failed("read", &file, error))?;
            let mut snapshot = SnapshotReader::open(self.path(&file), opened)?;
            let header = &mut snapshot.header;
            if number == 0 {
                // The file is from before there were such numbers.
                header.filter = stored.id;
            }
            let damaged = |what: &str, expected: String, found: String| StoreError::Damaged {
                path: self.path(&file),
                what: what.to_owned(),
                expected,
                found,
            };
            let expected = (stored.id.0, number);
            let found = (header.filter.0, header.number);
            if found != expected {
                let text = |(id, number)| format!("filter {id}, file {number}");
                return Err(damaged("identity", text(expected), text(found)));
            }
            if header.name != *name {
                let expected = format!("{name}, after the file");
                return Err(damaged("filter name", expected, header.name.to_string()));
            }
            let first = snapshots.first().map(|snapshot| &snapshot.header);
            if first.is_some_and(|first| {
                (first.spec, first.secret) != (snapshot.header.spec, snapshot.header.secret)
            }) {
                let expected = "those of the filter's other files".to_owned();
                return Err(damaged("spec and secret", expected, "others".to_owned()));
            }
            snapshots.push(snapshot);
        }
        let header = snapshots.last().map(|newest| newest.header.clone());
        let header = header.ok_or_else(|| StoreError::Damaged {
            path: self.path(Manifest::FILE),
            what: format!("files of the filter {name}"),
            expected: "at least one".to_owned(),
            found: "none".to_owned(),
        })?;
        Ok(Some(FilterReader { snapshots, header }))
    }
}

impl FilterReader {
    /// What the newest snapshot says of the filter.
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The file of the newest snapshot.
    pub fn path(&self) -> &Path {
        self.snapshots
            .last()
            .map_or(Path::new(""), |newest| &newest.path)
    }

    /// Reads and verifies one shard after the other, the newest copy of each, and hands each
    /// that holds any bits to `visit` with its index, until that returns an error. Takes memory
    /// for one shard.
    ///
    /// # Errors
    ///
    /// [`StoreError`], or what `visit` returned. The shards handed out before the error are
    /// good, but the filter as a whole is not to be used.
    pub fn read_shards<E: From<StoreError>>(
        self,
        mut visit: impl FnMut(usize, ShardState, &[u64]) -> Result<(), E>,
    ) -> Result<SnapshotFiles, E> {
        let shape = Shape::of(&self.header.spec);
        let mut is_read = vec![false; shape.shard_count()];
        let mut words = vec![0_u64; shape.shard_words()];
        for snapshot in self.snapshots.iter().rev() {
            for (row, at) in snapshot.stored() {
                // The shards of the spec: as many as the header was checked against.
                let is_read = is_read.get_mut(row.shard);
                if is_read.is_none_or(|is_read| mem::replace(is_read, true)) {
                    continue;
                }
                if !row.checksums.is_empty() {
                    snapshot.read_shard(row, at, &mut words)?;
                    visit(row.shard, row.state, &words)?;
                }
            }
        }
        Ok(SnapshotFiles::opened(&self.snapshots))
    }
}

impl SnapshotReader {
    fn open(path: PathBuf, file: Box<dyn DiskFile>) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("read", &path, error);
        let bytes = file.bytes().map_err(failed)?;
        let header_bytes = SnapshotHeader::BYTES as u64;
        expect_length(&path, "at least ", header_bytes, bytes, |a, b| a <= b)?;
        let mut header = [0; SnapshotHeader::BYTES];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let Decoded {
            header,
            format,
            file_bytes,
            table_bytes,
        } = SnapshotHeader::decode(&header, &path)?;
        expect_length(&path, "", file_bytes, bytes, |a, b| a == b)?;

        let shape = Shape::of(&header.spec);
        let shard_bytes = (shape.shard_bits() / 8) as usize;
        let (table_bytes, pages) = match format {
            1 => (
                table::format1_bytes(shape.shard_count()),
                Pages::whole(shard_bytes),
            ),
            _ => (table_bytes, Pages::salted(header.filter, header.number)),
        };
        let with_table = header_bytes.saturating_add(table_bytes);
        expect_length(&path, "at least ", with_table, bytes, |a, b| a <= b)?;
        let (table_at, shards_at) = match format {
            1 => (header_bytes, with_table),
            _ => (bytes - table_bytes, header_bytes),
        };
        let mut table = vec![0; table_bytes as usize];
        file.read_exact_at(&mut table, table_at).map_err(failed)?;
        let table = Table {
            bytes: &table,
            shard_count: shape.shard_count(),
            shard_bytes,
            pages,
            path: &path,
        };
        let rows = match format {
            1 => table.decode_format1()?,
            _ => table.decode()?,
        };
        let stored = rows.iter().filter(|row| !row.checksums.is_empty()).count();
        let expected = with_table + stored as u64 * shard_bytes as u64;
        expect_length(&path, "", expected, bytes, |a, b| a == b)?;
        Ok(Self {
            path,
            file,
            bytes,
            header,
            shards_at,
            pages,
            rows,
        })
    }

    pub(super) fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The shards that it is of.
    pub(super) fn shards(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| row.shard)
    }

    /// The rows, each with the place of its shard.
    fn stored(&self) -> impl Iterator<Item = (&Row, u64)> {
        let shard_bytes = Shape::of(&self.header.spec).shard_bits() / 8;
        let mut next = self.shards_at;
        self.rows.iter().map(move |row| {
            let at = next;
            if !row.checksums.is_empty() {
                next += shard_bytes;
            }
            (row, at)
        })
    }

    /// Reads and verifies a shard.
    fn read_shard(&self, row: &Row, at: u64, words: &mut [u64]) -> Result<(), StoreError> {
        let damaged = |what: String, expected: String, found: String| StoreError::Damaged {
            path: self.path.clone(),
            what,
            expected,
            found,
        };
        let shard = row.shard;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(|error| StoreError::io("read", &self.path, error))?;
        let pages = bytes.chunks(self.pages.bytes).enumerate();
        for ((page, bytes), &stored) in pages.zip(&row.checksums) {
            let computed = self.pages.checksum(shard, page, bytes);
            if computed != stored {
                let what = format!("checksum of page {page} of shard {shard}");
                let (computed, stored) = (Hex(computed).to_string(), Hex(stored).to_string());
                return Err(damaged(what, stored, computed));
            }
        }
        words
            .iter_mut()
            .for_each(|word| *word = u64::from_le(*word));
        let set: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let expected = row.state.bits_set;
        if set != expected {
            let what = format!("set bits of shard {shard}");
            return Err(damaged(what, expected.to_string(), set.to_string()));
        }
        Ok(())
    }
}

fn expect_length(
    path: &Path,
    at_least: &str,
    expected: u64,
    found: u64,
    holds: impl Fn(u64, u64) -> bool,
) -> Result<(), StoreError> {
    if holds(expected, found) {
        return Ok(());
    }
    Err(StoreError::Damaged {
        path: path.into(),
        what: "length of the file".to_owned(),
        expected: format!("{at_least}{expected} bytes"),
        found: format!("{found} bytes"),
    })
}
