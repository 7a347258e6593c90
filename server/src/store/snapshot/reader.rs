//! Reads a snapshot, and believes nothing of it before it has been verified.

use std::path::{Path, PathBuf};

use super::{
    ShardState, SnapshotHeader, checksum,
    header::Hex,
    table::{self, Entry},
};
use crate::{
    filter::shape::Shape,
    store::{DataDirectory, DiskFile, FilterName, StoreError},
};

/// An open snapshot, its header and its table verified.
#[derive(Debug)]
pub struct SnapshotReader {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    header: SnapshotHeader,
    entries: Vec<Entry>,
}

impl DataDirectory {
    /// Opens a filter's snapshot and verifies all but the shards: the header, that the file
    /// is as long as it says, and the table. Until the file's length bears the header out,
    /// nothing is allocated.
    ///
    /// # Errors
    ///
    /// [`StoreError`], naming the file, what was expected and what was found.
    pub fn read_snapshot(&self, name: &FilterName) -> Result<SnapshotReader, StoreError> {
        let file = Self::snapshot(name);
        let opened = self.disk.open(&file);
        let opened = opened.map_err(|error| self.failed("read", &file, error))?;
        let reader = SnapshotReader::open(self.path(&file), opened)?;
        if reader.header.name != *name {
            return Err(StoreError::Damaged {
                path: reader.path,
                what: "filter name".to_owned(),
                expected: format!("{name}, after the file"),
                found: reader.header.name.to_string(),
            });
        }
        Ok(reader)
    }
}

impl SnapshotReader {
    fn open(path: PathBuf, file: Box<dyn DiskFile>) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("read", &path, error);
        let found_bytes = file.bytes().map_err(failed)?;

        let mut bytes = [0; SnapshotHeader::BYTES];
        expect_length(
            &path,
            "at least ",
            bytes.len() as u64,
            found_bytes,
            |a, b| a <= b,
        )?;
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        let (header, file_bytes) = SnapshotHeader::decode(&bytes, &path)?;
        expect_length(&path, "", file_bytes, found_bytes, |a, b| a == b)?;

        let shape = Shape::of(&header.spec);
        let table_bytes = table::encoded_bytes(shape.shard_count());
        let shards_from = SnapshotHeader::BYTES as u64 + table_bytes;
        expect_length(&path, "at least ", shards_from, found_bytes, |a, b| a <= b)?;
        let mut table = vec![0; table_bytes as usize];
        let table_at = SnapshotHeader::BYTES as u64;
        file.read_exact_at(&mut table, table_at).map_err(failed)?;
        let entries = table::decode(&table, shape.shard_bits() / 8, &path)?;
        let stored: u64 = entries.iter().map(|entry| entry.stored_bytes).sum();
        expect_length(&path, "", shards_from + stored, found_bytes, |a, b| a == b)?;
        Ok(Self {
            path,
            file,
            header,
            entries,
        })
    }

    /// What the snapshot says of its filter.
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The file that is read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and verifies one shard after the other, and hands each that holds any bits to
    /// `shard` with its index, until that returns an error. Takes memory for one shard.
    ///
    /// # Errors
    ///
    /// [`StoreError`], or what `shard` returned. The shards handed out before the error are
    /// good, but the snapshot as a whole is not to be used.
    pub fn read_shards<E: From<StoreError>>(
        self,
        mut shard: impl FnMut(usize, ShardState, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let shape = Shape::of(&self.header.spec);
        let mut words = vec![0_u64; shape.shard_words()];
        let mut at = SnapshotHeader::BYTES as u64 + table::encoded_bytes(shape.shard_count());
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.stored_bytes == 0 {
                continue;
            }
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            self.file
                .read_exact_at(bytes, at)
                .map_err(|error| StoreError::io("read", &self.path, error))?;
            at += entry.stored_bytes;
            let computed = checksum(bytes);
            let damaged = |what: String, expected: String, found: String| StoreError::Damaged {
                path: self.path.clone(),
                what,
                expected,
                found,
            };
            if computed != entry.checksum {
                return Err(E::from(damaged(
                    format!("checksum of shard {index}"),
                    Hex(entry.checksum).to_string(),
                    Hex(computed).to_string(),
                )));
            }
            let set: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
            if entry.state.bits_set != set {
                return Err(E::from(damaged(
                    format!("set bits of shard {index}"),
                    entry.state.bits_set.to_string(),
                    set.to_string(),
                )));
            }
            words
                .iter_mut()
                .for_each(|word| *word = u64::from_le(*word));
            shard(index, entry.state, &words)?;
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
