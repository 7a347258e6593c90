mod failing;

use std::{io, sync::Arc};

use fastrand::Rng;

use super::*;
use crate::{
    filter::hash::KeyHash,
    store::{
        Disk, FilterId, RequestId, StoreError,
        disk::simulated::{Fault, SimulatedDisk},
    },
};

const SEGMENT_BYTES: u64 = 1024;

/// Returns a record that differs from all others of a test.
fn record(version: u64, chance: &mut Rng) -> Record {
    let hash = |_| KeyHash {
        low: version,
        high: version.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    let counted = |direction, since| RecordKind::Counted(Counted { direction, since });
    let kind = match chance.u64(..5) {
        0 => RecordKind::Added,
        1 => counted(Direction::Up, chance.u64(..version)),
        2 => counted(Direction::Down, chance.u64(..version)),
        3 => RecordKind::AddedAt {
            epoch: version + chance.u64(..9),
        },
        _ => RecordKind::AddedTo {
            layer: chance.u64(..9),
        },
    };
    Record {
        head: RecordHead {
            filter: FilterId(chance.u64(..3)),
            version,
            request: chance.bool().then_some(RequestId([version as u8; 16])),
            kind,
        },
        hashes: (0..chance.u64(..6)).map(hash).collect(),
    }
}

type Found = Result<(Vec<Record>, LogEnd, Option<Torn>), StoreError>;

fn read(disk: &SimulatedDisk) -> Found {
    read_from(disk, 1)
}

fn read_from(disk: &SimulatedDisk, first: u64) -> Found {
    let mut records = Vec::new();
    let found = LogReader::open(disk, first, 0)?.read(
        |record| {
            records.push(record);
            Ok::<_, StoreError>(())
        },
        &mut Err,
    )?;
    Ok((records, found.end, found.torn))
}

/// Creates the segment after the one that is written to.
fn next(log: &LogWriter) -> Result<Segment, StoreError> {
    Segment::create(&**log.disk(), log.sequence() + 1, SEGMENT_BYTES)
}

fn batch(records: &[Record]) -> Batch {
    let mut batch = Batch::default();
    for record in records {
        let hashes = record.hashes.iter().copied();
        batch.push(&record.head, record.hashes.len(), hashes);
    }
    batch
}

/// Writes the batch, if there is one. Goes on in the next segment if this one has no room.
fn write_batch(log: &mut LogWriter, batch: &mut Option<Batch>) -> Result<(), StoreError> {
    let bytes = batch.as_ref().map_or(0, Batch::bytes);
    if log.room_bytes() < bytes {
        log.roll(next(log)?)?;
    }
    if log.unsynced_bytes() + bytes > log.max_unsynced_bytes() {
        log.sync()?;
    }
    // From here on the log keeps it.
    batch
        .take()
        .map_or(Ok(()), |mut batch| log.write(&mut batch))
}

fn write(log: &mut LogWriter, records: &[Record]) -> Result<(), StoreError> {
    write_batch(log, &mut Some(batch(records)))
}

fn open(disk: &SimulatedDisk, end: LogEnd) -> Result<LogWriter, StoreError> {
    let segment = Segment::create(disk, end.sequence + 1, SEGMENT_BYTES)?;
    Ok(LogWriter::new(Arc::new(disk.clone()), end, segment))
}

/// Returns a synced log of some segments, and its records.
fn example(seed: u64) -> (SimulatedDisk, Vec<Record>) {
    let (disk, mut chance) = (SimulatedDisk::default(), Rng::with_seed(seed));
    let mut log = open(&disk, LogEnd::default()).unwrap();
    let records: Vec<Record> = (1..=60)
        .map(|version| record(version, &mut chance))
        .collect();
    for records in records.chunks(3) {
        write(&mut log, records).unwrap();
        log.sync().unwrap();
    }
    assert!(log.sequence() > 2);
    (disk, records)
}

#[test]
fn what_was_written_is_read_in_order() {
    let (disk, records) = example(1);
    let (found, end, torn) = read(&disk).unwrap();
    assert_eq!(found, records);
    assert_eq!(torn, None);

    // A second start goes on in a new segment, and the third reads both.
    let mut log = open(&disk, end).unwrap();
    let more = record(61, &mut Rng::with_seed(2));
    write(&mut log, std::slice::from_ref(&more)).unwrap();
    log.sync().unwrap();
    let (found, ..) = read(&disk).unwrap();
    assert_eq!(found.last(), Some(&more));
    assert_eq!(found.len(), 61);
}

#[test]
fn a_newer_format_is_named() {
    let (disk, _) = example(1);
    let file = segment::file_name(2);
    let mut bytes = disk.contents(&file).unwrap();
    bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    disk.put(&file, &bytes);
    let error = read(&disk).unwrap_err();
    error.assert_is_of_newer_format(&disk.path().join(&file), FORMAT);
}

/// Writes, syncs and opens segments at random until the power is cut or enough is done. Returns the
/// written records, and the number of records that were synced.
fn work(disk: &SimulatedDisk, chance: &mut Rng) -> (Vec<Record>, usize) {
    let Worked {
        written, synced, ..
    } = work_with(None, disk, chance);
    (written, synced)
}

/// The written records, the number of synced ones, and the number that the kernel had.
#[derive(Default)]
struct Worked {
    written: Vec<Record>,
    synced: usize,
    handed_over: usize,
}

fn work_with(tail: Option<u64>, disk: &SimulatedDisk, chance: &mut Rng) -> Worked {
    let mut worked = Worked::default();
    let Worked {
        written,
        synced,
        handed_over,
    } = &mut worked;
    let Ok(mut log) = open(disk, LogEnd::default()) else {
        return worked;
    };
    if tail.is_some_and(|bytes| log.begin_tail(bytes).is_err()) {
        return worked;
    }
    let mut spare = None;
    for _ in 0..20 {
        let first = written.len() as u64 + 1;
        let records: Vec<Record> = (0..1 + chance.u64(..3))
            .map(|index| record(first + index, chance))
            .collect();
        written.extend(records.clone());
        let mut batch = Some(batch(&records));
        let mut done = write_batch(&mut log, &mut batch);
        if done.is_ok() && log.has_tail() {
            *handed_over = written.len();
        }
        // Made ahead, and not always needed before the power is cut.
        if done.is_ok() && spare.is_none() && chance.u64(..4) == 0 {
            let made = next(&log).map(|segment| spare = Some(segment));
            done = made;
        }
        // Rolls only from a segment that has batches.
        let is_begun = log.room_bytes() < SEGMENT_BYTES - Segment::OVERHEAD_BYTES;
        if done.is_ok() && is_begun && chance.u64(..8) == 0 {
            let is_next = |spare: &Segment| spare.number() == log.sequence() + 1;
            let next = spare.take().filter(is_next).map_or_else(|| next(&log), Ok);
            done = next.and_then(|next| log.roll(next));
        } else if done.is_ok() && chance.bool() {
            done = log.sync();
        } else if done.is_ok() {
            continue;
        }
        // Recovers from an error.
        let recovered = done.or_else(|_| {
            spare = None;
            let bytes = Segment::OVERHEAD_BYTES + log.unsynced_bytes();
            log.recover(log.segment_to_recover(bytes.max(SEGMENT_BYTES))?)?;
            write_batch(&mut log, &mut batch)?;
            log.sync()
        });
        if recovered.is_err() {
            return worked;
        }
        *synced = written.len();
        *handed_over = written.len();
    }
    worked
}

#[test]
fn a_power_cut_anywhere_loses_nothing_that_was_synced() {
    let mut cuts = 0;
    for seed in 0..40 {
        let disk = SimulatedDisk::default();
        work(&disk, &mut Rng::with_seed(seed));
        for call in 0..disk.calls() {
            let (disk, mut chance) = (SimulatedDisk::default(), Rng::with_seed(seed));
            disk.fail(call, 1, Fault::PowerCut);
            let (written, synced) = work(&disk, &mut chance);
            let found = disk.cut(&mut chance);
            let (records, end, _) = read_from(&found, u64::from(synced > 0))
                .unwrap_or_else(|error| panic!("seed {seed}, call {call}: {error}"));
            assert!(records.len() >= synced, "seed {seed}, call {call}");
            assert!(written.starts_with(&records), "seed {seed}, call {call}");

            // The log goes on from there, also if the next power cut comes at once.
            if let Ok(mut log) = open(&found, end) {
                for records in written.chunks(3) {
                    write(&mut log, records).unwrap();
                }
                log.sync().unwrap();
            }
            let (again, ..) = read_from(&found.cut(&mut chance), 0).unwrap();
            assert_eq!(again, [&*records, &*written].concat());
            cuts += 1;
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

/// The log has segments and a tail, or only a tail that is as long as a segment.
#[test]
fn a_kill_anywhere_loses_nothing_that_the_system_had() {
    let mut from_tail = 0;
    for seed in 0..40 {
        let tail = Some(if seed % 2 == 0 { 512 } else { SEGMENT_BYTES });
        let disk = SimulatedDisk::default();
        work_with(tail, &disk, &mut Rng::with_seed(seed));
        for call in 0..=disk.calls() {
            let (disk, mut chance) = (SimulatedDisk::default(), Rng::with_seed(seed));
            disk.fail(call, 1, Fault::PowerCut);
            let worked = work_with(tail, &disk, &mut chance);
            let killed = disk.kill();
            let case = format!("seed {seed}, call {call}");
            let first = u64::from(worked.synced > 0);
            let (records, _, torn) = read_from(&killed, first).unwrap();
            assert!(records.len() >= worked.handed_over, "{case}");
            // The kill was between the two writes of a batch that reaches beyond the end of the
            // tail.
            let is_half = worked.handed_over < worked.written.len();
            assert!(torn.is_none() || is_half, "{case}: {torn:?}");
            assert!(worked.written.starts_with(&records), "{case}");

            // The next start reads the same records, and then does not need the tail any more. That
            // holds whenever that start is killed, and whatever part of its writes reaches the
            // disk.
            let before = killed.calls();
            let start = |disk: &SimulatedDisk| {
                let mut found =
                    LogReader::open(disk, 0, 0)?.read(|_| Ok::<_, StoreError>(()), &mut Err)?;
                found.sync(disk)?;
                found.cut_off(disk)?;
                Ok::<_, StoreError>(found)
            };
            let found = start(&killed).unwrap();
            from_tail += found.batches_of_the_tail();
            let calls = killed.calls() - before;
            let cut = killed.cut(&mut chance);
            if cut.contents(Tail::FILE).is_some() {
                cut.remove(Tail::FILE).unwrap();
            }
            assert_eq!(read_from(&cut, 0).unwrap().0, records, "{case}");
            let again = disk.kill();
            again.fail(chance.u64(..calls), 1, Fault::PowerCut);
            let _ = start(&again);
            assert_eq!(read_from(&again.kill(), 0).unwrap().0, records, "{case}");
        }
    }
    assert!(from_tail > 1000, "{from_tail}");
}

/// Each batch that only the tail has is read, or the reader reports that there was more.
#[test]
fn every_flipped_bit_of_the_tail_is_found_or_harmless() {
    let mut found_bits = 0;
    for seed in 0..12 {
        let (disk, mut chance) = (SimulatedDisk::default(), Rng::with_seed(seed));
        let mut log = open(&disk, LogEnd::default()).unwrap();
        log.begin_tail(if seed % 2 == 0 { 512 } else { SEGMENT_BYTES })
            .unwrap();
        let records: Vec<Record> = (1..=30)
            .map(|version| record(version, &mut chance))
            .collect();
        // The tail is of a segment that goes on, or of one that has just been begun.
        let synced = chance.u64(..10) as usize;
        for (index, records) in records.chunks(3).enumerate() {
            if index == synced {
                log.sync().unwrap();
                if log.unsynced_bytes() == 0 && chance.bool() && index > 0 {
                    log.roll(next(&log).unwrap()).unwrap();
                }
            }
            write(&mut log, records).unwrap();
        }
        let killed = disk.kill();
        drop(log);
        let (found, _, torn) = read(&killed).unwrap();
        assert_eq!((&found, torn), (&records, None), "seed {seed}");
        let good = killed.contents(Tail::FILE).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            killed.put(Tail::FILE, &bad);
            let (found, _, torn) = read(&killed).unwrap();
            if found == records {
                continue;
            }
            let case = format!("seed {seed}, bit {bit}");
            assert!(records.starts_with(&found), "{case}");
            assert!(torn.expect(&case).path.ends_with(Tail::FILE), "{case}");
            found_bits += 1;
        }
    }
    assert!(found_bits > 1000, "{found_bits}");
}

/// Without the tail only the synced records are there.
#[test]
fn a_tail_that_fails_is_told_of_and_done_without() {
    let disk = SimulatedDisk::default();
    let mut log = open(&disk, LogEnd::default()).unwrap();
    log.begin_tail(SEGMENT_BYTES).unwrap();
    let mut chance = Rng::with_seed(1);
    let records: Vec<Record> = (1..=3)
        .map(|version| record(version, &mut chance))
        .collect();
    write(&mut log, &records[..1]).unwrap();
    disk.fail(disk.calls(), 1, Fault::Error(io::ErrorKind::Other));
    let error = write(&mut log, &records[1..2]).unwrap_err().to_string();
    assert!(error.contains(Tail::FILE), "{error}");
    assert!(!log.has_tail());
    write(&mut log, &records[2..]).unwrap();
    log.sync().unwrap();
    assert_eq!(read(&disk).unwrap().0, records);
}

#[test]
fn a_tail_longer_than_any_is_refused() {
    let (disk, _) = example(6);
    disk.put(Tail::FILE, &vec![0; Tail::MAX_BYTES as usize]);
    read(&disk).unwrap();
    disk.put(Tail::FILE, &vec![0; Tail::MAX_BYTES as usize + 1]);
    let error = read(&disk).unwrap_err().to_string();
    assert!(
        error.contains("log.tail is damaged: length of the file"),
        "{error}"
    );
}

/// The segments of a log, with their bytes.
fn segments(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.names().unwrap().into_iter();
    names
        .map(|name| {
            let bytes = disk.contents(&name).unwrap();
            (name, bytes)
        })
        .collect()
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let (disk, records) = example(3);
    let segments = segments(&disk);
    let (last, _) = segments.last().unwrap();
    for (name, good) in &segments {
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            disk.put(name, &bad);
            match read(&disk) {
                // After the end of a segment, where there is nothing.
                Ok((found, _, None)) => assert_eq!(found, records, "{name}, bit {bit}"),
                // A crash could have left it like this, but at most the last batch is missing.
                Ok((found, _, Some(torn))) => {
                    assert_eq!(name, last, "bit {bit}");
                    assert!(torn.bytes > 0);
                    assert!(records.starts_with(&found), "bit {bit}");
                    assert!(found.len() >= records.len() - 3, "bit {bit}");
                }
                Err(error) => {
                    assert!(error.to_string().contains(name.as_str()), "{bit}: {error}");
                }
            }
        }
        disk.put(name, good);
    }
}

#[test]
fn every_truncation_is_found_or_a_torn_end() {
    let (disk, records) = example(4);
    let segments = segments(&disk);
    let (last, _) = segments.last().unwrap();
    for (name, good) in &segments {
        for bytes in 0..good.len() {
            disk.put(name, &good[..bytes]);
            match read(&disk) {
                Ok((found, ..)) => {
                    assert!(records.starts_with(&found), "{name}, {bytes} bytes");
                    assert!(name == last || found == records, "{name}, {bytes} bytes");
                }
                Err(error) => assert!(error.to_string().contains(name.as_str()), "{error}"),
            }
        }
        disk.put(name, good);
    }
}

#[test]
fn segments_that_are_swapped_missing_or_of_another_log_are_found() {
    let (disk, _) = example(5);
    let first = segments(&disk);
    let (other, _) = example(5);
    for (index, (name, good)) in first.iter().enumerate() {
        for (of, (_, bytes)) in first.iter().enumerate().filter(|(of, _)| *of != index) {
            disk.put(name, bytes);
            let error = read(&disk).unwrap_err().to_string();
            assert!(error.contains("number of the segment"), "{of}: {error}");
        }
        // A segment with the same number, from a log of the same records.
        disk.put(name, &other.contents(name).unwrap());
        read(&disk).unwrap_err();
        disk.put(name, good);
        if index + 1 < first.len() {
            disk.remove(name).unwrap();
            let error = read(&disk).unwrap_err().to_string();
            assert!(error.contains(name.as_str()), "{error}");
            disk.put(name, good);
        }
    }
    read(&disk).unwrap();

    // The other segments do not show that the last one existed: only the manifest can.
    let last = first.len() as u64;
    let read_up_to = |last| {
        let log = LogReader::open(&disk, 1, last).unwrap();
        log.read(|_| Ok::<_, StoreError>(()), &mut Err)
    };
    read_up_to(last).unwrap();
    let error = read_up_to(last + 1).unwrap_err().to_string();
    assert!(error.contains(&segment_file(last + 1)), "{error}");
}

#[test]
fn batches_that_are_swapped_are_found() {
    let disk = SimulatedDisk::default();
    let mut log = open(&disk, LogEnd::default()).unwrap();
    let mut ends = Vec::new();
    for version in 1..=4 {
        let same_length = Record {
            hashes: vec![KeyHash::default(); 3],
            head: RecordHead::added(FilterId(1), version),
        };
        ends.push((SEGMENT_BYTES - log.room_bytes()) as usize);
        write(&mut log, &[same_length]).unwrap();
        if version >= 3 {
            log.sync().unwrap();
        }
    }
    let (name, good) = segments(&disk).remove(0);
    let mut bad = good.clone();
    bad[ends[0]..ends[1]].copy_from_slice(&good[ends[1]..ends[2]]);
    bad[ends[1]..ends[2]].copy_from_slice(&good[ends[0]..ends[1]]);
    disk.put(&name, &bad);
    let error = read(&disk).unwrap_err().to_string();
    assert!(error.contains("batch at byte 168"), "{error}");
    disk.put(&name, &good);
    read(&disk).unwrap();
}
