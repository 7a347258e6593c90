//! Tests of a damaged directory: all damage is reported, and undamaged data is saved.

mod kinds;

use std::{sync::Arc, time::SystemTime};

use fastrand::Rng;

use super::*;
use crate::{
    filter::{
        hash::{HashFunction, KeyHash, Secret},
        profile::KeyProfile,
        shard_map::ShardMap,
        spec::{BodySpec, FilterSpec, Kind, Layout, SpecRequest},
    },
    store::{
        Batch, Counted, Direction, FilterId, LogWriter, Record, RecordHead, RecordKind, ShardState,
        SnapshotFiles, SnapshotHeader,
        simulated::{Fault, SimulatedDisk},
    },
};

const SEGMENT_BYTES: u64 = 4 << 10;
const SECRET: [u8; 16] = *b"0123456789abcdef";
/// The epoch at which shards of ageing keys were cleared.
const EPOCH: u64 = 7;

/// The contents of a directory, as a start would read them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Contents {
    filters: BTreeMap<FilterName, Stored>,
    records: Vec<Record>,
}

/// The stored state of a filter.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    spec: FilterSpec,
    version: u64,
    shards: BTreeMap<usize, (ShardState, Vec<u64>)>,
}

/// Reads all of a directory as a start does. Ends with the first damage.
fn read(disk: &SimulatedDisk) -> Result<Contents, StoreError> {
    let directory = DataDirectory::on(Arc::new(disk.clone()))?;
    let mut contents = Contents::default();
    for name in directory.filters() {
        let reader = directory.read_filter(&name)?.unwrap();
        let mut shards = BTreeMap::new();
        for shard in reader.shards() {
            let mut words = vec![0; reader.shard_map().shape(shard).shard_words()];
            let state = reader.read_shard(shard, &mut words, &mut Err)?;
            shards.insert(shard, (state, words));
        }
        let header = reader.header();
        let stored = Stored {
            spec: header.spec.clone(),
            version: header.version,
            shards,
        };
        contents.filters.insert(name, stored);
    }
    directory.log()?.read(
        |record| {
            contents.records.push(record);
            Ok::<_, StoreError>(())
        },
        &mut Err,
    )?;
    Ok(contents)
}

/// Stores some shards, all full of one word, which is also the version.
fn store(
    directory: &DataDirectory,
    header: &SnapshotHeader,
    files: &SnapshotFiles,
    shards: &[usize],
    word: u64,
) -> SnapshotFiles {
    let header = SnapshotHeader {
        number: directory.new_number(),
        version: word,
        ..header.clone()
    };
    let shard_map = ShardMap::of(&header.spec);
    let written = directory.write_snapshot(&header, shards, |shard, words| {
        words.fill(word);
        Ok(ShardState {
            version: word,
            keys_added: 1,
            bits_set: shard_map.shape(shard).bits_set(words),
            cleared: match header.spec.body.kind() {
                Kind::Aging(_) => EPOCH,
                _ => 0,
            },
        })
    });
    let files = files.with(&written.unwrap());
    let (name, id) = (&header.name, header.filter);
    directory.set_filter(name, id, &files, 1, None).unwrap();
    files
}

fn profile() -> Option<KeyProfile> {
    let names = ["sid".to_owned()];
    Some(KeyProfile::new(KeyProfile::NAME, true, &names).unwrap())
}

fn spec(key_profile: Option<KeyProfile>) -> FilterSpec {
    let request = SpecRequest {
        layout: Layout::Blocked,
        bit_count: Some(1024),
        false_positive_rate: None,
        hash_function: HashFunction::Xxh3_128,
        key_profile,
        ..SpecRequest::new(1000, 0.5)
    };
    request.resolve().unwrap()
}

/// Two filters, one of which has a key profile and has been stored twice, and a log of three
/// segments.
fn example() -> SimulatedDisk {
    example_of(spec(profile()))
}

/// Does the same as [`example`], with another spec for one of the filters.
fn example_of(urls: FilterSpec) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let directory = DataDirectory::on(Arc::new(disk.clone())).unwrap();
    let mut log = LogWriter::begin(Arc::new(disk.clone()), 1, SEGMENT_BYTES).unwrap();
    let mut filters = Vec::new();
    for (name, spec) in [("other", spec(None)), ("urls", urls)] {
        let header = SnapshotHeader {
            filter: FilterId(directory.new_number()),
            number: 0,
            name: name.parse().unwrap(),
            spec,
            secret: Secret::new(SECRET),
            version: 1,
            create_time: SystemTime::UNIX_EPOCH,
            store_time: SystemTime::UNIX_EPOCH,
        };
        // Of a filter in layers, the first two shards. The second is in both files.
        let shards = ShardMap::of(&header.spec).shard_count().min(2);
        let all: Vec<usize> = (0..shards).collect();
        let files = store(&directory, &header, &SnapshotFiles::default(), &all, 1);
        if name == "urls" {
            store(&directory, &header, &files, &all[shards - 1..], 3);
        }
        filters.push((header.filter, header.spec.body.kind()));
    }
    for version in 1..=90 {
        let mut batch = Batch::default();
        let hashes = (0..3).map(|i| KeyHash {
            low: version,
            high: i,
        });
        let (filter, kind) = filters[version as usize % 2];
        batch.push(&head(filter, kind, version), 3, hashes);
        if log.room_bytes() < batch.bytes() {
            log.go_on(SEGMENT_BYTES).unwrap();
        }
        log.write(&mut batch).unwrap();
        log.sync().unwrap();
    }
    assert_eq!(log.sequence(), 3);
    disk
}

/// Returns the head of the record of a call, for a filter of a kind.
fn head(filter: FilterId, kind: Kind, version: u64) -> RecordHead {
    let added = RecordHead::added(filter, version);
    let direction = match version % 3 {
        0 => Direction::Down,
        _ => Direction::Up,
    };
    match kind {
        Kind::Plain => added,
        Kind::Counting => RecordHead {
            kind: RecordKind::Counted(Counted {
                direction,
                since: 0,
            }),
            ..added
        },
        Kind::Aging(_) => RecordHead {
            kind: RecordKind::AddedAt { epoch: version },
            ..added
        },
        Kind::Scaling(_) => RecordHead {
            kind: RecordKind::AddedTo {
                layer: version / 50,
            },
            ..added
        },
    }
}

/// Returns the record as a rewritten log holds it. Keys that were counted up become added keys.
/// Keys that were counted down are dropped.
fn told_anew(record: &Record) -> Option<Record> {
    let mut record = record.clone();
    if let RecordKind::Counted(counted) = record.head.kind {
        if counted.direction == Direction::Down {
            return None;
        }
        record.head.kind = RecordKind::Added;
    }
    Some(record)
}

fn inspect(disk: &SimulatedDisk) -> Inspection {
    Inspection::on(Arc::new(disk.clone())).unwrap()
}

fn is_whole(inspection: &Inspection) -> bool {
    inspection.damage().all(Damage::is_none)
}

/// Returns the directory with one of its files changed.
fn with(disk: &SimulatedDisk, file: &str, bytes: &[u8]) -> SimulatedDisk {
    let damaged = disk.kill();
    damaged.put(file, bytes);
    damaged
}

/// Checks that the reported damage and the saved data agree with the result of a start. At most
/// `most_lost` records may be lost.
fn check(damaged: &SimulatedDisk, whole: &Contents, most_lost: usize, what: &str) -> Salvaged {
    let before = damaged.kill();
    let started = read(&damaged.kill());
    let inspection = match Inspection::on(Arc::new(damaged.clone())) {
        Ok(inspection) => inspection,
        Err(StoreError::NewerFormat { .. }) => {
            assert!(
                matches!(started, Err(StoreError::NewerFormat { .. })),
                "{what}"
            );
            return Salvaged::default();
        }
        Err(error) => panic!("{what}: {error}"),
    };
    for name in before.names().unwrap() {
        assert_eq!(
            before.contents(&name),
            damaged.contents(&name),
            "{what}: looking changes {name}"
        );
    }
    assert_eq!(
        is_whole(&inspection),
        started.is_ok(),
        "{what}: {started:?}"
    );
    if let Err(error) = &started {
        let told = inspection.damage().flat_map(|damage| &damage.first);
        let told: Vec<String> = told.map(ToString::to_string).collect();
        assert!(
            told.contains(&error.to_string()),
            "{what}: {error}: {told:?}"
        );
    }
    let salvaged = inspection.salvage(SEGMENT_BYTES).unwrap();
    let saved = read(damaged).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(is_whole(&inspect(damaged)), "{what}");
    // If a start can read the directory, the saved data is the same.
    if let Ok(started) = started {
        assert_eq!(saved, started, "{what}");
        return salvaged;
    }
    let records: Vec<Record> = match salvaged.log {
        true => whole.records.iter().filter_map(told_anew).collect(),
        false => whole.records.clone(),
    };
    let is_new = |record: &Record| !records.contains(record);
    assert!(!saved.records.iter().any(is_new), "{what}");
    let is_lost = |record: &&Record| !saved.records.contains(record);
    let lost = records.iter().filter(is_lost).count();
    assert!(lost == 0 || salvaged.log, "{what}");
    assert!(lost <= most_lost, "{what}: {lost} records are lost");
    for (name, whole) in &whole.filters {
        match saved.filters.get(name) {
            Some(saved) => check_filter(saved, whole, salvaged.filters.contains(name), what),
            None => assert!(salvaged.lost.contains(name), "{what}: {name}"),
        }
    }
    salvaged
}

/// Checks that the saved data of a filter was there before, and is complete unless damage was
/// reported.
fn check_filter(saved: &Stored, whole: &Stored, is_salvaged: bool, what: &str) {
    assert_eq!(saved.spec, whole.spec, "{what}");
    let version = match whole.spec.body.kind() {
        // All records of the log are to be added once more.
        Kind::Plain | Kind::Aging(_) | Kind::Scaling(_) if is_salvaged => 0,
        // No key is to be counted twice.
        _ => whole.version,
    };
    assert_eq!(saved.version, version, "{what}");
    for (shard, (state, words)) in &whole.shards {
        let Some((found_state, found)) = saved.shards.get(shard) else {
            assert!(is_salvaged, "{what}: shard {shard}");
            continue;
        };
        let mut both = found.iter().zip(words);
        let is_subset = both.all(|(found, word)| found & !word == 0);
        assert!(is_subset, "{what}: shard {shard}");
        assert!(found == words || is_salvaged, "{what}: shard {shard}");
        assert_eq!(found_state.cleared, state.cleared, "{what}: shard {shard}");
        // Only the version of a shard shows which changes it holds.
        let may_be_older = whole.spec.body.kind() != Kind::Counting;
        assert!(
            found_state.version == state.version || may_be_older && is_salvaged,
            "{what}: shard {shard}"
        );
    }
}

#[test]
fn a_whole_directory_is_whole() {
    let disk = example();
    let inspection = inspect(&disk);
    assert!(is_whole(&inspection));
    let found: Vec<_> = inspection
        .filters()
        .map(|(name, filter)| (name.as_str(), filter.files, filter.keys_added))
        .collect();
    assert_eq!(found, [("other", 1, 1), ("urls", 1, 1)]);
    let log = inspection.log();
    assert_eq!((log.segments, log.keys), (3, 270));
    let whole = read(&disk).unwrap();
    let salvaged = check(&disk, &whole, 0, "nothing");
    assert_eq!(salvaged.kept, [""; 0]);
    assert_eq!(read(&disk).unwrap(), whole);
}

/// Damages each bit and each length of each file. The damage that a start refuses is reported, and
/// nothing else is. After the readable data was saved, a start accepts the directory.
#[test]
fn what_any_damage_leaves_is_saved() {
    let disk = example();
    let whole = read(&disk).unwrap();
    for file in disk.names().unwrap() {
        // All of the first bytes, where the headers are, and some of the others.
        let is_tried = |bit: usize| bit / 8 < 200 || bit.is_multiple_of(97);
        try_damage(&disk, &whole, &file, is_tried);
        let damaged = disk.kill();
        damaged.remove(&file).unwrap();
        check(&damaged, &whole, 45, &format!("without {file}"));
    }
}

/// Flips bits of a file, and truncates it.
fn try_damage(
    disk: &SimulatedDisk,
    whole: &Contents,
    file: &str,
    is_tried: impl Fn(usize) -> bool,
) {
    let good = disk.contents(file).unwrap();
    let half = whole.records.len() / 2;
    for bit in (0..good.len() * 8).filter(|&bit| is_tried(bit)) {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let what = format!("bit {bit} of {file}");
        // Loses a batch, or all of a segment.
        let most_lost = match file.ends_with(".log") {
            true if bit < 64 * 8 => half,
            is_log => usize::from(is_log),
        };
        check(&with(disk, file, &bytes), whole, most_lost, &what);
    }
    for length in (0..good.len()).step_by(41) {
        let what = format!("{file} cut to {length} bytes");
        check(&with(disk, file, &good[..length]), whole, half, &what);
    }
}

/// Only the damaged data is lost.
#[test]
fn what_is_not_damaged_is_kept() {
    let disk = example();
    let whole = read(&disk).unwrap();

    // One batch in the middle of a segment.
    let file = "0000000000000002.log";
    let mut bytes = disk.contents(file).unwrap();
    bytes[1000] ^= 1;
    let damaged = with(&disk, file, &bytes);
    let salvaged = check(&damaged, &whole, 1, "a batch");
    assert_eq!(salvaged.kept, [format!("{file}.damaged")]);
    assert_eq!(damaged.contents(&format!("{file}.damaged")), Some(bytes));
    let saved = read(&damaged).unwrap();
    assert_eq!(saved.records.len(), whole.records.len() - 1);
    assert_eq!(saved.filters, whole.filters);

    // The manifest.
    let mut bytes = disk.contents(Manifest::FILE).unwrap();
    bytes[100] ^= 1;
    let damaged = with(&disk, Manifest::FILE, &bytes);
    let salvaged = check(&damaged, &whole, 0, "the manifest");
    assert_eq!(salvaged.kept, ["MANIFEST.damaged"]);
    assert_eq!(damaged.contents("MANIFEST.damaged"), Some(bytes));
    assert_eq!(read(&damaged).unwrap(), whole);

    // A page, which is the filter's whole shard here. The keys in the log come back.
    let names = disk.names().unwrap();
    let file = names.iter().find(|name| name.starts_with("urls.")).unwrap();
    let mut bytes = disk.contents(file).unwrap();
    // After the header and the extension.
    bytes[384 + 55 + 16] ^= 1;
    let damaged = with(&disk, file, &bytes);
    let salvaged = check(&damaged, &whole, 0, "a page");
    assert_eq!(salvaged.filters, ["urls".parse().unwrap()]);
    let directory = DataDirectory::on(Arc::new(damaged.clone())).unwrap();
    let reader = directory
        .read_filter(&salvaged.filters[0])
        .unwrap()
        .unwrap();
    assert_eq!(
        reader.header().version,
        0,
        "the log is to be read from there on"
    );
    assert_eq!(reader.header().secret, Secret::new(SECRET));
    assert_eq!(reader.header().spec.key_profile, profile());
    assert_eq!(read(&damaged).unwrap().records, whole.records);

    // The header of the file, and the extension of the header.
    for at in [30, 390] {
        let mut bytes = disk.contents(file).unwrap();
        bytes[at] ^= 1;
        let damaged = with(&disk, file, &bytes);
        let salvaged = check(&damaged, &whole, 0, "a header");
        assert_eq!(salvaged.lost, ["urls".parse().unwrap()]);
        assert_eq!(salvaged.kept, [format!("{file}.damaged")]);
    }
}

/// A rebuilt manifest counts on from the numbers of the files. It must be readable itself.
#[test]
fn numbers_that_nobody_has_given_are_damage() {
    let disk = example();
    let whole = read(&disk).unwrap();
    let mut manifest = disk.contents(Manifest::FILE).unwrap();
    manifest[100] ^= 1;
    let directory = DataDirectory::on(Arc::new(disk.kill())).unwrap();
    let name: FilterName = "urls".parse().unwrap();
    let header = directory.read_filter(&name).unwrap().unwrap();
    let header = header.header().clone();
    for (filter, number) in [
        (header.filter.0, u64::MAX),
        (header.filter.0, MAX_NUMBER),
        (u64::MAX, 99),
        (MAX_NUMBER, 99),
    ] {
        let damaged = with(&disk, Manifest::FILE, &manifest);
        let strange = SnapshotHeader {
            filter: FilterId(filter),
            number,
            ..header.clone()
        };
        let beside = SimulatedDisk::default();
        let other = DataDirectory::on(Arc::new(beside.clone())).unwrap();
        let empty = |_, _: &mut [u64]| Ok(ShardState::default());
        other.write_snapshot(&strange, &[], empty).unwrap();
        let file = format!("urls.snapshot.{number:016x}");
        damaged.put(&file, &beside.contents(&file).unwrap());
        let salvaged = check(&damaged, &whole, 0, &file);
        assert_eq!(
            salvaged.kept,
            ["MANIFEST.damaged".to_owned(), format!("{file}.damaged")]
        );
        assert!(is_whole(&inspect(&damaged)));
        assert_eq!(read(&damaged).unwrap(), whole);
    }
}

/// Somebody has copied a file of a renamed filter, and has given a file the number of a filter.
#[test]
fn a_number_is_of_one_file_or_filter() {
    let disk = example();
    let mut manifest = disk.contents(Manifest::FILE).unwrap();
    manifest[100] ^= 1;
    let directory = DataDirectory::on(Arc::new(disk.kill())).unwrap();
    let header_of = |name: &str| {
        let name: FilterName = name.parse().unwrap();
        let reader = directory.read_filter(&name).unwrap();
        reader.unwrap().header().clone()
    };
    let (urls, other) = (header_of("urls"), header_of("other"));
    let damaged = with(&disk, Manifest::FILE, &manifest);
    let put = |number: u64, name: &str| {
        let beside = SimulatedDisk::default();
        let directory = DataDirectory::on(Arc::new(beside.clone())).unwrap();
        let header = SnapshotHeader {
            number,
            name: name.parse().unwrap(),
            ..urls.clone()
        };
        let empty = |_, _: &mut [u64]| Ok(ShardState::default());
        directory.write_snapshot(&header, &[], empty).unwrap();
        let file = format!("{name}.snapshot.{number:016x}");
        damaged.put(&file, &beside.contents(&file).unwrap());
    };
    put(99, "pages");
    put(other.filter.0, "pages");
    let copied = format!("snapshot.{:016x}", urls.number);
    let bytes = disk.contents(&format!("urls.{copied}")).unwrap();
    damaged.put(&format!("pages.{copied}"), &bytes);

    let salvaged = inspect(&damaged).salvage(SEGMENT_BYTES).unwrap();
    let file = format!("pages.snapshot.{:016x}.damaged", other.filter.0);
    assert_eq!(salvaged.kept, ["MANIFEST.damaged".to_owned(), file]);
    assert!(is_whole(&inspect(&damaged)));
    let (saved, whole) = (read(&damaged).unwrap(), read(&disk).unwrap());
    let stored = |contents: &Contents, name: &str| {
        let name: FilterName = name.parse().unwrap();
        contents.filters[&name].clone()
    };
    assert_eq!(stored(&saved, "pages"), stored(&whole, "urls"));
    assert_eq!(stored(&saved, "other"), stored(&whole, "other"));
}

/// A power cut at any place leaves the data that could be saved before.
#[test]
fn saving_may_be_cut_short_anywhere() {
    let disk = example();
    let whole = read(&disk).unwrap();
    let damaged = disk.kill();
    for file in ["0000000000000002.log", "other.snapshot.0000000000000002"] {
        let mut bytes = damaged.contents(file).unwrap();
        bytes[400] ^= 1;
        damaged.put(file, &bytes);
    }
    let done = damaged.kill();
    inspect(&done).salvage(SEGMENT_BYTES).unwrap();
    let saved = read(&done).unwrap();
    assert_ne!(saved, whole);
    for call in 0.. {
        let tried = damaged.kill();
        let inspection = inspect(&tried);
        let begun = tried.calls();
        tried.fail(begun + call, 1, Fault::PowerCut);
        let result = inspection.salvage(SEGMENT_BYTES);
        let is_done = result.is_ok() && tried.calls() <= begun + call;
        let found = tried.cut(&mut Rng::with_seed(call));
        if read(&found.kill()).is_err() {
            inspect(&found).salvage(SEGMENT_BYTES).unwrap();
        }
        let found = read(&found).unwrap();
        assert_eq!(found.filters, saved.filters, "call {call}");
        for record in &saved.records {
            assert!(found.records.contains(record), "call {call}");
        }
        if is_done {
            return;
        }
    }
}

/// A start removes the segment unread.
#[test]
fn a_segment_that_nobody_needs_is_no_damage() {
    let disk = SimulatedDisk::default();
    DataDirectory::on(Arc::new(disk.clone())).unwrap();
    disk.put("0000000000000074.log", b"short");
    assert!(is_whole(&inspect(&disk)));
    read(&disk).unwrap();
    assert_eq!(disk.contents("0000000000000074.log"), None);
}
