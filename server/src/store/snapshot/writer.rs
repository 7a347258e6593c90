//! Writes a snapshot while the filter is in use.

use std::{borrow::Cow, io, thread};

use super::{
    ShardState, SnapshotHeader, extension,
    pages::{Blocks, Page, Pages},
    table::{self, Row},
};
use crate::{
    filter::shard_map::ShardMap,
    store::{DataDirectory, DiskFile, StoreError, names},
};

/// The number of pages that are written at once.
const PIECE_PAGES: usize = 4;

/// The limit of bytes that are written before a sync. So a snapshot takes at most this much of the
/// page cache, whatever the size of the filter. And the writes do not get far ahead of the disk:
/// otherwise everybody who writes would have to wait at the end.
const WINDOW_BYTES: u64 = 8 << 20;

/// A snapshot whose bytes are on stable storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The number of its file.
    pub number: u64,
    /// The length of its file.
    pub bytes: u64,
    /// The shards in it.
    pub shards: Vec<usize>,
}

impl DataDirectory {
    /// Writes some shards of a filter, given in order, to a new file with its own number. Returns
    /// when they are on stable storage. They belong to the filter once the manifest says so.
    ///
    /// `copy_shard` is called once for each shard, and fills the given words. The shard need only
    /// be locked during that call. Takes memory for one shard.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], or the error that `copy_shard` returned. Then there is no file, or one
    /// that the next start removes.
    pub fn write_snapshot(
        &self,
        header: &SnapshotHeader,
        shards: &[usize],
        copy_shard: impl FnMut(usize, &mut [u64]) -> Result<ShardState, StoreError>,
    ) -> Result<Written, StoreError> {
        let name = names::snapshot(&header.name, header.number);
        let write = || {
            let file = self.disk.create(&name)?;
            let bytes = write(&*file, header, shards, copy_shard)?;
            // The name must be durable before a manifest can contain it.
            self.disk.sync()?;
            Ok(bytes)
        };
        let bytes = write().map_err(|unwritten| {
            // A failed removal only wastes disk space.
            let _ = self.disk.remove(&name);
            match unwritten {
                Unwritten::Io(error) => self.failed("write the snapshot", &name, error),
                Unwritten::Uncopied(error) => error,
            }
        })?;
        Ok(Written {
            number: header.number,
            bytes,
            shards: shards.to_vec(),
        })
    }

    /// Removes a snapshot that no manifest names, and returns the reason as an error.
    pub fn give_up_snapshot(&self, header: &SnapshotHeader, reason: String) -> StoreError {
        let name = names::snapshot(&header.name, header.number);
        // A failed removal only wastes disk space.
        let _ = self.disk.remove(&name);
        self.failed("finish the snapshot", &name, io::Error::other(reason))
    }
}

/// The reason why a snapshot was not written.
enum Unwritten {
    /// The file could not be written.
    Io(io::Error),
    /// A shard could not be copied.
    Uncopied(StoreError),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes the shards after the place for the header and the extension, then the table, the
/// extension and the header. The header is last, because its contents are known only then. Returns
/// the length of the file.
fn write(
    file: &dyn DiskFile,
    header: &SnapshotHeader,
    shards: &[usize],
    mut copy_shard: impl FnMut(usize, &mut [u64]) -> Result<ShardState, StoreError>,
) -> Result<u64, Unwritten> {
    let shard_map = ShardMap::of(&header.spec);
    let pages = Pages::of(header.filter, header.number);
    let extension = extension::encode(&header.spec);
    let extension_bytes = extension.len() as u64;
    let mut at = SnapshotHeader::BYTES as u64 + extension_bytes;
    let mut rows = Vec::with_capacity(shards.len());
    let mut words = Vec::new();
    let mut unsynced_bytes = 0;
    for &shard in shards {
        words.resize(shard_map.shape(shard).shard_words(), 0);
        let state = copy_shard(shard, &mut words).map_err(Unwritten::Uncopied)?;
        let mut stored_pages = Vec::new();
        if state.bits_set > 0 {
            // Does nothing on a little-endian machine: the file is little-endian too.
            words.iter_mut().for_each(|word| *word = word.to_le());
            let stored: &[u8] = bytemuck::cast_slice(&words);
            stored_pages = write_shard(file, shard, stored, at, pages)?;
            let stored_bytes = pages.stored_bytes(stored.len(), &stored_pages);
            at += stored_bytes;
            unsynced_bytes += stored_bytes;
        }
        rows.push(Row {
            shard,
            state,
            pages: stored_pages,
        });
        if unsynced_bytes >= WINDOW_BYTES {
            file.sync()?;
            file.forget();
            unsynced_bytes = 0;
        }
    }

    let table = table::encode(&rows, &shard_map, pages);
    let bytes = at + table.len() as u64;
    file.write_all_at(&table, at)?;
    if !extension.is_empty() {
        file.write_all_at(&extension, SnapshotHeader::BYTES as u64)?;
    }
    let header = header.encode(bytes, table.len() as u64, extension_bytes);
    file.write_all_at(&header, 0)?;
    file.sync()?;
    file.forget();
    Ok(bytes)
}

/// Writes the blocks of a shard that are not all zeros, and returns its pages. It writes in pieces,
/// and lets other threads run between them. The kernel does not interrupt its own call everywhere.
/// One call for some MiB can take longer than all the client calls that wait for this core.
fn write_shard(
    file: &dyn DiskFile,
    shard: usize,
    bytes: &[u8],
    mut at: u64,
    pages: Pages,
) -> io::Result<Vec<Page>> {
    let mut written = Vec::with_capacity(pages.count(bytes.len()));
    for piece in bytes.chunks(PIECE_PAGES * pages.bytes) {
        let mut stored = Cow::Borrowed(piece);
        for (index, page) in piece.chunks(pages.bytes).enumerate() {
            let blocks = Blocks::of(page);
            if blocks != Blocks::All && matches!(stored, Cow::Borrowed(_)) {
                let before = piece
                    .get(..index * pages.bytes)
                    .expect("the pages before this one");
                stored = Cow::Owned(before.to_vec());
            }
            if let Cow::Owned(stored) = &mut stored {
                let parts = blocks.parts(page.len());
                let parts =
                    parts.filter_map(|(part, is_stored)| page.get(part).filter(|_| is_stored));
                parts.for_each(|part| stored.extend_from_slice(part));
            }
            let checksum = match blocks.is_empty() {
                true => 0,
                false => pages.checksum(shard, written.len(), page),
            };
            written.push(Page { blocks, checksum });
        }
        if !stored.is_empty() {
            file.write_all_at(&stored, at)?;
            at += stored.len() as u64;
            thread::yield_now();
        }
    }
    Ok(written)
}
