//! Writes the log, one batch after the other.

use std::{io, sync::Arc};

use super::{
    batch::{BatchHeader, MAX_BODY_BYTES},
    reader::LogEnd,
    record::{self, FilterId, RequestId},
    segment::{SegmentHeader, file_name},
};
use crate::{
    filter::hash::KeyHash,
    store::{Disk, DiskFile, StoreError},
};

/// The end of the log, where batches are added.
///
/// What has been written but not synced is kept in memory: where the disk fails, it is written
/// again to a [new segment](Self::recover).
#[derive(Debug)]
pub struct LogWriter {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    pub(super) segment: Segment,
    /// The batches behind `segment.synced`.
    unsynced: Vec<Batch>,
}

/// Records that are written at once.
#[derive(Debug)]
pub struct Batch {
    /// The records, behind the place for the header.
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Segment {
    file: Box<dyn DiskFile>,
    sequence: u64,
    salt: u64,
    /// The room that is kept for it.
    bytes: u64,
    pub(super) written: Position,
    synced: Position,
}

/// A place between two batches of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) at: u64,
    /// The checksum of the batch before it.
    checksum: u64,
}

impl Default for Batch {
    /// No records.
    fn default() -> Self {
        Self {
            bytes: vec![0; BatchHeader::BYTES],
        }
    }
}

impl Batch {
    /// Adds what a call of a version added to a filter.
    pub fn push(
        &mut self,
        filter: FilterId,
        version: u64,
        request: Option<&RequestId>,
        hashes: impl Iterator<Item = KeyHash>,
    ) {
        record::encode(filter, version, request, hashes, &mut self.bytes);
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == BatchHeader::BYTES
    }

    /// Whether a record of so many hashes fits beside those there are.
    pub fn fits(&self, hashes: usize) -> bool {
        let bytes = self.bytes.len() + record::encoded_bytes(hashes);
        bytes <= BatchHeader::BYTES + MAX_BODY_BYTES
    }
}

impl LogWriter {
    /// Opens a segment behind the end of a log, with room for so many bytes, and returns when it
    /// is on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn open(disk: Arc<dyn Disk>, end: LogEnd, segment_bytes: u64) -> Result<Self, StoreError> {
        let segment = Segment::create(&*disk, end, segment_bytes)?;
        Ok(Self {
            disk,
            segment_bytes,
            segment,
            unsynced: Vec::new(),
        })
    }

    /// The number of the segment that is written to.
    pub fn sequence(&self) -> u64 {
        self.segment.sequence
    }

    /// Writes a batch, to a new segment if there is no room in this one. It is on stable storage
    /// after [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. The batch is then kept, and written by [`Self::recover`].
    pub fn write(&mut self, batch: Batch) -> Result<(), StoreError> {
        let bytes = batch.bytes.len() as u64;
        self.unsynced.push(batch);
        if self.segment.written.at + bytes > self.segment.bytes {
            // The batch is not in this segment, and goes to the next one.
            let batch = self.unsynced.pop();
            let rolled = self.roll();
            self.unsynced.extend(batch);
            rolled?;
        }
        self.segment.write_last(&mut self.unsynced, &*self.disk)
    }

    /// Puts all batches on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. What was not synced before is then not relied on: it is kept, and
    /// written again by [`Self::recover`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.segment.sync(&*self.disk)?;
        self.unsynced.clear();
        Ok(())
    }

    /// Goes on in a new segment, after putting all batches on stable storage. If there are none
    /// in this one, it is new.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn roll(&mut self) -> Result<(), StoreError> {
        self.sync()?;
        if self.segment.written.at == SegmentHeader::BYTES as u64 {
            return Ok(());
        }
        self.segment = Segment::create(&*self.disk, self.segment.end(), self.segment_bytes)?;
        Ok(())
    }

    /// After an error: gives this segment up behind the last place that was synced, and writes
    /// the batches from there on to a new one. Returns when they are on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; to be tried again.
    pub fn recover(&mut self) -> Result<(), StoreError> {
        let bytes: usize = self.unsynced.iter().map(|batch| batch.bytes.len()).sum();
        let bytes = SegmentHeader::BYTES as u64 + bytes as u64;
        let end = self.segment.end();
        let mut segment = Segment::create(&*self.disk, end, bytes.max(self.segment_bytes))?;
        for place in 0..self.unsynced.len() {
            segment.write_last(
                self.unsynced.get_mut(..=place).unwrap_or_default(),
                &*self.disk,
            )?;
        }
        segment.sync(&*self.disk)?;
        self.segment = segment;
        self.unsynced.clear();
        Ok(())
    }
}

impl Segment {
    /// Makes a segment behind the end of the log, and returns when it is on stable storage.
    fn create(disk: &dyn Disk, end: LogEnd, bytes: u64) -> Result<Self, StoreError> {
        let sequence = end.sequence + 1;
        let (name, temporary) = (file_name(sequence), format!("{}.tmp", file_name(sequence)));
        let failed = |error| StoreError::io("open", disk.path().join(&name), error);
        let salt = getrandom::u64().map_err(|error| failed(error.into()))?;
        let header = SegmentHeader {
            sequence,
            salt,
            previous_end: end.at,
            previous_checksum: end.checksum,
        };
        let created = || {
            let file = disk.create(&temporary)?;
            file.reserve(bytes)?;
            file.write_all_at(&header.encode(), 0)?;
            file.sync()?;
            disk.rename(&temporary, &name)?;
            disk.sync()?;
            Ok(file)
        };
        let file = created().map_err(failed)?;
        let begin = Position {
            at: SegmentHeader::BYTES as u64,
            checksum: salt,
        };
        Ok(Self {
            file,
            sequence,
            salt,
            bytes,
            written: begin,
            synced: begin,
        })
    }

    /// The end of the log, if nothing behind what has been synced is of it.
    fn end(&self) -> LogEnd {
        LogEnd {
            sequence: self.sequence,
            at: self.synced.at,
            checksum: self.synced.checksum,
        }
    }

    /// Writes the last of the batches.
    fn write_last(&mut self, batches: &mut [Batch], disk: &dyn Disk) -> Result<(), StoreError> {
        let Some(Batch { bytes }) = batches.last_mut() else {
            return Ok(());
        };
        let Position { at, checksum } = self.written;
        let checksum = BatchHeader::write(bytes, self.salt, self.synced.at, checksum);
        let written = self.file.write_all_at(bytes, at);
        written.map_err(|error| self.failed("write", disk, error))?;
        self.written = Position {
            at: at + bytes.len() as u64,
            checksum,
        };
        Ok(())
    }

    fn sync(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        if self.synced.at < self.written.at {
            let synced = self.file.sync();
            synced.map_err(|error| self.failed("sync", disk, error))?;
            self.synced = self.written;
        }
        Ok(())
    }

    fn failed(&self, action: &'static str, disk: &dyn Disk, error: io::Error) -> StoreError {
        StoreError::io(action, disk.path().join(file_name(self.sequence)), error)
    }
}
