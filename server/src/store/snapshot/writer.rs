//! Writes a snapshot while the filter is in use.

use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
    thread,
};

use super::{Checksum, ShardState, SnapshotHeader, table};
use crate::{
    filter::shape::Shape,
    store::{DataDirectory, StoreError},
};

/// What is written at once.
const PIECE_BYTES: usize = 256 << 10;

/// What is written at most before it has to reach the disk. So a snapshot takes no more of the
/// system's memory than this, whatever the size of the filter, and writing does not race ahead
/// of the disk, to be waited for at the end by everybody who writes.
const WINDOW_BYTES: u64 = 32 << 20;

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
    let mut unsynced_bytes = 0;
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
            entry.checksum = write_shard(&mut file, stored)?;
            entry.stored_bytes = stored.len() as u64;
            bytes += entry.stored_bytes;
            unsynced_bytes += entry.stored_bytes;
        }
        entries.push(entry);
        if unsynced_bytes >= WINDOW_BYTES {
            file.sync_data()?;
            forget(&file);
            unsynced_bytes = 0;
        }
    }

    file.rewind()?;
    file.write_all(&header.encode(bytes))?;
    file.write_all(&table::encode(&entries))?;
    file.sync_all()?;
    forget(&file);
    Ok(Written { bytes })
}

/// Writes the bytes of a shard and returns their checksum. In pieces, between which other
/// threads come first: the system does not interrupt a call of its own everywhere, and one for
/// some MiB may take longer than all the calls of a client that wait for this core.
fn write_shard(file: &mut File, stored: &[u8]) -> io::Result<u64> {
    let mut checksum = Checksum::default();
    for piece in stored.chunks(PIECE_BYTES) {
        checksum.update(piece);
        file.write_all(piece)?;
        thread::yield_now();
    }
    Ok(checksum.value())
}

/// Has the system keep no copy in memory of what has reached the disk: it is read at the next
/// start at most, and would take as much memory again as the filter.
fn forget(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Makes a file that only the server's user can read: the secret of the hash is in it.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
