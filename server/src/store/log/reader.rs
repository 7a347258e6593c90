//! Reads the log from a segment on, and finds where it ends.

use super::{
    found::{FoundLog, LogEnd},
    record::Record,
    segment::{self, SegmentHeader, file_name},
    segment_reader::{End, SegmentReader},
    tail::{Tail, TailCopy},
};
use crate::{
    planted::Bug,
    store::{Disk, OnDamage, StoreError},
};

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
        let mut last: Option<SegmentReader<'_>> = None;
        // Those behind it that have no batches, yet.
        let mut empty: Vec<SegmentReader<'_>> = Vec::new();
        // The number that the next one has if none is missing before it.
        let mut expected = self.first;
        for &sequence in &self.sequences {
            let opened = SegmentReader::open(self.disk, &tail, sequence)
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
                found.ends.push(last.end());
            }
            for mut skipped in empty.drain(..) {
                skipped.read(End::Lost, &mut visit, &mut found, on_damage)?;
            }
        }
        if let Some(mut last) = last {
            last.read(End::Open, &mut visit, &mut found, on_damage)?;
            (found.end, found.synced) = (last.end(), last.synced());
            found.ends.push(last.end());
        }
        for mut empty in empty {
            let torn = found.torn.take();
            empty.read(End::Open, &mut visit, &mut found, on_damage)?;
            found.torn = torn.or(found.torn.take());
            found.ends.push(empty.end());
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
