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

/// The end of the log, where batches are added.
///
/// They are gathered in memory, and go to the segment in large pieces. What is not on stable
/// storage is kept: where the disk fails, it is written again to a [new segment](Self::recover).
#[derive(Debug)]
pub struct LogWriter {
    disk: Arc<dyn Disk>,
    segment: Segment,
    /// The one before, and its end, from when it failed until what it lost is in another.
    given_up: Option<(Segment, u64)>,
    tail: Option<Tail>,
    /// The end of the log. In an earlier segment if there are no batches in this one.
    written: LogEnd,
    /// The end of what is on stable storage.
    synced: LogEnd,
    /// What is to be written to the segment.
    filling: Piece,
    /// What is being put on stable storage, or could not be.
    syncing: VecDeque<Arc<Piece>>,
    /// The memory of one that was.
    spare: Piece,
}

/// A segment without batches, on stable storage.
#[derive(Debug)]
pub struct Segment {
    /// `None` if it is [missing](Self::missing).
    file: Option<Arc<dyn DiskFile>>,
    sequence: u64,
    salt: u64,
    /// The room that is kept for it.
    bytes: u64,
}

/// Batches to be put on stable storage while others are gathered.
#[derive(Debug)]
pub struct PendingSync {
    file: Option<Arc<dyn DiskFile>>,
    piece: Arc<Piece>,
    /// Their end.
    end: LogEnd,
    /// Where the file is, for messages.
    path: std::path::PathBuf,
}

impl Segment {
    /// The bytes of a segment that no batch can take.
    pub const OVERHEAD_BYTES: u64 = SegmentHeader::BYTES as u64;

    /// Makes the segment of a number, with room kept for so many bytes, and returns when it is
    /// on stable storage. One of the same number is replaced. What cannot be made takes no room.
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
            if !Bug::SegmentNameNotSynced.is_planted() {
                disk.sync()?;
            }
            Ok(Self {
                file: Some(file.into()),
                sequence,
                salt,
                bytes,
            })
        };
        create().map_err(|error| {
            // The system may have found a part of the room, which others have a use for.
            let _ = disk.remove(&temporary);
            StoreError::io("open", disk.path().join(&name), error)
        })
    }

    /// What stands for a segment where there is none to write to: no batch has room in it, and
    /// none can be synced. It has the number of one that is there.
    pub fn missing(sequence: u64) -> Self {
        Self {
            file: None,
            sequence,
            salt: 0,
            bytes: 0,
        }
    }

    /// Gives back the room behind a place, where the log has ended in this segment. That need
    /// not reach the disk: nothing is read there.
    fn close(&self, at: u64) {
        if let Some(file) = &self.file {
            // Only room on the disk is at stake, and the next start gives it back too.
            let _ = file.cut_off(at);
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.sequence
    }

    /// The room for batches in it.
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
    /// Returns when the batches are on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the segment must then not be relied on any more.
    pub fn run(&self) -> Result<(), StoreError> {
        self.write(self.piece.pages(), self.piece.at())
    }

    /// As [`Self::run`], at the beginning of a segment. It has none of the batches before it has
    /// all, but for those that end in the first page.
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
        if Bug::LogNotSynced.is_planted() {
            return Ok(());
        }
        match file.sync().map_err(failed("sync")) {
            Err(_) if Bug::FailedSyncBelieved.is_planted() => Ok(()),
            synced => synced,
        }
    }
}

impl LogWriter {
    /// Writes behind the end of a log, to a segment with the next number; or to none, until it
    /// has [recovered](Self::recover), if that is [missing](Segment::missing).
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

    /// Begins a log at the segment of a number, with room kept for so many bytes.
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

    /// [Goes on](Self::roll) in a segment of so many bytes, which it makes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn go_on(&mut self, bytes: u64) -> Result<(), StoreError> {
        let next = Segment::create(&*self.disk, self.sequence() + 1, bytes)?;
        self.roll(next)
    }

    /// From now on hands batches to the system at once, in a [tail](Tail) of so many bytes. What
    /// was written before has to be synced: the tail does not have it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn begin_tail(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.tail = Some(Tail::create(&*self.disk, bytes)?);
        Ok(())
    }

    /// Whether the system has what has been written. If not, it has what is synced alone.
    pub fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// As [`Disk::check`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] with the one that is not.
    pub fn check_files(&self) -> Result<(), StoreError> {
        let checked = self.disk.check();
        checked.map_err(|error| StoreError::io("go on in", self.disk.path(), error))
    }

    /// The directory that it writes to.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Whether there is a segment to write to.
    pub fn has_segment(&self) -> bool {
        self.segment.file.is_some()
    }

    /// The number of the segment that is written to, or else of one that is there.
    pub fn sequence(&self) -> u64 {
        self.segment.sequence
    }

    /// The number of the segment to [recover](Self::recover) in: this one again if nothing of it
    /// is on stable storage.
    pub fn sequence_to_recover(&self) -> u64 {
        self.synced.sequence + 1
    }

    /// Makes that segment, with room kept for so many bytes.
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
            // What the tail has belongs there, and with another salt would not be read any more.
            return Segment::create_salted(disk, number, bytes, self.segment.salt);
        }
        // One that has failed in its turn, or was made ahead, has no batches that are needed, and
        // perhaps the room.
        if let Ok(replaced) = disk.open_to_write(&file_name(number)) {
            let _ = replaced.cut_off(Segment::OVERHEAD_BYTES);
        }
        Segment::create(disk, number, bytes)
    }

    /// The room that is left in the segment that is written to.
    pub fn room_bytes(&self) -> u64 {
        self.segment.bytes.saturating_sub(self.at())
    }

    /// How much has been written that is not on stable storage.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_pieces().map(Piece::batch_bytes).sum()
    }

    /// How much that may be.
    pub fn max_unsynced_bytes(&self) -> u64 {
        self.tail.as_ref().map_or(Tail::MAX_BYTES, Tail::bytes)
    }

    /// What has been written that is not on stable storage.
    pub fn unsynced(&self) -> impl Iterator<Item = Record> {
        self.unsynced_pieces().flat_map(Piece::records)
    }

    fn unsynced_pieces(&self) -> impl Iterator<Item = &Piece> {
        let syncing = self.syncing.iter().map(|piece| &**piece);
        syncing.chain([&self.filling])
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

    /// Writes a batch, for which the segment has room. It is on stable storage after
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
    /// [`StoreError::Io`]. What was not synced before is then not relied on: it is kept, and
    /// written again by [`Self::recover`].
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

    /// What a sync has to do, if there is anything to be synced. The one before must have ended.
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

    /// Goes on in a segment with the next number, after putting all batches on stable storage:
    /// or the new segment might be found, and not what it goes on from.
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

    /// After an error, or if there was no segment: gives this one up behind the last place that
    /// was synced, with the room there, and writes the batches from there on to another, of
    /// [this number](Self::sequence_to_recover). Returns when they are on stable storage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; to be tried again, with another segment.
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
            // A segment with batches ends the one before: what the tail has of that would not be
            // read any more. So the first batch comes last.
            match Bug::RecoveredInPart.is_planted() {
                true => sync.run()?,
                false => sync.run_backwards()?,
            }
            self.end_sync(sync);
        }
        // Not before: the tail may have batches that belong there.
        if let Some((segment, end)) = self.given_up.take() {
            segment.close(end);
        }
        Ok(())
    }

    fn path(&self) -> std::path::PathBuf {
        self.disk.path().join(file_name(self.segment.sequence))
    }
}
