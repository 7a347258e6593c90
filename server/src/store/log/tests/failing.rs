//! Tests of the log on a disk that fails or is full.

use super::*;

/// Room that no batch will use is released: by a writer that gives up a segment, and by a start.
#[test]
fn a_segment_that_is_closed_keeps_no_room() {
    const ROOM_BYTES: u64 = 64 << 10;
    let disk = SimulatedDisk::default();
    let mut log = LogWriter::begin(Arc::new(disk.clone()), 1, ROOM_BYTES).unwrap();
    log.begin_tail(ROOM_BYTES).unwrap();
    let mut chance = Rng::with_seed(1);
    let records: Vec<Record> = (1..=3)
        .map(|version| record(version, &mut chance))
        .collect();
    let lengths =
        || [1, 2, 3].map(|number| disk.contents(&segment_file(number)).map(|it| it.len()));
    write(&mut log, &records[..1]).unwrap();
    log.sync().unwrap();
    write(&mut log, &records[1..2]).unwrap();
    // The next call does not fail yet.
    let failing = || {
        disk.fail(
            disk.calls() + 1,
            u64::MAX,
            Fault::Error(io::ErrorKind::Other),
        )
    };
    failing();
    log.sync().unwrap_err();
    disk.heal();
    // Until the tail's batches are in another segment, they are read as if they were in this.
    let next = log.segment_to_recover(ROOM_BYTES).unwrap();
    failing();
    log.recover(next).unwrap_err();
    disk.heal();
    assert_eq!(read(&disk.kill()).unwrap().0, &records[..2]);
    assert_eq!(lengths(), [Some(64 << 10), Some(64 << 10), None]);

    let next = log.segment_to_recover(ROOM_BYTES).unwrap();
    log.recover(next).unwrap();
    let end = lengths()[0].unwrap();
    assert!(end < 4096, "{end}");
    assert_eq!(lengths(), [Some(end), Some(64 << 10), None]);
    write(&mut log, &records[2..]).unwrap();
    log.sync().unwrap();
    // A segment made ahead.
    Segment::create(&disk, log.sequence() + 1, ROOM_BYTES).unwrap();
    let mut found = LogReader::open(&disk, 1, 0)
        .and_then(|log| log.read(|_| Ok::<_, StoreError>(()), &mut Err))
        .unwrap();
    found.cut_off(&disk).unwrap();
    let header = Segment::OVERHEAD_BYTES as usize;
    assert_eq!(
        lengths(),
        [Some(end), Some(found.end.at as usize), Some(header)]
    );
    let (again, end, torn) = read(&disk).unwrap();
    assert_eq!((again, torn), (records, None));
    assert_eq!(end, found.end);
}

#[test]
fn a_segment_that_the_disk_has_no_room_for_takes_none() {
    let disk = SimulatedDisk::default();
    disk.limit(Some(SEGMENT_BYTES));
    let error = Segment::create(&disk, 1, 8 * SEGMENT_BYTES).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(disk.names().unwrap(), [""; 0]);
}

/// Batches in the tail stay readable while only a part of them is in the next segment, and when a
/// segment with the same number is made. A segment that failed makes room for the next one.
#[test]
fn what_is_recovered_is_there_as_a_whole() {
    const ROOM_BYTES: u64 = 64 << 10;
    let mut chance = Rng::with_seed(1);
    let records: Vec<Record> = (1..=200)
        .map(|version| record(version, &mut chance))
        .collect();
    for synced in [0, 1] {
        let disk = SimulatedDisk::default();
        let mut log = LogWriter::begin(Arc::new(disk.clone()), 1, ROOM_BYTES).unwrap();
        log.begin_tail(ROOM_BYTES).unwrap();
        for (index, record) in records.iter().enumerate() {
            write(&mut log, std::slice::from_ref(record)).unwrap();
            if index < synced {
                log.sync().unwrap();
            }
        }
        assert!(log.unsynced_bytes() > 8192);
        disk.limit(Some(3 * ROOM_BYTES + 4096));
        let fails = |from, count| {
            disk.fail(
                disk.calls() + from,
                count,
                Fault::Error(io::ErrorKind::Other),
            )
        };
        fails(0, 1);
        log.sync().unwrap_err();
        for good in [0, 1, 2, 3] {
            let next = log.segment_to_recover(ROOM_BYTES).unwrap();
            // Half of the first write is done.
            disk.fail(disk.calls(), u64::from(good == 1), Fault::Short);
            fails(good, u64::MAX);
            log.recover(next).unwrap_err();
            disk.heal();
            let (found, ..) = read(&disk.kill()).unwrap();
            assert!(
                found == records,
                "{synced} synced, {good} calls: {}",
                found.len()
            );
        }
        let next = log.segment_to_recover(ROOM_BYTES).unwrap();
        let (found, ..) = read(&disk.kill()).unwrap();
        assert!(found == records, "{synced} synced, and another segment");
        log.recover(next).unwrap();
        assert!(read(&disk).unwrap().0 == records);
    }
}

#[test]
fn an_error_once_is_made_good_and_for_good_is_told() {
    for seed in 0..20 {
        let disk = SimulatedDisk::default();
        work(&disk, &mut Rng::with_seed(seed));
        for call in 0..disk.calls() {
            for fault in [
                Fault::Error(io::ErrorKind::Other),
                Fault::Error(io::ErrorKind::StorageFull),
                Fault::Error(io::ErrorKind::Interrupted),
                Fault::Short,
            ] {
                for count in [1, u64::MAX] {
                    let (disk, mut chance) = (SimulatedDisk::default(), Rng::with_seed(seed));
                    disk.fail(call, count, fault);
                    let (written, synced) = work(&disk, &mut chance);
                    disk.heal();
                    let first = u64::from(synced > 0);
                    let (records, ..) = read_from(&disk.cut(&mut chance), first).unwrap();
                    let case = format!("seed {seed}, call {call}, {fault:?} {count} times");
                    assert!(records.starts_with(&written[..synced]), "{case}");
                    assert!(written.starts_with(&records), "{case}");
                }
            }
        }
    }
}
