//! Writes the log, one batch after the other.

use std::{collections::VecDeque, io, mem, sync::Arc};

use super::{
    batch::{Batch, BatchHeader},
    found::LogEnd,
    piece::Piece,
    record::Record,
    segment::{SegmentHeader, file_name},
    tail::Tail,
};
use crate::{
    planted::Bug,
    store::{Disk, DiskFile, StoreError},
};

/// The end of the log, where batches are appended.
///
/// Batches are gathered in memory, and go to the segment in large pieces. Batches that are not on
/// stable storage are kept. If the disk fails, they are written again to a [new
/// segment](Self::recover).
#[derive(Debug)]
pub struct LogWriter {
    disk: Arc<dyn Disk>,
    segment: Segment,
    /// The segment before and its end. It is set from when that segment failed until its lost
    /// batches are in another segment.
    given_up: Option<(Segment, u64)>,
    tail: Option<Tail>,
    /// The end of the log. It is in an earlier segment if this one has no batches.
    written: LogEnd,
    /// The end of the part that is on stable storage.
    synced: LogEnd,
    /// The piece that is to be written to the segment.
    filling: Piece,
    /// The pieces that are being put on stable storage, or could not be.
    syncing: VecDeque<Arc<Piece>>,
    /// The memory of a piece that is on stable storage now.
    spare: Piece,
}

/// A segment without batches, on stable storage.
#[derive(Debug)]
pub struct Segment {
    /// `None` if it is [missing](Self::missing).
    file: Option<Arc<dyn DiskFile>>,
    sequence: u64,
    salt: u64,
    /// The room that is reserved for it.
    bytes: u64,
}

/// Batches to be put on stable storage while others are gathered.
#[derive(Debug)]
pub struct PendingSync {
    file: Option<Arc<dyn DiskFile>>,
    piece: Arc<Piece>,
    /// The end of these batches.
    end: LogEnd,
    /// The path of the file, for messages.
    path: std::path::PathBuf,
}

impl Segment {
    /// The bytes of a segment that no batch can take.
    pub const OVERHEAD_BYTES: u64 = SegmentHeader::BYTES as u64;

    /// Creates the segment with number `sequence`, with `bytes` bytes reserved, and returns when it
    /// is on stable storage. Replaces a segment with the same number. A segment that cannot be
    /// created takes no room.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn create(disk: &dyn Disk, sequence: u64, bytes: u64) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("open", disk.path().join(file_name(sequence)), error);
        let salt = new_salt().map_err(failed)?;
        Self::create_salted(disk, sequence, bytes, salt)
    }

    fn create_salted(
        disk: &dyn Disk,
        sequence: u64,
        bytes: u64,
        salt: u64,
    ) -> Result<Self, StoreError> {
        let (name, temporary) = (file_name(sequence), format!("{}.tmp", file_name(sequence)));
        let create = || {
            let file = disk.create(&temporary)?;
            file.reserve(Piece::padded(bytes))?;
            file.write_all_at(&SegmentHeader { sequence, salt }.encode(), 0)?;
            file.sync()?;
            file.bypass_cache();
            disk.rename(&temporary, &name)?;
            disk.sync()?;
            Ok(Self {
                file: Some(file.into()),
                sequence,
                salt,
                bytes,
            })
        };
        create().map_err(|error| {
            // The kernel may have reserved a part of the room, which others can use.
            let _ = disk.remove(&temporary);
            StoreError::io("open", disk.path().join(&name), error)
        })
    }

    /// Returns a stand-in for a segment when there is none to write to. It has no room for a batch,
    /// and a sync of it fails. `sequence` is the number of a segment that exists.
    pub fn missing(sequence: u64) -> Self {
        Self {
            file: None,
            sequence,
            salt: 0,
            bytes: 0,
        }
    }

    /// Releases the space after an offset, at which the log ended in this segment. The change need
    /// not reach the disk: nothing is read there.
    fn close(&self, at: u64) {
        if let Some(file) = &self.file {
            // A failure only wastes disk space, which the next start releases too.
            let _ = file.cut_off(at);
        }
    }

    /// Returns the number of the segment.
    pub fn number(&self) -> u64 {
        self.sequence
    }

    /// Returns the room for batches in the segment.
    pub fn room_bytes(&self) -> u64 {
        self.bytes.saturating_sub(Self::OVERHEAD_BYTES)
    }

    fn header(&self) -> [u8; SegmentHeader::BYTES] {
        let &Self { sequence, salt, .. } = self;
        SegmentHeader { sequence, salt }.encode()
    }
}

#[cfg(not(fuzzing))]
fn new_salt() -> io::Result<u64> {
    Ok(getrandom::u64()?)
}

#[cfg(fuzzing)]
fn new_salt() -> io::Result<u64> {
    Ok(crate::store::fuzzing::next_salt())
}

impl PendingSync {
    /// Writes the batches, and returns when they are on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the segment must then not be relied on any more.
    pub fn run(&self) -> Result<(), StoreError> {
        self.write(self.piece.pages(), self.piece.at())
    }

    /// Does the same as [`Self::run`] at the beginning of a segment, but writes the first page
    /// last. So the segment has none of the batches before it has all of them, except batches that
    /// end in the first page.
    fn run_backwards(&self) -> Result<(), StoreError> {
        let (first, rest) = self.piece.split_first_page();
        if !rest.is_empty() {
            self.write(rest, first.len() as u64)?;
        }
        self.write(first, 0)
    }

    fn write(&self, pages: &[u8], at: u64) -> Result<(), StoreError> {
        let failed = |action| move |error| StoreError::io(action, &self.path, error);
        let missing = || failed("write")(io::ErrorKind::NotFound.into());
        let file = self.file.as_ref().ok_or_else(missing)?;
        let written = file.write_all_at(pages, at);
        written.map_err(failed("write"))?;
        file.sync().map_err(failed("sync"))
    }
}

impl LogWriter {
    /// Returns a writer that goes on after the end of a log, in a segment with the next number. If
    /// the segment is [missing](Segment::missing), the writer has none until it has
    /// [recovered](Self::recover).
    pub fn new(disk: Arc<dyn Disk>, end: LogEnd, segment: Segment) -> Self {
        let mut filling = Piece::default();
        filling.restart(&segment.header());
        Self {
            disk,
            segment,
            given_up: None,
            tail: None,
            written: end,
            synced: end,
            filling,
            syncing: VecDeque::new(),
            spare: Piece::default(),
        }
    }

    /// Begins a log at segment `sequence`, with `bytes` bytes reserved.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn begin(disk: Arc<dyn Disk>, sequence: u64, bytes: u64) -> Result<Self, StoreError> {
        let segment = Segment::create(&*disk, sequence, bytes)?;
        let before = LogEnd {
            sequence: sequence.saturating_sub(1),
            ..LogEnd::default()
        };
        Ok(Self::new(disk, before, segment))
    }

    /// Creates a segment of `bytes` bytes, and [goes on](Self::roll) in it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn go_on(&mut self, bytes: u64) -> Result<(), StoreError> {
        let next = Segment::create(&*self.disk, self.sequence() + 1, bytes)?;
        self.roll(next)
    }

    /// From now on passes each batch to the kernel at once, in a [tail](Tail) of `bytes` bytes.
    /// Batches written before must be synced: the tail does not have them.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn begin_tail(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.tail = Some(Tail::create(&*self.disk, bytes)?);
        Ok(())
    }

    /// Returns whether the kernel has all written batches. Without a tail it has only the synced
    /// ones.
    pub fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Runs [`Disk::check`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] with the file that was removed or replaced.
    pub fn check_files(&self) -> Result<(), StoreError> {
        let checked = self.disk.check();
        checked.map_err(|error| StoreError::io("go on in", self.disk.path(), error))
    }

    /// Returns the directory that it writes to.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns whether there is a segment to write to.
    pub fn has_segment(&self) -> bool {
        self.segment.file.is_some()
    }

    /// Returns the number of the segment that is written to. If there is none, returns the number
    /// of a segment that exists.
    pub fn sequence(&self) -> u64 {
        self.segment.sequence
    }

    /// Returns the number of the segment to [recover](Self::recover) in. It is the number of the
    /// current segment if nothing of that is on stable storage.
    pub fn sequence_to_recover(&self) -> u64 {
        self.synced.sequence + 1
    }

    /// Creates the segment to recover in, with `bytes` bytes reserved.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn segment_to_recover(&self, bytes: u64) -> Result<Segment, StoreError> {
        let (disk, number) = (&*self.disk, self.sequence_to_recover());
        if number == self.segment.sequence
            && self.segment.file.is_some()
            && self.given_up.is_none()
            && !Bug::SaltNotKept.is_planted()
        {
            // The batches in the tail belong to this segment, and would not be read with another
            // salt.
            return Segment::create_salted(disk, number, bytes, self.segment.salt);
        }
        // A segment with this number failed too or was made ahead. It has no batches that are
        // needed, but perhaps the room.
        if let Ok(replaced) = disk.open_to_write(&file_name(number)) {
            let _ = replaced.cut_off(Segment::OVERHEAD_BYTES);
        }
        Segment::create(disk, number, bytes)
    }

    /// Returns the room that is left in the segment that is written to.
    pub fn room_bytes(&self) -> u64 {
        self.segment.bytes.saturating_sub(self.at())
    }

    /// Returns the length of the written batches that are not on stable storage.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_pieces().map(Piece::batch_bytes).sum()
    }

    /// Returns the limit for [`Self::unsynced_bytes`].
    pub fn max_unsynced_bytes(&self) -> u64 {
        self.tail.as_ref().map_or(Tail::MAX_BYTES, Tail::bytes)
    }

    /// Returns the written records that are not on stable storage.
    pub fn unsynced(&self) -> impl Iterator<Item = Record> {
        self.unsynced_pieces().flat_map(Piece::records)
    }

    fn unsynced_pieces(&self) -> impl Iterator<Item = &Piece> {
        let syncing = self.syncing.iter().map(|piece| &**piece);
        syncing.chain([&self.filling])
    }

    /// Returns the offset at which the next batch begins.
    fn at(&self) -> u64 {
        self.in_this_segment(self.written)
    }

    /// Returns the offset at which this segment ends if the log ends at `end`.
    fn in_this_segment(&self, end: LogEnd) -> u64 {
        if end.sequence == self.segment.sequence {
            end.at
        } else {
            SegmentHeader::BYTES as u64
        }
    }

    /// Writes a batch. The segment must have room for it. The batch is on stable storage after
    /// [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], if the [tail](Self::begin_tail) failed. The batch is written
    /// nevertheless, but from now on there is no tail.
    pub fn write(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        let at = self.at();
        self.gather(batch);
        if let Some(tail) = &self.tail
            && let Err(error) = tail.write(&batch.bytes, at)
        {
            self.tail = None;
            let path = self.disk.path().join(Tail::FILE);
            return Err(StoreError::io("write", path, error));
        }
        Ok(())
    }

    fn gather(&mut self, Batch { bytes }: &mut Batch) {
        let (at, synced) = (self.at(), self.in_this_segment(self.synced));
        let is_first = self.written.sequence != self.segment.sequence;
        let synced = if is_first { self.written.at } else { synced };
        let checksum = BatchHeader::write(bytes, self.segment.salt, synced, self.written.checksum);
        self.filling.push(bytes);
        self.written = LogEnd {
            sequence: self.segment.sequence,
            at: at + bytes.len() as u64,
            checksum,
        };
    }

    /// Puts all batches on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. Batches that were not synced before must then not be relied on. They are
    /// kept, and [`Self::recover`] writes them again.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        match self.begin_sync() {
            None => Ok(()),
            Some(sync) => {
                sync.run()?;
                self.end_sync(sync);
                Ok(())
            }
        }
    }

    /// Returns the work of a sync; `None` if there is nothing to sync. The sync before must have
    /// ended.
    pub fn begin_sync(&mut self) -> Option<PendingSync> {
        if self.filling.batch_bytes() == 0 {
            return None;
        }
        let mut next = mem::take(&mut self.spare);
        next.restart_behind(&self.filling);
        let mut piece = mem::replace(&mut self.filling, next);
        piece.close();
        let piece = Arc::new(piece);
        self.syncing.push_back(piece.clone());
        Some(PendingSync {
            file: self.segment.file.clone(),
            piece,
            end: self.written,
            path: self.path(),
        })
    }

    /// Notes that a sync has been [run](PendingSync::run).
    pub fn end_sync(&mut self, sync: PendingSync) {
        self.synced = sync.end;
        self.syncing.pop_front();
        self.spare = Arc::into_inner(sync.piece).unwrap_or_default();
    }

    /// Puts all batches on stable storage, and goes on in a segment with the next number. Without
    /// the sync, a start could find the new segment but not the batches before it.
    ///
    /// # Errors
    ///
    /// As [`Self::sync`].
    pub fn roll(&mut self, next: Segment) -> Result<(), StoreError> {
        self.sync()?;
        self.filling.restart(&next.header());
        self.segment = next;
        Ok(())
    }

    /// Recovers after an error, or if there was no segment. Gives up the current segment after the
    /// last synced offset, and releases the room there. Writes the batches after that offset to
    /// another segment, with [this number](Self::sequence_to_recover). Returns when they are on
    /// stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the caller must retry with another segment.
    pub fn recover(&mut self, next: Segment) -> Result<(), StoreError> {
        let kept = self.unsynced_pieces().flat_map(Piece::batches);
        let mut kept: Vec<Batch> = kept.map(Batch::of).collect();
        if Bug::UnsyncedForgotten.is_planted() {
            kept.clear();
        }
        self.syncing.clear();
        self.filling.restart(&next.header());
        let failed = mem::replace(&mut self.segment, next);
        if failed.sequence == self.synced.sequence {
            if Bug::RoomGivenBackTooEarly.is_planted() {
                failed.close(self.synced.at);
            }
            self.given_up = Some((failed, self.synced.at));
        }
        self.written = self.synced;
        for batch in &mut kept {
            self.gather(batch);
        }
        if let Some(sync) = self.begin_sync() {
            // A segment with batches ends the one before: batches of that one in the tail would not
            // be read any more. So the first batch is written last.
            match Bug::RecoveredInPart.is_planted() {
                true => sync.run()?,
                false => sync.run_backwards()?,
            }
            self.end_sync(sync);
        }
        // Only now: the tail may have batches that belong there.
        if let Some((segment, end)) = self.given_up.take() {
            segment.close(end);
        }
        Ok(())
    }

    fn path(&self) -> std::path::PathBuf {
        self.disk.path().join(file_name(self.segment.sequence))
    }
}
