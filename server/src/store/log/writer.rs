//! Writes the log, one batch after the other.

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    batch::{Batch, BatchHeader},
    reader::LogEnd,
    segment::{SegmentHeader, file_name},
};
use crate::store::{Disk, DiskFile, StoreError};

/// The end of the log, where batches are added.
///
/// What has been written but not synced is kept in memory: where the disk fails, it is written
/// again to a [new segment](Self::recover).
#[derive(Debug)]
pub struct LogWriter {
    disk: Arc<dyn Disk>,
    segment: Segment,
    /// The end of the log. In an earlier segment if there are no batches in this one.
    written: LogEnd,
    /// The end of what is on stable storage.
    synced: LogEnd,
    /// What is between the two, with the end of each batch.
    unsynced: VecDeque<(LogEnd, Batch)>,
    unsynced_bytes: u64,
    spent: Vec<Batch>,
}

/// A segment without batches, on stable storage.
#[derive(Debug)]
pub struct Segment {
    file: Arc<dyn DiskFile>,
    sequence: u64,
    salt: u64,
    /// The room that is kept for it.
    bytes: u64,
}

/// Batches that have been written, to be put on stable storage while others are written.
#[derive(Debug)]
pub struct PendingSync {
    file: Arc<dyn DiskFile>,
    /// Their end.
    end: LogEnd,
    /// Where the file is, for messages.
    path: std::path::PathBuf,
}

impl Segment {
    /// The bytes of a segment that no batch can take.
    pub const OVERHEAD_BYTES: u64 = SegmentHeader::BYTES as u64;

    /// Makes the segment of a number, with room kept for so many bytes, and returns when it is
    /// on stable storage. One of the same number is replaced.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn create(disk: &dyn Disk, sequence: u64, bytes: u64) -> Result<Self, StoreError> {
        let (name, temporary) = (file_name(sequence), format!("{}.tmp", file_name(sequence)));
        let create = || {
            let salt = getrandom::u64()?;
            let file = disk.create(&temporary)?;
            file.reserve(bytes)?;
            file.write_all_at(&SegmentHeader { sequence, salt }.encode(), 0)?;
            file.sync()?;
            disk.rename(&temporary, &name)?;
            disk.sync()?;
            Ok(Self {
                file: file.into(),
                sequence,
                salt,
                bytes,
            })
        };
        create().map_err(|error| StoreError::io("open", disk.path().join(&name), error))
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.sequence
    }

    /// The room for batches in it.
    pub fn room_bytes(&self) -> u64 {
        self.bytes.saturating_sub(Self::OVERHEAD_BYTES)
    }
}

impl PendingSync {
    /// Returns when the batches are on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the segment must then not be relied on any more.
    pub fn run(&self) -> Result<(), StoreError> {
        let synced = self.file.sync();
        synced.map_err(|error| StoreError::io("sync", &self.path, error))?;
        // What has been synced is read after a crash at the earliest. If the system keeps it,
        // what comes next goes to memory that it has to find first.
        self.file.forget();
        Ok(())
    }
}

impl LogWriter {
    /// Writes behind the end of a log, to a segment with the next number.
    pub fn new(disk: Arc<dyn Disk>, end: LogEnd, segment: Segment) -> Self {
        Self {
            disk,
            segment,
            written: end,
            synced: end,
            unsynced: VecDeque::new(),
            unsynced_bytes: 0,
            spent: Vec::new(),
        }
    }

    /// The directory that it writes to.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The number of the segment that is written to.
    pub fn sequence(&self) -> u64 {
        self.segment.sequence
    }

    /// The number of the segment to [recover](Self::recover) in: this one again if nothing of it
    /// is on stable storage.
    pub fn sequence_to_recover(&self) -> u64 {
        self.synced.sequence + 1
    }

    /// The room that is left in the segment that is written to.
    pub fn room_bytes(&self) -> u64 {
        self.segment.bytes.saturating_sub(self.at())
    }

    /// How much has been written that is not on stable storage.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes
    }

    /// What has been written that is not on stable storage.
    pub fn unsynced(&self) -> impl Iterator<Item = &Batch> {
        self.unsynced.iter().map(|(_, batch)| batch)
    }

    /// Where the next batch begins.
    fn at(&self) -> u64 {
        self.in_this_segment(self.written)
    }

    /// Where this segment ends if the log ended there.
    fn in_this_segment(&self, end: LogEnd) -> u64 {
        if end.sequence == self.segment.sequence {
            end.at
        } else {
            SegmentHeader::BYTES as u64
        }
    }

    /// Writes a batch to the segment, which has room for it. It is on stable storage after
    /// [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. The batch is then kept, and written by [`Self::recover`].
    pub fn write(&mut self, mut batch: Batch) -> Result<(), StoreError> {
        self.unsynced_bytes += batch.bytes();
        // A copy of a small one, or its memory for a large one would be kept as well.
        let kept = if batch.bytes.len() < batch.bytes.capacity() / 2 {
            let bytes = batch.bytes.clone();
            batch.clear();
            self.spent.push(batch);
            Batch { bytes }
        } else {
            batch
        };
        self.unsynced.push_back((self.written, kept));
        self.write_kept(self.unsynced.len() - 1)
    }

    /// The memory of a batch that is no longer kept, for another.
    pub fn spent(&mut self) -> Option<Batch> {
        self.spent.pop()
    }

    /// Writes one of the batches that are kept.
    fn write_kept(&mut self, index: usize) -> Result<(), StoreError> {
        let (at, synced) = (self.at(), self.in_this_segment(self.synced));
        let is_first = self.written.sequence != self.segment.sequence;
        let synced = if is_first { self.written.at } else { synced };
        let Some((end, Batch { bytes })) = self.unsynced.get_mut(index) else {
            return Ok(());
        };
        let checksum = BatchHeader::write(bytes, self.segment.salt, synced, self.written.checksum);
        *end = LogEnd {
            sequence: self.segment.sequence,
            at: at + bytes.len() as u64,
            checksum,
        };
        let end = *end;
        let written = self.segment.file.write_all_at(bytes, at);
        written.map_err(|error| self.failed("write", error))?;
        self.written = end;
        Ok(())
    }

    /// Puts all batches on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. What was not synced before is then not relied on: it is kept, and
    /// written again by [`Self::recover`].
    pub fn sync(&mut self) -> Result<(), StoreError> {
        match self.begin_sync() {
            None => Ok(()),
            Some(sync) => {
                sync.run()?;
                self.end_sync(&sync);
                Ok(())
            }
        }
    }

    /// What a sync has to do, if there is anything to be synced.
    pub fn begin_sync(&self) -> Option<PendingSync> {
        (!self.unsynced.is_empty()).then(|| PendingSync {
            file: self.segment.file.clone(),
            end: self.written,
            path: self.path(),
        })
    }

    /// Notes that a sync has been [run](PendingSync::run).
    pub fn end_sync(&mut self, sync: &PendingSync) {
        self.synced = sync.end;
        while let Some((end, _)) = self.unsynced.front()
            && end.at <= sync.end.at
            && let Some((_, mut batch)) = self.unsynced.pop_front()
        {
            self.unsynced_bytes -= batch.bytes();
            batch.clear();
            self.spent.push(batch);
        }
    }

    /// Goes on in a segment with the next number, after putting all batches on stable storage:
    /// or the new segment might be found, and not what it goes on from.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn roll(&mut self, next: Segment) -> Result<(), StoreError> {
        self.sync()?;
        self.segment = next;
        Ok(())
    }

    /// After an error: gives this segment up behind the last place that was synced, and writes
    /// the batches from there on to another, of [this number](Self::sequence_to_recover). Returns
    /// when they are on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; to be tried again, with another segment.
    pub fn recover(&mut self, next: Segment) -> Result<(), StoreError> {
        let failed = std::mem::replace(&mut self.segment, next);
        self.written = self.synced;
        let mut written = Ok(());
        for index in 0..self.unsynced.len() {
            written = written.and_then(|()| self.write_kept(index));
        }
        let recovered = written.and_then(|()| self.sync());
        if recovered.is_err() {
            // What is written next replaces what was written just now.
            self.segment = failed;
            self.written = self.synced;
        }
        recovered
    }

    fn path(&self) -> std::path::PathBuf {
        self.disk.path().join(file_name(self.segment.sequence))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> StoreError {
        StoreError::io(action, self.path(), error)
    }
}
