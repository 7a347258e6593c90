//! The tail: a copy of the last batches of the log, which the system has when a call is answered.
//!
//! Batches go to their segment in large pieces, past the system's cache. Until a piece has been
//! written, a killed process would take its batches along. So each is written at once to a small
//! file that is overwritten round and round: the system has the memory for it at hand, and need
//! not write it to the disk. A power cut may leave anything in it; what is read from it has to
//! follow the batch before, as in a segment.

use std::{collections::HashSet, io};

use super::batch::{self, BatchHeader, MAX_BODY_BYTES};
use crate::store::{Disk, DiskFile, StoreError};

/// The file, to be written.
#[derive(Debug)]
pub struct Tail {
    file: Box<dyn DiskFile>,
    bytes: u64,
}

impl Tail {
    /// The name of the file.
    pub const FILE: &str = "log.tail";
    /// How long it gets at most.
    pub const MAX_BYTES: u64 = 16 << 20;

    /// Makes the file, with so many bytes, in the place of an earlier one.
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

    /// Its length. What was written so many bytes ago is overwritten.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a batch that stands at a place in its segment.
    pub fn write(&self, batch: &[u8], at: u64) -> io::Result<()> {
        let place = at % self.bytes.max(1);
        let until_end = usize::try_from(self.bytes - place).unwrap_or(usize::MAX);
        let (first, rest) = batch.split_at(until_end.min(batch.len()));
        self.file.write_all_at(first, place)?;
        self.file.write_all_at(rest, 0)
    }
}

/// What was found in the file.
#[derive(Debug, Default)]
pub struct TailCopy(Vec<u8>);

impl TailCopy {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], or [`StoreError::Damaged`] if it is longer than it may be.
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

    /// Gets the batch that would stand at a place in the segment with a salt; `None` if there is
    /// no whole one. It may be one that stands elsewhere in that segment: whether it follows the
    /// one before tells.
    pub fn batch(&self, at: u64, salt: u64, batch: &mut Vec<u8>) -> Option<BatchHeader> {
        let mut head = [0; BatchHeader::BYTES];
        self.copy(at, &mut head)?;
        let header = BatchHeader::read(&head)?;
        batch.clear();
        batch.resize(BatchHeader::BYTES + header.body_bytes, 0);
        self.copy(at, batch)?;
        (batch::checksum(batch, salt) == header.checksum).then_some(header)
    }

    /// Whether there is no file, or nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length of the file.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether the log once went on from a place in the segment with a salt, of which the batches
    /// with these checksums were read, behind the batch with the checksum `before`. So it did if
    /// there is the beginning of a batch that follows, or any whole one that was not read.
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
        // Of all bytes that look like a batch, checksums are computed of so many: see
        // `SegmentReader::search`.
        let mut patience = 2 * self.0.len() + MAX_BODY_BYTES;
        for (index, _) in magics {
            // Before the first word is the last.
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

    /// Whether a batch seems to begin at a place. What stands there is then its own checksum, and
    /// not what a batch before that place says of the one it follows.
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
