//! Reads the batches of a segment, and finds its end.

use std::{collections::HashSet, ops::ControlFlow, path::PathBuf};

use super::{
    batch::{self, BatchHeader, MAX_BODY_BYTES},
    found::{FoundLog, FromTail, LogEnd, Torn},
    record::{self, Record},
    segment::{SegmentHeader, file_name},
    tail::{Tail, TailCopy},
};
use crate::{
    planted::Bug,
    store::{Disk, DiskFile, OnDamage, StoreError},
};

/// The bytes of a segment that are read at once in a search for batches.
const MAX_PIECE_BYTES: u64 = 1 << 20;

/// The knowledge about the end of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The header of the first batch of the next segment. It says where this segment ends.
    Told(BatchHeader),
    /// The segment is the last one.
    Open,
    /// The end is unknown, because the next segment is damaged.
    Lost,
}

/// The reason why reading ended early.
enum Broken<E> {
    Store(StoreError),
    Visit(E),
}

impl<E> From<StoreError> for Broken<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A segment, and how far it has been read.
pub(super) struct SegmentReader<'a> {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    tail: &'a TailCopy,
    bytes: u64,
    header: SegmentHeader,
    /// The end of what has been read.
    at: u64,
    /// The checksum of the last batch before that end.
    checksum: u64,
    /// The offset up to which the segment is on stable storage, according to the batches. Each
    /// batch holds the offset that was reached when it was written.
    synced: u64,
    /// The checksums of all batches that were read, if there is a tail.
    checksums: HashSet<u64>,
}

impl<'a> SegmentReader<'a> {
    pub(super) fn open(
        disk: &dyn Disk,
        tail: &'a TailCopy,
        sequence: u64,
    ) -> Result<Self, StoreError> {
        let name = file_name(sequence);
        let path = disk.path().join(&name);
        let failed = |error| StoreError::io("read", &path, error);
        let file = disk.open(&name).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        if bytes < SegmentHeader::BYTES as u64 {
            return Err(StoreError::Damaged {
                path,
                what: "length of the file".to_owned(),
                expected: format!("at least {} bytes", SegmentHeader::BYTES),
                found: format!("{bytes} bytes"),
            });
        }
        let mut header = [0; SegmentHeader::BYTES];
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let header = SegmentHeader::decode(&header, sequence, &path)?;
        Ok(Self {
            path,
            file,
            tail,
            bytes,
            header,
            at: SegmentHeader::BYTES as u64,
            checksum: 0,
            synced: SegmentHeader::BYTES as u64,
            checksums: HashSet::new(),
        })
    }

    /// Returns the header of the first batch, if that batch is whole.
    pub(super) fn first_batch(&self) -> Result<Option<BatchHeader>, StoreError> {
        let at = SegmentHeader::BYTES as u64;
        Ok(self
            .batch_or_tail(at, &mut Vec::new())?
            .map(|(header, _)| header))
    }

    /// Returns the end of the part that has been read.
    pub(super) fn end(&self) -> LogEnd {
        LogEnd {
            sequence: self.header.sequence,
            at: self.at,
            checksum: self.checksum,
        }
    }

    /// Returns the offset up to which the part that has been read is certainly on stable storage.
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// Reads batches up to the end.
    pub(super) fn read<E: From<StoreError>>(
        &mut self,
        end: End,
        visit: &mut impl FnMut(Record) -> Result<(), E>,
        found: &mut FoundLog,
        on_damage: OnDamage<'_>,
    ) -> Result<(), E> {
        let mut until = match end {
            End::Told(next) => next.synced,
            End::Open | End::Lost => self.bytes,
        };
        // Whether a batch is read even if it does not follow the one before: the first batch, or a
        // batch after damage.
        let mut begins = true;
        loop {
            let error = match self.read_chain(begins, until, visit, found, on_damage) {
                Ok(()) => match end {
                    End::Told(next) if (self.at, self.checksum) == (next.synced, next.previous) => {
                        return Ok(());
                    }
                    End::Told(_) => self.damaged(self.at, "a whole batch"),
                    End::Open => match self.torn() {
                        Ok(torn) => {
                            found.torn = torn.or_else(|| self.torn_tail(found.end.checksum));
                            return Ok(());
                        }
                        Err(error) => error,
                    },
                    End::Lost => match self.next_whole()? {
                        None => return Ok(()),
                        Some(_) => self.damaged(self.at, "a whole batch"),
                    },
                },
                Err(Broken::Store(error)) => error,
                Err(Broken::Visit(error)) => return Err(error),
            };
            error.handle(on_damage)?;
            // The end of the segment is not known for certain any more.
            (begins, until) = (true, self.bytes);
            match self.next_whole() {
                Ok(Some(at)) => self.at = at,
                Ok(None) => return Ok(()),
                Err(error) => return Ok(error.handle(on_damage)?),
            }
        }
    }

    /// Reads batches as long as they are whole, begin before `until`, and each follows the one
    /// before. If `begins` is set, the first batch need not follow the one before.
    fn read_chain<E: From<StoreError>>(
        &mut self,
        mut begins: bool,
        until: u64,
        visit: &mut impl FnMut(Record) -> Result<(), E>,
        found: &mut FoundLog,
        on_damage: OnDamage<'_>,
    ) -> Result<(), Broken<E>> {
        let mut batch = Vec::new();
        while self.at < until {
            let Some((header, is_from_tail)) = self.batch_or_tail(self.at, &mut batch)? else {
                break;
            };
            let follows = header.previous == self.checksum && header.synced <= self.at;
            if !begins && !follows && !Bug::BatchesNotChained.is_planted() {
                break;
            }
            // In the first batch of a segment, `synced` is an offset in the segment before.
            if self.at > SegmentHeader::BYTES as u64 {
                self.synced = header.synced;
            }
            begins = false;
            let records = batch.get(BatchHeader::BYTES..);
            let mut records = records.expect("a batch begins with its header");
            while !records.is_empty() {
                let Some(record) = record::decode(&mut records) else {
                    on_damage(self.damaged(self.at, "a whole record"))?;
                    break;
                };
                visit(record).map_err(Broken::Visit)?;
            }
            if is_from_tail {
                found.from_tail.push(FromTail {
                    sequence: self.header.sequence,
                    at: self.at,
                    batch: batch.clone(),
                });
            }
            let behind = self.at + batch.len() as u64;
            if Bug::TailCutTooFar.is_planted()
                && self.batch_or_tail(behind, &mut Vec::new())?.is_none()
            {
                break;
            }
            self.at += batch.len() as u64;
            self.checksum = header.checksum;
            if !self.tail.is_empty() {
                self.checksums.insert(header.checksum);
            }
        }
        Ok(())
    }

    /// Reads the batch at an offset, and returns whether it is from the tail; `None` if neither the
    /// file nor the tail has a whole one.
    fn batch_or_tail(
        &self,
        at: u64,
        batch: &mut Vec<u8>,
    ) -> Result<Option<(BatchHeader, bool)>, StoreError> {
        if let Some(header) = self.batch(at, batch)? {
            return Ok(Some((header, false)));
        }
        let header = self.tail.batch(at, self.header.salt, batch);
        let fits = |_: &BatchHeader| batch.len() as u64 <= self.bytes.saturating_sub(at);
        Ok(header.filter(fits).map(|header| (header, true)))
    }

    /// Reads the batch at an offset of the file; `None` if there is no whole one.
    fn batch(&self, at: u64, batch: &mut Vec<u8>) -> Result<Option<BatchHeader>, StoreError> {
        let failed = |error| StoreError::io("read", &self.path, error);
        batch.clear();
        let left = self.bytes.saturating_sub(at);
        if left < BatchHeader::BYTES as u64 {
            return Ok(None);
        }
        let mut head = [0; BatchHeader::BYTES];
        self.file.read_exact_at(&mut head, at).map_err(failed)?;
        let Some(header) = BatchHeader::read(&head) else {
            return Ok(None);
        };
        let bytes = BatchHeader::BYTES + header.body_bytes;
        if left < bytes as u64 {
            return Ok(None);
        }
        batch.resize(bytes, 0);
        self.file.read_exact_at(batch, at).map_err(failed)?;
        let is_whole = batch::checksum(batch, self.header.salt) == header.checksum;
        Ok(is_whole.then_some(header))
    }

    /// Returns the torn bytes after the end of the last segment.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if the segment once went on from here, and that part was relied on.
    fn torn(&self) -> Result<Option<Torn>, StoreError> {
        let last = self.search(|at, header| match at > self.at && header.synced > self.at {
            true => Err(self.damaged(self.at, "a whole batch")),
            false => Ok(ControlFlow::Continue(())),
        })?;
        Ok(last.map(|last| Torn {
            path: self.path.clone(),
            at: self.at,
            bytes: last - self.at,
            is_cut_off: false,
        }))
    }

    /// Returns the tail as torn, if it has a batch that follows the end of the last segment but is
    /// not as it was written. A power cut can leave that, or a disk that damages files. `before` is
    /// the checksum of the last batch in the segments before this one.
    fn torn_tail(&self, before: u64) -> Option<Torn> {
        let (tail, salt) = (self.tail, self.header.salt);
        let before = match self.at > SegmentHeader::BYTES as u64 {
            true => self.checksum,
            false => before,
        };
        let went_on = tail.went_on(self.at, salt, before, &self.checksums);
        went_on.then(|| Torn {
            path: self.path.with_file_name(Tail::FILE),
            // The file is circular, so all of it is reported.
            at: 0,
            bytes: tail.bytes(),
            is_cut_off: false,
        })
    }

    /// Returns the offset of the first whole batch from the current offset on.
    fn next_whole(&self) -> Result<Option<u64>, StoreError> {
        let mut next = None;
        self.search(|at, _| {
            next = Some(at);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(next)
    }

    /// Passes the whole batches from the current offset on to `visit`, wherever they begin, until
    /// `visit` breaks off. Returns the end of the last byte that is not 0, among the bytes that
    /// were looked at.
    fn search(
        &self,
        mut visit: impl FnMut(u64, BatchHeader) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let mut last = None;
        let rest = self.bytes.saturating_sub(self.at);
        let mut piece = vec![0; rest.min(MAX_PIECE_BYTES) as usize];
        let mut batch = Vec::new();
        let mut at = self.at;
        // The limit of bytes that checksums are computed of. It is enough for each batch after the
        // end and for bytes that look like a batch by accident, but not for a file made of
        // beginnings of batches.
        let mut patience = 2 * self.bytes + MAX_BODY_BYTES as u64;
        while at < self.bytes {
            let bytes = (self.bytes - at).min(piece.len() as u64) as usize;
            let piece = piece.get_mut(..bytes).expect("at most the whole piece");
            let read = self.file.read_exact_at(piece, at);
            read.map_err(|error| StoreError::io("read", &self.path, error))?;
            if let Some(place) = piece.iter().rposition(|&byte| byte != 0) {
                last = Some(at + place as u64 + 1);
            }
            // All batches begin at multiples of 8, including the first of a segment.
            let words = piece.as_chunks::<8>().0.iter().enumerate();
            let magics = words.filter(|(_, word)| word.starts_with(&batch::MAGIC));
            for (index, _) in magics {
                let magic_at = at + 8 * index as u64;
                let Some(batch_at) = magic_at.checked_sub(batch::MAGIC_AT as u64) else {
                    continue;
                };
                if batch_at < self.at {
                    continue;
                }
                let found = self.batch(batch_at, &mut batch)?;
                patience = patience
                    .checked_sub(batch.len() as u64)
                    .ok_or_else(|| self.damaged(self.at, "a whole batch"))?;
                if let Some(header) = found
                    && visit(batch_at, header)?.is_break()
                {
                    return Ok(last);
                }
            }
            at += bytes as u64;
        }
        Ok(last)
    }

    pub(super) fn damaged(&self, at: u64, expected: &str) -> StoreError {
        StoreError::Damaged {
            path: self.path.clone(),
            what: format!("batch at byte {at}"),
            expected: expected.to_owned(),
            found: "bytes that are none".to_owned(),
        }
    }
}
