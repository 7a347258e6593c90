//! The result of reading a log.

use std::path::PathBuf;

use super::segment::file_name;
use crate::store::{Disk, StoreError};

/// The place where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// The number of the last segment; 0 if there is none.
    pub sequence: u64,
    /// The end of the last whole batch in that segment.
    pub(super) at: u64,
    /// The checksum of that batch.
    pub(super) checksum: u64,
}

/// The result of reading a log.
#[derive(Debug, Default)]
pub struct FoundLog {
    /// The end of the log.
    pub end: LogEnd,
    /// The bytes that a crash left after the end.
    pub torn: Option<Torn>,
    /// The offset up to which the last segment is on stable storage, according to its last batch.
    pub(super) synced: u64,
    /// The end of each segment that was read.
    pub(super) ends: Vec<LogEnd>,
    /// The batches that only the tail has.
    pub(super) from_tail: Vec<FromTail>,
}

/// A batch of the tail that had not been written to its segment.
#[derive(Debug)]
pub(super) struct FromTail {
    pub(super) sequence: u64,
    pub(super) at: u64,
    pub(super) batch: Vec<u8>,
}

impl FoundLog {
    /// Puts the log up to its end on stable storage, in its segments. If the server was killed, the
    /// records that were read may be only in the page cache. A sync of them may even have failed,
    /// in this start or before it. The kernel then treats them as written, and another sync would
    /// not report an error. So they are written again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub(in crate::store) fn sync(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        for from_tail in &self.from_tail {
            from_tail.write(disk)?;
        }
        if self.end.at == 0 {
            return Ok(());
        }
        // All segments but the last were synced before the next one was begun.
        let name = file_name(self.end.sequence);
        let sync = || {
            let file = disk.open_to_write(&name)?;
            let mut piece = vec![0; 1 << 20];
            let mut at = self.synced;
            while at < self.end.at {
                let bytes = (self.end.at - at).min(piece.len() as u64) as usize;
                let piece = piece.get_mut(..bytes).expect("at most the whole piece");
                file.read_exact_at(piece, at)?;
                file.write_all_at(piece, at)?;
                at += bytes as u64;
            }
            file.sync()
        };
        sync().map_err(|error| StoreError::io("sync", disk.path().join(&name), error))
    }

    /// Returns the number of the last segment that was read and can belong to the log: the segment
    /// that the log ends in, or the one in which it goes on. `None` if there is neither.
    pub(in crate::store) fn last_segment(&self) -> Option<u64> {
        let LogEnd { sequence, at, .. } = self.end;
        let last = if at > 0 { sequence } else { sequence + 1 };
        let mut ends = self.ends.iter();
        ends.any(|end| end.sequence == last).then_some(last)
    }

    /// Releases the space after the ends of all segments, and keeps a copy of the torn bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if the copy cannot be made. The torn bytes then stay where they are.
    pub(in crate::store) fn cut_off(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let torn = self.torn.as_ref().map(|torn| torn.path.clone());
        let is_torn = |end: &&LogEnd| {
            let torn = torn.as_ref();
            torn.is_some_and(|torn| torn.ends_with(file_name(end.sequence)))
        };
        // The torn segment is last: its copy needs room, which the other segments release.
        let (torn, whole): (Vec<&LogEnd>, Vec<&LogEnd>) = self.ends.iter().partition(is_torn);
        whole.into_iter().for_each(|end| end.cut_off(disk));
        if let Some(torn) = &mut self.torn {
            torn.keep(disk)?;
        }
        torn.into_iter().for_each(|end| end.cut_off(disk));
        Ok(())
    }
}

#[cfg(test)]
impl FoundLog {
    /// Returns the number of batches that only the tail had.
    pub(super) fn batches_of_the_tail(&self) -> usize {
        self.from_tail.len()
    }
}

impl LogEnd {
    /// Releases the space after the end of a log in its segment.
    fn cut_off(&self, disk: &dyn Disk) {
        let file = disk.open_to_write(&file_name(self.sequence));
        // A failure only wastes disk space.
        let _ = file.and_then(|file| file.cut_off(self.at));
    }
}

impl FromTail {
    fn write(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let name = file_name(self.sequence);
        let file = disk.open_to_write(&name);
        let written = file.and_then(|file| file.write_all_at(&self.batch, self.at));
        written.map_err(|error| StoreError::io("write", disk.path().join(name), error))
    }
}

/// The bytes that a crash left after the end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub path: PathBuf,
    /// The offset at which the log ends in the file.
    pub at: u64,
    /// The number of bytes after that offset, up to the last one that is not 0.
    pub bytes: u64,
    /// Whether the bytes have been copied to a separate file, and cut off here.
    pub is_cut_off: bool,
}

impl Torn {
    /// Copies the torn bytes to a separate file beside the segment: somebody may want to examine
    /// them.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    fn keep(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let copy = || {
            let (from, to) = (disk.open(&name)?, disk.create(&format!("{name}.torn"))?);
            let mut piece = vec![0; 1 << 20];
            let mut copied = 0;
            while copied < self.bytes {
                let bytes = (self.bytes - copied).min(piece.len() as u64) as usize;
                let piece = piece.get_mut(..bytes).expect("at most the whole piece");
                from.read_exact_at(piece, self.at + copied)?;
                to.write_all_at(piece, copied)?;
                copied += bytes as u64;
            }
            to.sync()
        };
        copy().map_err(|error| StoreError::io("keep a copy of the end of", &self.path, error))?;
        self.is_cut_off = true;
        Ok(())
    }
}
