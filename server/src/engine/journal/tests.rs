//! The log under calls that come at the same time.

mod progress;

use futures_util::FutureExt;

use super::*;
use crate::store::{Disk, LogEnd, LogReader, RequestId, Segment, simulated::SimulatedDisk};

const SEGMENT_BYTES: u64 = 4 << 10;

fn start(disk: &SimulatedDisk) -> Journal {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let segment = Segment::create(&*disk, 1, SEGMENT_BYTES).unwrap();
    let log = LogWriter::new(disk, LogEnd::default(), segment);
    let is_read_only = watch::Sender::new(false);
    Journal::start(log, Durability::Always, SEGMENT_BYTES, is_read_only).unwrap()
}

async fn append(journal: &Journal, log: &FilterLog, version: u64) {
    let mut room = journal.reserve(1, 1).await.unwrap();
    let hash = KeyHash {
        low: version,
        high: version,
    };
    let head = RecordHead::added(log.filter, version);
    log.append(&mut room, &head, 1, std::iter::once(hash));
}

/// A version whose call has not handed it over yet holds up those behind it, and nobody who
/// waits for those before.
#[tokio::test]
async fn progress_waits_for_every_version() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let (log, other) = (
        journal.filter(FilterId(1), 4),
        journal.filter(FilterId(2), 0),
    );
    assert!(log.has_reached(4) && !log.has_reached(5));
    append(&journal, &log, 5).await;
    log.reached(5).await.unwrap();
    append(&journal, &log, 8).await;
    append(&journal, &log, 7).await;
    // What comes later has been written, and so have those.
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

/// Threads hand over at the same time: nothing is lost on the way, and everybody is woken.
#[test]
fn nothing_is_lost_between_threads() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let log = journal.filter(FilterId(1), 0);
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

/// What several calls of one id have won may be more than there is room for at once.
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

/// As much room is given back as was taken, for calls of any size.
#[test]
fn room_is_neither_lost_nor_made() {
    let lanes = Lanes::new(SEGMENT_BYTES);
    let of_a_record = lanes.hashes_of_a_record();
    for count in [1, of_a_record, 3 * of_a_record, 3 * of_a_record + 1] {
        let room = |lanes: &Lanes| {
            // As many keys one by one as there is room for.
            let rooms: Vec<_> = std::iter::from_fn(|| lanes.reserve(1, 1)).collect();
            rooms.len()
        };
        lanes.add_room(4 * SEGMENT_BYTES as i64);
        let before = room(&lanes);
        for version in 1..=100 {
            let mut reserved = lanes.reserve(count, 1).unwrap();
            let hashes = std::iter::repeat_n(KeyHash::default(), count);
            let head = RecordHead::added(FilterId(1), version);
            lanes.append(&mut reserved, &head, count, hashes);
            let (mut filled, mut ends) = (Vec::new(), Vec::new());
            lanes.take(&mut filled, &mut ends);
            let taken: u64 = filled.iter().map(|filled| filled.reserved_bytes).sum();
            lanes.add_room(taken as i64);
        }
        assert_eq!(room(&lanes), before, "{count}");
    }
}

/// Nor where a call hands over more than it had reserved room for, as it may where the filter
/// that it was for has become another one meanwhile.
#[test]
fn no_more_room_is_given_back_than_was_reserved() {
    let lanes = Lanes::new(SEGMENT_BYTES);
    lanes.add_room(4 * SEGMENT_BYTES as i64);
    let room = || {
        std::iter::from_fn(|| lanes.reserve(1, 1))
            .collect::<Vec<_>>()
            .len()
    };
    let before = room();
    let mut reserved = lanes.reserve(1, 1).unwrap();
    for version in 1..=10 {
        let head = RecordHead::added(FilterId(1), version);
        lanes.append(&mut reserved, &head, 1, std::iter::once(KeyHash::default()));
    }
    drop(reserved);
    let (mut filled, mut ends) = (Vec::new(), Vec::new());
    lanes.take(&mut filled, &mut ends);
    assert_eq!(ends.len(), 10);
    let given_back: u64 = filled.iter().map(|filled| filled.reserved_bytes).sum();
    lanes.add_room(given_back as i64);
    assert_eq!(room(), before);
}

#[tokio::test]
async fn nobody_waits_for_a_filter_that_is_no_more() {
    let disk = SimulatedDisk::default();
    let journal = start(&disk);
    let log = journal.filter(FilterId(1), 0);
    let (waiting, ending) = (log.reached(1), async { log.end() });
    let both = async { tokio::join!(waiting, ending) };
    let (waited, ()) = tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .unwrap();
    waited.unwrap();
}
