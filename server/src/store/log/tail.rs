//! The tail: a copy of the last batches of the log. It is in the page cache when a call is
//! answered.
//!
//! Batches go to their segment in large pieces that bypass the page cache. If the process is killed
//! before it has written a piece, the batches of that piece are lost. So each batch is also written
//! at once to a small file, the tail, which is overwritten from its start each time its end is
//! reached. The kernel has the memory for this file already, and need not write it to the disk. A
//! power cut can leave anything in the file. So a batch that is read from it must follow the batch
//! before, as in a segment.

use std::{collections::HashSet, io};

use super::batch::{self, BatchHeader, MAX_BODY_BYTES};
use crate::store::{Disk, DiskFile, StoreError};

/// The tail file, open for writing.
#[derive(Debug)]
pub struct Tail {
    file: Box<dyn DiskFile>,
    bytes: u64,
}

impl Tail {
    /// The name of the file.
    pub const FILE: &str = "log.tail";
    /// The greatest length of the file.
    pub const MAX_BYTES: u64 = 16 << 20;

    /// Creates the file with `bytes` bytes, at most [`Self::MAX_BYTES`]. Replaces an earlier one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn create(disk: &dyn Disk, bytes: u64) -> Result<Self, StoreError> {
        let bytes = bytes.min(Self::MAX_BYTES);
        let create = || {
            let file = disk.create(Self::FILE)?;
            file.reserve(bytes)?;
            Ok(Self { file, bytes })
        };
        create().map_err(|error| StoreError::io("make", disk.path().join(Self::FILE), error))
    }

    /// Returns the length of the file. A batch is overwritten when that number of further bytes has
    /// been written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a batch that has the offset `at` in its segment.
    pub fn write(&self, batch: &[u8], at: u64) -> io::Result<()> {
        let place = at % self.bytes.max(1);
        let until_end = usize::try_from(self.bytes - place).unwrap_or(usize::MAX);
        let (first, rest) = batch.split_at(until_end.min(batch.len()));
        self.file.write_all_at(first, place)?;
        self.file.write_all_at(rest, 0)
    }
}

/// The contents of the file.
#[derive(Debug, Default)]
pub struct TailCopy(Vec<u8>);

impl TailCopy {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], or [`StoreError::Damaged`] if the file is longer than allowed.
    pub fn read(disk: &dyn Disk) -> Result<Self, StoreError> {
        let path = disk.path().join(Tail::FILE);
        let failed = |error| StoreError::io("read", &path, error);
        let file = disk.open(Tail::FILE).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        if bytes > Tail::MAX_BYTES {
            return Err(StoreError::Damaged {
                path,
                what: "length of the file".to_owned(),
                expected: format!("at most {} bytes", Tail::MAX_BYTES),
                found: format!("{bytes} bytes"),
            });
        }
        let mut copy = vec![0; bytes as usize];
        file.read_exact_at(&mut copy, 0).map_err(failed)?;
        Ok(Self(copy))
    }

    /// Reads the batch for the offset `at` of the segment with this salt; `None` if there is no
    /// whole one. It can be a batch from another offset of that segment. The caller must check that
    /// it follows the batch before.
    pub fn batch(&self, at: u64, salt: u64, batch: &mut Vec<u8>) -> Option<BatchHeader> {
        let mut head = [0; BatchHeader::BYTES];
        self.copy(at, &mut head)?;
        let header = BatchHeader::read(&head)?;
        batch.clear();
        batch.resize(BatchHeader::BYTES + header.body_bytes, 0);
        self.copy(at, batch)?;
        (batch::checksum(batch, salt) == header.checksum).then_some(header)
    }

    /// Returns whether there is no file, or nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length of the file.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns whether the log once went on after offset `at` in the segment with this salt.
    /// `before` is the checksum of the batch before that offset. `read` holds the checksums of the
    /// batches of the segment that were read.
    ///
    /// The log went on if the tail has the beginning of a batch that follows, or any whole batch
    /// that was not read.
    pub fn went_on(&self, at: u64, salt: u64, before: u64, read: &HashSet<u64>) -> bool {
        let mut head = [0; BatchHeader::BYTES];
        if self.copy(at, &mut head).is_some()
            && BatchHeader::once_followed(&head, before)
            && !self.begins(at + BatchHeader::PREVIOUS_AT)
        {
            return true;
        }
        let mut batch = Vec::new();
        let words = self.0.as_chunks::<8>().0.iter().enumerate();
        let magics = words.filter(|(_, word)| word.starts_with(&batch::MAGIC));
        // The limit of bytes that checksums are computed of: see `SegmentReader::search`.
        let mut patience = 2 * self.0.len() + MAX_BODY_BYTES;
        for (index, _) in magics {
            // The file is circular: the last word is before the first.
            let place = (8 * index + self.0.len() - batch::MAGIC_AT) as u64;
            let found = self.batch(place, salt, &mut batch);
            if found.is_some_and(|header| !read.contains(&header.checksum)) {
                return true;
            }
            match patience.checked_sub(batch.len()) {
                Some(left) => patience = left,
                None => return true,
            }
        }
        false
    }

    /// Returns whether a batch seems to begin at an offset. The bytes there are then its own
    /// checksum, and not the field of an earlier batch with the checksum of the batch before.
    fn begins(&self, at: u64) -> bool {
        let mut magic = batch::MAGIC;
        let is_there = self.copy(at + batch::MAGIC_AT as u64, &mut magic).is_some();
        is_there && magic == batch::MAGIC
    }

    fn copy(&self, at: u64, to: &mut [u8]) -> Option<()> {
        let place = at.checked_rem(self.0.len() as u64)? as usize;
        let (first, rest) = to.split_at_mut_checked((self.0.len() - place).min(to.len()))?;
        first.copy_from_slice(self.0.get(place..place + first.len())?);
        rest.copy_from_slice(self.0.get(..rest.len())?);
        Some(())
    }
}
