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

/// A log that is open for reading.
#[derive(Debug)]
pub struct LogReader<'a> {
    disk: &'a dyn Disk,
    /// The first and the last segment that are needed.
    first: u64,
    last: u64,
    /// The segments that exist.
    sequences: Vec<u64>,
    has_tail: bool,
}

impl<'a> LogReader<'a> {
    /// Opens the log in a directory, from segment `first` on. Segment `last` certainly exists, and
    /// can be the last one. The number 0 stands for a segment that need not exist.
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

    /// Returns the greatest number that a segment has, or must have had; 0 if there is none.
    pub fn last_number(&self) -> u64 {
        let last = self.sequences.last().copied();
        last.unwrap_or_default().max(self.last)
    }

    /// Returns the length of all existing segments, with the space that is reserved in them.
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

    /// Returns the number of existing segments.
    pub fn segments(&self) -> usize {
        self.sequences.len()
    }

    /// Reads all records in their order, and returns where the log ends.
    ///
    /// # Errors
    ///
    /// [`StoreError`] with the place of the damage, if `on_damage` returned it; or the error that
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
        // The segments after `last` that have no batches, so far.
        let mut empty: Vec<SegmentReader<'_>> = Vec::new();
        // The number of the next segment if none is missing before it.
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
            // A segment is begun only after the one before has batches.
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

    /// Checks that no segment is missing.
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
            // Reports only the first number of a gap: the gap can be huge.
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
