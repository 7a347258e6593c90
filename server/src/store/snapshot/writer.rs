//! Writes a snapshot while the filter is in use.

use std::{io, thread};

use super::{Checksum, ShardState, SnapshotHeader, table};
use crate::{
    filter::shape::Shape,
    store::{DataDirectory, DiskFile, StoreError},
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
        let temporary = DataDirectory::temporary(&header.name);
        let written = self
            .disk
            .create(&temporary)
            .and_then(|file| write(&*file, header, copy_shard))
            .map_err(|error| self.failed("write the snapshot", &temporary, error));
        let replaced = written.and_then(|written| {
            let file = DataDirectory::snapshot(&header.name);
            self.disk
                .rename(&temporary, &file)
                .map_err(|error| self.failed("put in place the snapshot", &file, error))?;
            Ok(written)
        });
        if replaced.is_err() {
            // Only room on the disk is at stake: the next start removes it too.
            let _ = self.disk.remove(&temporary);
        }
        let written = replaced?;
        self.sync()?;
        Ok(written)
    }
}

/// Writes the shards behind the place of the header and the table, for the table can only be
/// known when all of them have been copied, and then those two.
fn write(
    file: &dyn DiskFile,
    header: &SnapshotHeader,
    mut copy_shard: impl FnMut(usize, &mut [u64]) -> ShardState,
) -> io::Result<Written> {
    let shape = Shape::of(&header.spec);
    let mut bytes = SnapshotHeader::BYTES as u64 + table::encoded_bytes(shape.shard_count());

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
            entry.checksum = write_shard(file, stored, bytes)?;
            entry.stored_bytes = stored.len() as u64;
            bytes += entry.stored_bytes;
            unsynced_bytes += entry.stored_bytes;
        }
        entries.push(entry);
        if unsynced_bytes >= WINDOW_BYTES {
            file.sync()?;
            file.forget();
            unsynced_bytes = 0;
        }
    }

    file.write_all_at(&header.encode(bytes), 0)?;
    file.write_all_at(&table::encode(&entries), SnapshotHeader::BYTES as u64)?;
    file.sync()?;
    file.forget();
    Ok(Written { bytes })
}

/// Writes the bytes of a shard and returns their checksum. In pieces, between which other
/// threads come first: the system does not interrupt a call of its own everywhere, and one for
/// some MiB may take longer than all the calls of a client that wait for this core.
fn write_shard(file: &dyn DiskFile, stored: &[u8], mut at: u64) -> io::Result<u64> {
    let mut checksum = Checksum::default();
    for piece in stored.chunks(PIECE_BYTES) {
        checksum.update(piece);
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
        thread::yield_now();
    }
    Ok(checksum.value())
}
