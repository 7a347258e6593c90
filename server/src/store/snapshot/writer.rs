//! Writes a snapshot while the filter is in use.

use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use super::{ShardState, SnapshotHeader, checksum, table};
use crate::{
    filter::shape::Shape,
    store::{DataDirectory, StoreError},
};

/// A snapshot that is on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The length of its file.
    pub bytes: u64,
}

impl DataDirectory {
    /// Writes a snapshot of one filter and returns when it is on stable storage, in the
    /// place of the one before. `copy_shard` is called once for each shard, in order, and
    /// fills the words it is given; only there need the shard be locked. Takes memory for
    /// one shard, and time in proportion to the shards that hold keys.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. The snapshot before is then still in its place, unless only the
    /// last step failed, the sync of the directory: then it is one of the two.
    pub fn write_snapshot(
        &self,
        header: &SnapshotHeader,
        copy_shard: impl FnMut(usize, &mut [u64]) -> ShardState,
    ) -> Result<Written, StoreError> {
        let temporary = self.temporary(&header.name);
        let written = write(&temporary, header, copy_shard)
            .map_err(|error| StoreError::io("write the snapshot", &temporary, error));
        let replaced = written.and_then(|written| {
            let path = self.snapshot(&header.name);
            fs::rename(&temporary, &path)
                .map_err(|error| StoreError::io("put in place the snapshot", path, error))?;
            Ok(written)
        });
        if replaced.is_err() {
            // Only room on the disk is at stake: the next start removes it too.
            let _ = fs::remove_file(&temporary);
        }
        let written = replaced?;
        self.sync()?;
        Ok(written)
    }
}

/// Writes the shards behind the place of the header and the table, for the table can only be
/// known when all of them have been copied, and then those two.
fn write(
    path: &Path,
    header: &SnapshotHeader,
    mut copy_shard: impl FnMut(usize, &mut [u64]) -> ShardState,
) -> io::Result<Written> {
    let shape = Shape::of(&header.spec);
    let mut file = create(path)?;
    let mut bytes = SnapshotHeader::BYTES as u64 + table::encoded_bytes(shape.shard_count());
    file.seek(SeekFrom::Start(bytes))?;

    let mut entries = Vec::with_capacity(shape.shard_count());
    let mut words = vec![0; shape.shard_words()];
    for index in 0..shape.shard_count() {
        let state = copy_shard(index, &mut words);
        let mut entry = table::Entry {
            state,
            ..Default::default()
        };
        if state.bits_set > 0 {
            // Nothing to do where the machine is little-endian like the file.
            words.iter_mut().for_each(|word| *word = word.to_le());
            let stored: &[u8] = bytemuck::cast_slice(&words);
            file.write_all(stored)?;
            entry.stored_bytes = stored.len() as u64;
            entry.checksum = checksum(stored);
            bytes += entry.stored_bytes;
        }
        entries.push(entry);
    }

    file.rewind()?;
    file.write_all(&header.encode(bytes))?;
    file.write_all(&table::encode(&entries))?;
    file.sync_all()?;
    Ok(Written { bytes })
}

/// Makes a file that only the server's user can read: the secret of the hash is in it.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
