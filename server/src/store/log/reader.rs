//! Reads the log from a segment on, and finds its end.

use std::{ops::ControlFlow, path::PathBuf};

use super::{
    batch::{self, BatchHeader, MAX_BODY_BYTES},
    record::{self, Record},
    segment::{self, SegmentHeader, file_name},
    tail::{Tail, TailCopy},
};
use crate::{
    planted::Bug,
    store::{Disk, DiskFile, OnDamage, StoreError},
};

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// The number of its last segment; 0 if there is none.
    pub sequence: u64,
    /// The end of the last whole batch in it.
    pub(super) at: u64,
    /// The checksum of that.
    pub(super) checksum: u64,
}

/// A log, to be read.
#[derive(Debug)]
pub struct LogReader<'a> {
    disk: &'a dyn Disk,
    /// The segments that are needed.
    first: u64,
    last: u64,
    /// Those that are there.
    sequences: Vec<u64>,
    has_tail: bool,
}

/// What came of reading a log.
#[derive(Debug, Default)]
pub struct FoundLog {
    /// Where it ends.
    pub end: LogEnd,
    /// What a crash left behind that.
    pub torn: Option<Torn>,
    /// The batches that the tail alone has.
    from_tail: Vec<FromTail>,
}

/// A batch of the tail, which had not been written to its segment.
#[derive(Debug)]
struct FromTail {
    sequence: u64,
    at: u64,
    batch: Vec<u8>,
}

impl FoundLog {
    /// Puts the log up to its end on stable storage, in its segments; what was read may be known
    /// to the system alone, if the server was killed. Keeps a copy of what is torn off.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub(in crate::store) fn settle(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        if let Some(torn) = &self.torn {
            torn.keep(disk)?;
        }
        for from_tail in &self.from_tail {
            from_tail.write(disk)?;
        }
        if self.end.at == 0 {
            return Ok(());
        }
        // All segments but the last have been, before the next one was begun.
        let name = file_name(self.end.sequence);
        let synced = disk.open(&name).and_then(|file| file.sync());
        synced.map_err(|error| StoreError::io("sync", disk.path().join(name), error))
    }
}

#[cfg(test)]
impl FoundLog {
    /// The number of batches that the tail alone had.
    pub(super) fn batches_of_the_tail(&self) -> usize {
        self.from_tail.len()
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

/// What a crash left behind the end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub path: PathBuf,
    /// Where the log ends in it.
    pub at: u64,
    /// The number of bytes behind that, up to the last one that is not 0.
    pub bytes: u64,
}

impl Torn {
    /// Copies what is torn off to a file of its own, beside the segment: somebody may want to
    /// know what it was.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub(in crate::store) fn keep(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let copy = || {
            let (from, to) = (disk.open(&name)?, disk.create(&format!("{name}.torn"))?);
            let mut piece = vec![0; 1 << 20];
            let mut copied = 0;
            while copied < self.bytes {
                let bytes = (self.bytes - copied).min(piece.len() as u64) as usize;
                let piece = piece.get_mut(..bytes).unwrap_or_default();
                from.read_exact_at(piece, self.at + copied)?;
                to.write_all_at(piece, copied)?;
                copied += bytes as u64;
            }
            to.sync()
        };
        copy().map_err(|error| StoreError::io("keep a copy of the end of", &self.path, error))
    }
}

impl<'a> LogReader<'a> {
    /// The log in a directory, from a segment on, of which another is there for certain, and may
    /// be the last. 0 stands for one that need not be there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn open(disk: &'a dyn Disk, first: u64, last: u64) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("list the data directory", disk.path(), error);
        let names = disk.names().map_err(failed)?;
        let mut sequences: Vec<u64> = names
            .iter()
            .filter_map(|name| segment::sequence(name))
            .filter(|&sequence| sequence >= first)
            .collect();
        sequences.sort_unstable();
        let first = match first {
            0 => sequences.first().copied().unwrap_or(1),
            first => first,
        };
        Ok(Self {
            disk,
            first,
            last,
            sequences,
            has_tail: names.iter().any(|name| name == Tail::FILE),
        })
    }

    /// The greatest number that a segment has, or must have had; 0 if there is none.
    pub fn last_number(&self) -> u64 {
        let last = self.sequences.last().copied();
        last.unwrap_or_default().max(self.last)
    }

    /// The bytes of the segments that are there, with the room that is kept in them.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let bytes_of = |&sequence| {
            let name = file_name(sequence);
            let bytes = self.disk.open(&name).and_then(|file| file.bytes());
            bytes.map_err(|error| StoreError::io("read", self.disk.path().join(name), error))
        };
        self.sequences.iter().map(bytes_of).sum()
    }

    /// The number of segments that are there.
    pub fn segments(&self) -> usize {
        self.sequences.len()
    }

    /// Reads all records in their order, and tells where the log ends.
    ///
    /// # Errors
    ///
    /// [`StoreError`], with the place of what is damaged, if `on_damage` returned it; or what
    /// `visit` returned.
    pub fn read<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(Record) -> Result<(), E>,
        on_damage: OnDamage<'_>,
    ) -> Result<FoundLog, E> {
        self.check_numbers(on_damage)?;
        let tail = match self.has_tail && !Bug::TailNotRead.is_planted() {
            true => TailCopy::read(self.disk).or_else(|error| {
                error.handle(on_damage)?;
                Ok::<_, StoreError>(TailCopy::default())
            })?,
            false => TailCopy::default(),
        };
        let mut found = FoundLog {
            end: LogEnd {
                sequence: self.first.saturating_sub(1),
                ..LogEnd::default()
            },
            ..FoundLog::default()
        };
        let mut last: Option<Segment<'_>> = None;
        // Those behind it that have no batches, yet.
        let mut empty: Vec<Segment<'_>> = Vec::new();
        // The number that the next one has if none is missing before it.
        let mut expected = self.first;
        for &sequence in &self.sequences {
            let opened = Segment::open(self.disk, &tail, sequence)
                .and_then(|segment| Ok((segment.first_batch()?, segment)));
            let (first, next) = match opened {
                Ok((Some(first), next)) => (first, next),
                Ok((None, next)) => {
                    empty.push(next);
                    continue;
                }
                Err(error) => {
                    error.handle(on_damage)?;
                    continue;
                }
            };
            // None is begun before there are batches in the one before.
            if let Some(skipped) = empty.first() {
                on_damage(skipped.damaged(SegmentHeader::BYTES as u64, "a whole batch"))?;
            }
            let is_next = expected == sequence;
            expected = sequence + 1;
            if let Some(mut last) = last.replace(next) {
                let end = if is_next { End::Told(first) } else { End::Lost };
                last.read(end, &mut visit, &mut found, on_damage)?;
            }
            for mut skipped in empty.drain(..) {
                skipped.read(End::Lost, &mut visit, &mut found, on_damage)?;
            }
        }
        if let Some(mut last) = last {
            last.read(End::Open, &mut visit, &mut found, on_damage)?;
            found.end = LogEnd {
                sequence: last.header.sequence,
                at: last.at,
                checksum: last.checksum,
            };
        }
        for mut empty in empty {
            let torn = found.torn.take();
            empty.read(End::Open, &mut visit, &mut found, on_damage)?;
            found.torn = torn.or(found.torn.take());
        }
        Ok(found)
    }

    /// Whether no segment is missing.
    fn check_numbers(&self, on_damage: OnDamage<'_>) -> Result<(), StoreError> {
        let mut missing = |sequence| {
            on_damage(StoreError::Damaged {
                path: self.disk.path().join(file_name(sequence)),
                what: "segment of the log".to_owned(),
                expected: "a file".to_owned(),
                found: "none".to_owned(),
            })
        };
        let mut expected = self.first;
        for &sequence in &self.sequences {
            // There may be no end of numbers between two.
            if sequence != expected {
                missing(expected)?;
            }
            expected = sequence + 1;
        }
        if expected <= self.last {
            missing(expected)?;
        }
        Ok(())
    }
}

/// What is known of the end of a segment.
#[derive(Debug, Clone, Copy)]
enum End {
    /// What the first batch of the next one tells.
    Told(BatchHeader),
    /// It is the last one.
    Open,
    /// Nothing: the next one is damaged.
    Lost,
}

/// Why reading ended early.
enum Broken<E> {
    Store(StoreError),
    Visit(E),
}

impl<E> From<StoreError> for Broken<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

struct Segment<'a> {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    tail: &'a TailCopy,
    bytes: u64,
    header: SegmentHeader,
    /// The end of what has been read.
    at: u64,
    /// The checksum of the batch before that.
    checksum: u64,
}

impl<'a> Segment<'a> {
    fn open(disk: &dyn Disk, tail: &'a TailCopy, sequence: u64) -> Result<Self, StoreError> {
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
        })
    }

    /// The header of its first batch, if it has a whole one.
    fn first_batch(&self) -> Result<Option<BatchHeader>, StoreError> {
        let at = SegmentHeader::BYTES as u64;
        Ok(self
            .batch_or_tail(at, &mut Vec::new())?
            .map(|(header, _)| header))
    }

    /// Reads batches up to the end.
    fn read<E: From<StoreError>>(
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
        // Whether a batch is read whatever it follows: the first one, or one behind damage.
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
                            found.torn = torn;
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
            // Nobody knows for certain where the segment ends.
            (begins, until) = (true, self.bytes);
            match self.next_whole() {
                Ok(Some(at)) => self.at = at,
                Ok(None) => return Ok(()),
                Err(error) => return Ok(error.handle(on_damage)?),
            }
        }
    }

    /// Reads batches as long as they are whole, each follows the one before (but for the first if
    /// it `begins`), and they are before a place.
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
            begins = false;
            let mut records = batch.get(BatchHeader::BYTES..).unwrap_or_default();
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
        }
        Ok(())
    }

    /// Reads the batch at a place, and tells whether it is from the tail; `None` if there is no
    /// whole one in either.
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

    /// Reads the batch at a place in the file; `None` if there is no whole one.
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

    /// What stands behind the end of the last segment.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if the segment once went on from here, and was relied on.
    fn torn(&self) -> Result<Option<Torn>, StoreError> {
        let last = self.search(|at, header| match at > self.at && header.synced > self.at {
            true => Err(self.damaged(self.at, "a whole batch")),
            false => Ok(ControlFlow::Continue(())),
        })?;
        Ok(last.map(|last| Torn {
            path: self.path.clone(),
            at: self.at,
            bytes: last - self.at,
        }))
    }

    /// Where the first whole batch begins from this place on.
    fn next_whole(&self) -> Result<Option<u64>, StoreError> {
        let mut next = None;
        self.search(|at, _| {
            next = Some(at);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(next)
    }

    /// Hands out the whole batches from this place on, wherever they begin, until `visit` breaks
    /// off. Tells where the last byte ends that is not 0, of those that were looked at.
    fn search(
        &self,
        mut visit: impl FnMut(u64, BatchHeader) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let mut last = None;
        let mut piece = vec![0; 1 << 20];
        let mut batch = Vec::new();
        let mut at = self.at;
        // Of all bytes that look like a batch, checksums are computed of so many: enough for
        // each batch behind the end and for accidents, but not for a file made of beginnings.
        let mut patience = 2 * self.bytes + MAX_BODY_BYTES as u64;
        while at < self.bytes {
            let bytes = (self.bytes - at).min(piece.len() as u64) as usize;
            let piece = piece.get_mut(..bytes).unwrap_or_default();
            let read = self.file.read_exact_at(piece, at);
            read.map_err(|error| StoreError::io("read", &self.path, error))?;
            if let Some(place) = piece.iter().rposition(|&byte| byte != 0) {
                last = Some(at + place as u64 + 1);
            }
            // Batches begin at multiples of 8, and so do segments' first ones.
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

    fn damaged(&self, at: u64, expected: &str) -> StoreError {
        StoreError::Damaged {
            path: self.path.clone(),
            what: format!("batch at byte {at}"),
            expected: expected.to_owned(),
            found: "bytes that are none".to_owned(),
        }
    }
}
