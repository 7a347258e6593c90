//! Reads snapshots, and uses none of their data before it has been verified.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use super::{
    ShardState, SnapshotFiles, SnapshotHeader,
    fields::Hex,
    header::Encoded,
    pages::{Blocks, Pages},
    table::{Row, Table},
};
use crate::{
    filter::shard_map::ShardMap,
    planted::Bug,
    store::{
        DataDirectory, Disk, DiskFile, FilterId, FilterName, OnDamage, StoreError,
        manifest::{Manifest, StoredFilter},
        names,
    },
};

/// A stored filter: its snapshots, with verified headers and tables.
#[derive(Debug)]
pub struct FilterReader {
    /// The snapshots, from the oldest to the newest.
    snapshots: Vec<SnapshotReader>,
    header: SnapshotHeader,
    /// The place of the newest copy of each shard, except shards without bits.
    shards: BTreeMap<usize, ShardPlace>,
    /// The shards whose newest copy has no bits, although calls have changed them.
    emptied: BTreeMap<usize, ShardState>,
}

/// The place of a shard.
#[derive(Debug, Clone, Copy)]
struct ShardPlace {
    /// The index of the snapshot.
    snapshot: usize,
    /// The index of the row in that snapshot.
    row: usize,
    /// The offset in the file.
    at: u64,
}

/// An open snapshot.
#[derive(Debug)]
pub struct SnapshotReader {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    bytes: u64,
    header: SnapshotHeader,
    shard_map: ShardMap,
    shards_at: u64,
    pages: Pages,
    rows: Vec<Row>,
}

/// Reads and verifies only the header of a snapshot.
///
/// # Errors
///
/// [`StoreError`].
pub fn read_header(disk: &dyn Disk, file: &str) -> Result<SnapshotHeader, StoreError> {
    let path = disk.path().join(file);
    let opened = disk.open(file).and_then(|file| Ok((file.bytes()?, file)));
    let (bytes, file) = opened.map_err(|error| StoreError::io("read", &path, error))?;
    let (_, header) = decode_header(&*file, bytes, &path)?;
    Ok(header)
}

/// Reads and verifies the header and the extension of a file that is `bytes` long.
fn decode_header(
    file: &dyn DiskFile,
    bytes: u64,
    path: &Path,
) -> Result<(Encoded, SnapshotHeader), StoreError> {
    let failed = |error| StoreError::io("read", path, error);
    let header_bytes = SnapshotHeader::BYTES as u64;
    expect_length(path, "at least ", header_bytes, bytes, |a, b| a <= b)?;
    let mut header = [0; SnapshotHeader::BYTES];
    file.read_exact_at(&mut header, 0).map_err(failed)?;
    let encoded = SnapshotHeader::begin_decoding(&header, path)?;
    let with_extension = header_bytes + encoded.extension_bytes();
    expect_length(path, "at least ", with_extension, bytes, |a, b| a <= b)?;
    let mut extension = vec![0; encoded.extension_bytes() as usize];
    let read = file.read_exact_at(&mut extension, header_bytes);
    read.map_err(failed)?;
    let header = encoded.decode(&extension, path)?;
    Ok((encoded, header))
}

impl DataDirectory {
    /// Returns whether a file is a snapshot of this filter, according to its header.
    pub(in crate::store) fn is_of(&self, file: &str, filter: FilterId) -> bool {
        let header = read_header(&*self.disk, file);
        header.is_ok_and(|header| header.filter == filter)
    }

    /// Returns whether a file is a snapshot that was not written completely: the header is written
    /// last.
    pub(in crate::store) fn is_unfinished(&self, file: &str) -> bool {
        let is_empty = || {
            let file = self.disk.open(file)?;
            let bytes = file.bytes()?.min(SnapshotHeader::BYTES as u64);
            let mut header = vec![0; bytes as usize];
            file.read_exact_at(&mut header, 0)?;
            Ok::<_, io::Error>(header.iter().all(|&byte| byte == 0))
        };
        // A file that cannot be read stays, so that it is reported.
        is_empty().unwrap_or_default()
    }

    /// Opens the snapshots of a filter and verifies everything except the shards: the headers, the
    /// lengths of the files, and the tables. Allocates nothing until the length of a file agrees
    /// with its header. `None` if there is no such filter.
    ///
    /// # Errors
    ///
    /// [`StoreError`] with the file, the expected and the found value.
    pub fn read_filter(&self, name: &FilterName) -> Result<Option<FilterReader>, StoreError> {
        match self.filter(name) {
            Some(stored) => self.open_filter(name, &stored, &mut Err),
            None => Ok(None),
        }
    }

    /// Opens the snapshots of a filter, without those that are damaged; `None` if all are.
    ///
    /// # Errors
    ///
    /// [`StoreError::NewerFormat`], or the error that `on_damage` returned.
    pub(in crate::store) fn open_filter(
        &self,
        name: &FilterName,
        stored: &StoredFilter,
        on_damage: OnDamage<'_>,
    ) -> Result<Option<FilterReader>, StoreError> {
        let mut snapshots: Vec<SnapshotReader> = Vec::new();
        if stored.files.is_empty() {
            on_damage(StoreError::Damaged {
                path: self.path(Manifest::FILE),
                what: format!("files of the filter {name}"),
                expected: "at least one".to_owned(),
                found: "none".to_owned(),
            })?;
        }
        let newest = stored.files.last();
        for number in &stored.files {
            let is_newest = newest == Some(number);
            match self.open_snapshot(name, stored.id, *number, is_newest, snapshots.first()) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(error) => error.handle(on_damage)?,
            }
        }
        Ok(FilterReader::of(snapshots))
    }

    /// Opens one file of a filter. `other` is a file of the filter that is already open.
    fn open_snapshot(
        &self,
        name: &FilterName,
        id: FilterId,
        number: u64,
        is_newest: bool,
        other: Option<&SnapshotReader>,
    ) -> Result<SnapshotReader, StoreError> {
        let file = names::snapshot(name, number);
        let file = self.file(&file);
        let opened = self.disk.open(file);
        let opened = opened.map_err(|error| self.failed("read", file, error))?;
        let snapshot = SnapshotReader::open(self.path(file), opened)?;
        let header = &snapshot.header;
        let damaged = |what: &str, expected: String, found: String| {
            Err(StoreError::Damaged {
                path: self.path(file),
                what: what.to_owned(),
                expected,
                found,
            })
        };
        let expected = (id.0, number);
        let found = (header.filter.0, header.number);
        if found != expected {
            let text = |(id, number)| format!("filter {id}, file {number}");
            return damaged("identity", text(expected), text(found));
        }
        // Older files may be from when the filter had another name.
        if is_newest && header.name != *name {
            let expected = format!("{name}, after the file");
            return damaged("filter name", expected, header.name.to_string());
        }
        let is_same =
            |other: &SnapshotHeader| (&other.spec, other.secret) == (&header.spec, header.secret);
        if other.is_some_and(|other| !is_same(&other.header)) {
            let expected = "those of the filter's other files".to_owned();
            return damaged("spec and secret", expected, "others".to_owned());
        }
        Ok(snapshot)
    }
}

impl FilterReader {
    /// Returns the filter that some snapshots hold. They are ordered from the oldest to the newest.
    fn of(snapshots: Vec<SnapshotReader>) -> Option<Self> {
        let header = snapshots.last()?.header.clone();
        let (mut shards, mut emptied) = (BTreeMap::new(), BTreeMap::new());
        for (index, snapshot) in snapshots.iter().enumerate() {
            for (row, (stored, at)) in snapshot.stored().enumerate() {
                let place = ShardPlace {
                    snapshot: index,
                    row,
                    at,
                };
                // An older copy is not used any more.
                if stored.pages.is_empty() {
                    shards.remove(&stored.shard);
                    emptied.insert(stored.shard, stored.state);
                } else {
                    shards.insert(stored.shard, place);
                    emptied.remove(&stored.shard);
                }
            }
        }
        Some(Self {
            snapshots,
            header,
            shards,
            emptied,
        })
    }

    /// Returns the header of the newest snapshot.
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// Returns the name that the filter had before the present one, according to its files.
    pub fn name_before(&self) -> Option<&FilterName> {
        let names = self.snapshots.iter().map(|snapshot| &snapshot.header.name);
        names.rev().find(|&name| *name != self.header.name)
    }

    /// Returns the file of the newest snapshot.
    pub fn path(&self) -> &Path {
        self.snapshots
            .last()
            .map_or(Path::new(""), |newest| &newest.path)
    }

    /// Returns the files.
    pub fn files(&self) -> SnapshotFiles {
        SnapshotFiles::opened(&self.snapshots)
    }

    /// Returns the length of the shards that have any bits.
    pub fn bytes(&self) -> u64 {
        let shard_map = self.shard_map();
        let bytes = |shard| shard_map.shape(shard).shard_bytes();
        self.shards().map(bytes).sum()
    }

    /// Returns the division of the filter into shards.
    pub fn shard_map(&self) -> ShardMap {
        ShardMap::of(&self.header.spec)
    }

    /// Returns the shards that have any bits.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = usize> {
        self.shards.keys().copied()
    }

    /// Returns the states of the shards that have any bits.
    pub fn states(&self) -> impl Iterator<Item = (usize, ShardState)> {
        self.shards.iter().filter_map(|(&shard, place)| {
            let row = self.snapshots.get(place.snapshot)?.rows.get(place.row)?;
            Some((shard, row.state))
        })
    }

    /// Returns whether a shard has any bits.
    pub fn holds(&self, shard: usize) -> bool {
        self.shards.contains_key(&shard)
    }

    /// Returns the shards that have no bits any more, and their states.
    pub fn emptied(&self) -> impl Iterator<Item = (usize, ShardState)> {
        self.emptied.iter().map(|(&shard, &state)| (shard, state))
    }

    /// Reads and verifies the newest copy of a shard, and returns its state. `words` must have the
    /// length of the shard. The words of damaged pages become 0.
    ///
    /// # Errors
    ///
    /// The error that `on_damage` returned.
    pub fn read_shard(
        &self,
        shard: usize,
        words: &mut [u64],
        on_damage: OnDamage<'_>,
    ) -> Result<ShardState, StoreError> {
        let place = self.shards.get(&shard);
        let found = place.and_then(|place| {
            let snapshot = self.snapshots.get(place.snapshot)?;
            Some((snapshot, snapshot.rows.get(place.row)?, place.at))
        });
        match found {
            Some((snapshot, row, at)) => snapshot.read_shard(row, at, words, on_damage),
            None => {
                words.fill(0);
                Ok(ShardState::default())
            }
        }
    }
}

impl SnapshotReader {
    fn open(path: PathBuf, file: Box<dyn DiskFile>) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("read", &path, error);
        let bytes = file.bytes().map_err(failed)?;
        let (encoded, header) = decode_header(&*file, bytes, &path)?;
        expect_length(&path, "", encoded.file_bytes(), bytes, |a, b| a == b)?;
        let header_bytes = SnapshotHeader::BYTES as u64 + encoded.extension_bytes();
        let table_bytes = encoded.table_bytes();

        let shard_map = ShardMap::of(&header.spec);
        let pages = Pages::of(header.filter, header.number);
        let with_table = header_bytes.saturating_add(table_bytes);
        expect_length(&path, "at least ", with_table, bytes, |a, b| a <= b)?;
        let mut table = vec![0; table_bytes as usize];
        file.read_exact_at(&mut table, bytes - table_bytes)
            .map_err(failed)?;
        let table = Table {
            bytes: &table,
            shard_map: &shard_map,
            ages: header.spec.body.ages(),
            pages,
            path: &path,
        };
        let rows = table.decode()?;
        let stored_bytes = rows.iter().map(|row| {
            let shard_bytes = shard_map.shape(row.shard).shard_bytes();
            pages.stored_bytes(shard_bytes as usize, &row.pages)
        });
        let expected = with_table + stored_bytes.sum::<u64>();
        expect_length(&path, "", expected, bytes, |a, b| a == b)?;
        Ok(Self {
            path,
            file,
            bytes,
            header,
            shard_map,
            shards_at: header_bytes,
            pages,
            rows,
        })
    }

    pub(super) fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// Returns the length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the shards that the snapshot holds.
    pub(super) fn shards(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| row.shard)
    }

    /// Returns the rows, each with the offset of its shard.
    fn stored(&self) -> impl Iterator<Item = (&Row, u64)> {
        let mut next = self.shards_at;
        self.rows.iter().map(move |row| {
            let at = next;
            let shard_bytes = self.shard_map.shape(row.shard).shard_bytes();
            next += self.pages.stored_bytes(shard_bytes as usize, &row.pages);
            (row, at)
        })
    }

    /// Reads a page. Its stored blocks begin at offset `at` of the file.
    fn read_page(&self, blocks: Blocks, page: &mut [u8], mut at: u64) -> io::Result<()> {
        for (part, is_stored) in blocks.parts(page.len()) {
            let part = page.get_mut(part).expect("a part of the page");
            if is_stored {
                self.file.read_exact_at(part, at)?;
                at += part.len() as u64;
            } else if part.iter().any(|&byte| byte != 0) {
                // Memory that holds zeros already stays untouched, and so takes no page.
                part.fill(0);
            }
        }
        Ok(())
    }

    /// Reads and verifies a shard. Damaged pages become 0.
    fn read_shard(
        &self,
        row: &Row,
        at: u64,
        words: &mut [u64],
        on_damage: OnDamage<'_>,
    ) -> Result<ShardState, StoreError> {
        let damaged = |what: String, expected: String, found: String| StoreError::Damaged {
            path: self.path.clone(),
            what,
            expected,
            found,
        };
        let shard = row.shard;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        let mut is_whole = true;
        let mut page_at = at;
        let pages = bytes.chunks_mut(self.pages.bytes).enumerate();
        for ((page, bytes), stored) in pages.zip(&row.pages) {
            let read = self.read_page(stored.blocks, bytes, page_at);
            page_at += stored.blocks.stored_bytes(bytes.len()) as u64;
            let computed = read.map(|()| match stored.blocks.is_empty() {
                true => 0,
                false => self.pages.checksum(shard, page, bytes),
            });
            let stored = stored.checksum;
            let error = match computed {
                Ok(computed) if computed == stored || Bug::PageNotVerified.is_planted() => continue,
                Ok(computed) => {
                    let what = format!("checksum of page {page} of shard {shard}");
                    let (computed, stored) = (Hex(computed).to_string(), Hex(stored).to_string());
                    damaged(what, stored, computed)
                }
                Err(error) => StoreError::io("read", &self.path, error),
            };
            on_damage(error)?;
            bytes.fill(0);
            is_whole = false;
        }
        if cfg!(target_endian = "big") {
            let words = words.iter_mut();
            words.for_each(|word| *word = u64::from_le(*word));
        }
        let bits_set = self.shard_map.shape(shard).bits_set(words);
        let expected = row.state.bits_set;
        if is_whole && bits_set != expected {
            let what = format!("set bits of shard {shard}");
            on_damage(damaged(what, expected.to_string(), bits_set.to_string()))?;
        }
        let ages = self.header.spec.body.ages();
        Ok(ShardState {
            bits_set,
            // A new key has set at least one bit. In a filter whose keys age, that bit may have
            // been cleared since.
            keys_added: match ages {
                true => row.state.keys_added,
                false => row.state.keys_added.min(bits_set),
            },
            ..row.state
        })
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
