//! The log under concurrent calls.

mod watermark;

use std::{io, iter, time::Instant};

use futures_util::FutureExt;

use super::{versions::tests::lease, *};
use crate::store::{
    Disk, LogEnd, LogReader, RequestId, Segment, StoreError,
    simulated::{Fault, SimulatedDisk},
};

const SEGMENT_BYTES: u64 = 4 << 10;

/// Starts the log of a new disk, in segments of this size.
pub fn start_with(disk: &SimulatedDisk, segment_bytes: u64) -> Journal {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let segment = Segment::create(&*disk, 1, segment_bytes).unwrap();
    let log = LogWriter::new(disk, LogEnd::default(), segment);
    let is_read_only = watch::Sender::new(false);
    Journal::start(log, Durability::Always, segment_bytes, is_read_only).unwrap()
}

fn start(disk: &SimulatedDisk) -> Journal {
    start_with(disk, SEGMENT_BYTES)
}

async fn append(journal: &Journal, log: &FilterLog, version: u64) {
    let mut reservation = journal.reserve(1, 1).await.unwrap();
    let hash = KeyHash {
        low: version,
        high: version,
    };
    let head = RecordHead::added(log.filter, version);
    log.append(&mut reservation, &head, 1, iter::once(hash));
}

/// A version whose call has not handed it over yet delays the versions after it, but no call that
/// waits for an earlier version.
#[tokio::test]
async fn progress_waits_for_every_version() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let (log, other) = (
        journal.filter(FilterId(1), &Versions::behind(4)),
        journal.filter(FilterId(2), &Versions::behind(0)),
    );
    assert!(log.has_reached(4) && !log.has_reached(5));
    append(&journal, &log, 5).await;
    log.reached(5).await.unwrap();
    append(&journal, &log, 8).await;
    append(&journal, &log, 7).await;
    // The log has written this later record, so it has written the two before it.
    append(&journal, &other, 1).await;
    other.reached(1).await.unwrap();
    assert!(!log.has_reached(6));
    assert!(log.reached(7).now_or_never().is_none());
    append(&journal, &log, 6).await;
    log.reached(8).await.unwrap();

    drop(journal);
    let mut versions = Vec::new();
    let reader = LogReader::open(&disk, 1, 0).unwrap();
    reader
        .read(
            |record| {
                versions.push((record.head.filter.0, record.head.version));
                Ok::<_, StoreError>(())
            },
            &mut Err,
        )
        .unwrap();
    versions.sort_unstable();
    assert_eq!(versions, [(1, 5), (1, 6), (1, 7), (1, 8), (2, 1)]);
}

/// Versions that a thread leased and did not use, or that were taken back, delay nobody either.
#[tokio::test]
async fn progress_does_not_wait_for_what_nobody_uses() {
    for is_sealed in [false, true] {
        let disk = SimulatedDisk::default();
        let journal = start(&disk);
        let versions = Versions::behind(0);
        let log = journal.filter(FilterId(1), &versions);
        let first = lease(&versions);
        for before in 1..first {
            append(&journal, &log, before).await;
        }
        let other = thread::scope(|scope| scope.spawn(|| versions.next()).join().unwrap());
        assert!(first + 1 < other);
        append(&journal, &log, other).await;
        log.reached(first).now_or_never();
        if is_sealed {
            versions.seal();
        }
        append(&journal, &log, first).await;
        let reached = tokio::time::timeout(Duration::from_secs(10), log.reached(other));
        reached.await.unwrap().unwrap();
        log.flush(other).unwrap();
    }
}

/// While nothing can be written, an unused version does not make keys in the log uncertain.
#[tokio::test]
async fn what_nobody_uses_is_in_no_doubt() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let versions = Versions::behind(0);
    let log = journal.filter(FilterId(1), &versions);
    let first = lease(&versions);
    let other = thread::scope(|scope| scope.spawn(|| versions.next()).join().unwrap());
    assert!(first + 1 < other);
    let keys = other as usize;
    let mut reservation = journal.reserve(keys, keys).await.unwrap();
    disk.fail(disk.calls(), u64::MAX, Fault::Error(io::ErrorKind::Other));
    for version in (1..=first).chain([other]) {
        let hash = KeyHash {
            low: version,
            high: version,
        };
        let head = RecordHead::added(FilterId(1), version);
        log.append(&mut reservation, &head, 1, iter::once(hash));
    }
    log.reached(other).await.unwrap_err();
    let is_certain = |low| log.is_certain(other, iter::once(KeyHash { low, high: low }));
    let begun = Instant::now();
    // The writer thread must have seen all of them.
    while !is_certain(u64::MAX) {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!is_certain(first) && !is_certain(other));
}

/// Several threads hand over records at the same time: no record is lost, and every call is woken.
#[test]
fn nothing_is_lost_between_threads() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let log = journal.filter(FilterId(1), &Versions::behind(0));
    let next = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.unwrap().block_on(async {
                    for _ in 0..200 {
                        let version = next.fetch_add(1, Ordering::Relaxed);
                        append(&journal, &log, version).await;
                        log.reached(version).await.unwrap();
                    }
                });
            });
        }
    });
    assert!(log.has_reached(1600));
    assert!(!log.has_reached(1601));
}

/// The keys that several calls of one id have added first may need more space than there is at
/// once.
#[tokio::test]
async fn a_request_of_any_size_is_repeated() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let hash = |low| KeyHash { low, high: low };
    let remembered = Remembered {
        filter: FilterId(1),
        request: RequestId([7; 16]),
        hashes: (0..2000).map(hash).collect(),
    };
    let repeated = tokio::time::timeout(Duration::from_secs(10), journal.repeat(&remembered));
    repeated.await.unwrap().unwrap();
    drop(journal);
    let mut found = Vec::new();
    let reader = LogReader::open(&disk, 1, 0).unwrap();
    let read = reader.read(
        |record| {
            assert_eq!(record.head.request, Some(remembered.request));
            found.extend(record.hashes);
            Ok::<_, StoreError>(())
        },
        &mut Err,
    );
    read.unwrap();
    assert_eq!(found, remembered.hashes);
}

/// As much space is given back as was taken, for calls of any size.
#[test]
fn room_is_neither_lost_nor_made() {
    let queues = WalQueues::new(SEGMENT_BYTES);
    let of_a_record = queues.hashes_of_a_record();
    for count in [1, of_a_record, 3 * of_a_record, 3 * of_a_record + 1] {
        let reservation = |queues: &WalQueues| {
            // Counts the single keys that there is space for.
            let rooms: Vec<_> = std::iter::from_fn(|| queues.reserve(1, 1)).collect();
            rooms.len()
        };
        queues.add_space(4 * SEGMENT_BYTES as i64);
        let before = reservation(&queues);
        for version in 1..=100 {
            let mut reserved = queues.reserve(count, 1).unwrap();
            let hashes = std::iter::repeat_n(KeyHash::default(), count);
            let head = RecordHead::added(FilterId(1), version);
            queues.append(&mut reserved, &head, count, hashes);
            let (mut filled, mut ends) = (Vec::new(), Vec::new());
            queues.take(&mut filled, &mut ends);
            let taken: u64 = filled.iter().map(|filled| filled.reserved_bytes).sum();
            queues.add_space(taken as i64);
        }
        assert_eq!(reservation(&queues), before, "{count}");
    }
}

/// A call can hand over more than it has reserved space for, if its filter was replaced meanwhile.
#[test]
fn no_more_room_is_given_back_than_was_reserved() {
    let queues = WalQueues::new(SEGMENT_BYTES);
    queues.add_space(4 * SEGMENT_BYTES as i64);
    let reservation = || {
        std::iter::from_fn(|| queues.reserve(1, 1))
            .collect::<Vec<_>>()
            .len()
    };
    let before = reservation();
    let mut reserved = queues.reserve(1, 1).unwrap();
    for version in 1..=10 {
        let head = RecordHead::added(FilterId(1), version);
        queues.append(&mut reserved, &head, 1, iter::once(KeyHash::default()));
    }
    drop(reserved);
    let (mut filled, mut ends) = (Vec::new(), Vec::new());
    queues.take(&mut filled, &mut ends);
    assert_eq!(ends.len(), 10);
    let given_back: u64 = filled.iter().map(|filled| filled.reserved_bytes).sum();
    queues.add_space(given_back as i64);
    assert_eq!(reservation(), before);
}

#[tokio::test]
async fn nobody_waits_for_a_filter_that_is_no_more() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let log = journal.filter(FilterId(1), &Versions::behind(0));
    let (waiting, ending) = (log.reached(1), async { log.end() });
    let both = async { tokio::join!(waiting, ending) };
    let (waited, ()) = tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .unwrap();
    waited.unwrap();
}

/// Every call finds space if it waits for the space that others give back, however little is left
/// of the current segment.
#[tokio::test]
async fn segments_have_room_for_every_call() {
    const LEAST: u64 = 64 << 10;
    for (keys, records) in [(1, 1), (2_000, 1), (20_000, 256), (8_000, 8_000)] {
        let segment_bytes = Journal::segment_bytes_for(LEAST, keys, records);
        let disk = SimulatedDisk::default();
        let journal = start_with(&disk, segment_bytes);
        let log = journal.filter(FilterId(1), &Versions::behind(0));
        let most = records + keys / WalQueues::new(segment_bytes).hashes_of_a_record();
        // Steps so small that nearly all space of a segment is taken in one of them.
        let count = keys.min(500);
        let steps = 2 * segment_bytes / Batch::bytes_for(count);
        for version in 1..=steps {
            let rooms = journal.reserve_for_both(keys, [most; 2]);
            let rooms = tokio::time::timeout(Duration::from_secs(10), rooms).await;
            let [mut reservation, _] = rooms.expect("there is space").unwrap();
            let head = RecordHead::added(log.filter, version);
            let hashes = iter::repeat_n(KeyHash::default(), count);
            log.append(&mut reservation, &head, count, hashes);
            drop(reservation);
            log.reached(version).await.unwrap();
        }
    }
}
