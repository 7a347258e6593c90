//! Tests of how a data directory treats the files in it.

use super::*;
use crate::store::{
    Batch, Written,
    disk::simulated::{Fault, SimulatedDisk},
};

fn on(disk: &SimulatedDisk) -> Result<DataDirectory, StoreError> {
    DataDirectory::on(Arc::new(disk.clone()))
}

#[test]
fn the_rest_of_a_crash_goes_and_other_files_stay() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    directory.new_number();
    directory.change(|_| {}).unwrap();
    let unknown = ["a.snapshot.0000000000000001"];
    let rest = [
        "0000000000000001.log.tmp",
        "a.snapshot.0000000000000002",
        "MANIFEST.tmp",
    ];
    for file in unknown
        .iter()
        .chain(&rest)
        .chain(&["b.snapshot", "notes.txt"])
    {
        disk.put(file, b"x");
    }
    // The header comes last.
    disk.put("b.snapshot.0000000000000001", b"");
    disk.put(
        "c.snapshot.0000000000000001",
        &[&[0; 384][..], b"x"].concat(),
    );
    let directory = on(&disk).unwrap();
    assert!(directory.filters().is_empty());
    let found = StartupWarnings {
        missing: Vec::new(),
        unknown: unknown.map(|file| directory.path(file)).into(),
    };
    assert_eq!(directory.startup_warnings(), &found);
    let [stranger] = unknown;
    let stay = ["MANIFEST", stranger, "b.snapshot", "notes.txt"];
    assert_eq!(disk.names().unwrap(), stay);
}

#[test]
fn a_filter_without_its_files_is_passed_over_and_comes_back_with_them() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let mut files = BTreeMap::new();
    for name in ["a", "b"].map(|name| name.parse::<FilterName>().unwrap()) {
        let (id, number) = (directory.new_number(), directory.new_number());
        let written = Written {
            number,
            bytes: 1,
            shards: vec![0],
        };
        let stored = SnapshotFiles::default().with(&written);
        directory
            .set_filter(&name, FilterId(id), &stored, 0, None)
            .unwrap();
        let file = names::snapshot(&name, number);
        disk.put(&file, b"x");
        files.insert(name, file);
    }
    let a: FilterName = "a".parse().unwrap();
    disk.remove(&files[&a]).unwrap();
    let directory = on(&disk).unwrap();
    assert_eq!(
        directory.startup_warnings().missing,
        std::slice::from_ref(&a)
    );
    assert_eq!(directory.filters(), ["b".parse().unwrap()]);
    disk.put(&files[&a], b"x");
    assert_eq!(on(&disk).unwrap().filters().len(), 2);
}

#[test]
fn data_that_no_manifest_names_is_not_passed_over() {
    for file in ["a.snapshot.0000000000000001", "0000000000000001.log"] {
        let disk = SimulatedDisk::default();
        disk.put(file, b"x");
        let message = on(&disk).unwrap_err().to_string();
        let expected = format!("MANIFEST is damaged: file: expected one that goes with {file}");
        assert!(message.contains(&expected), "{message}");
        assert_eq!(disk.names().unwrap(), [file]);
    }
}

#[test]
fn numbers_are_given_once() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let first = directory.new_number();
    directory.change(|_| {}).unwrap();
    assert!(directory.new_number() > first);
    drop(directory);
    assert!(on(&disk).unwrap().new_number() > first);
}

/// The removal must not count up to a number that is only written in a manifest.
#[test]
fn segments_without_end_are_not_looked_for() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let names: [FilterName; 2] = ["a", "b"].map(|name| name.parse().unwrap());
    let files = SnapshotFiles::default();
    for (name, log_from) in names.iter().zip([1, 1 << 62]) {
        let id = FilterId(directory.new_number());
        directory
            .set_filter(name, id, &files, log_from, None)
            .unwrap();
    }
    for sequence in 1..=3 {
        disk.put(&log::segment_file(sequence), b"x");
    }
    directory.remove_filter(&names[0]).unwrap();
    assert_eq!(disk.names().unwrap(), ["MANIFEST"]);
}

/// No server writes such a manifest, but a start that succeeds must not make the next one fail.
#[test]
fn a_segment_that_the_manifest_names_stays_without_batches() {
    let disk = SimulatedDisk::default();
    let start = || {
        let directory = on(&disk).unwrap();
        let found = directory
            .log()
            .unwrap()
            .read(|_| Ok::<_, StoreError>(()), &mut Err);
        let log = directory.open_log(&mut found.unwrap(), 8192).unwrap();
        (directory, log)
    };
    let (directory, mut log) = start();
    log.write(&mut Batch::default()).unwrap();
    log.sync().unwrap();
    for number in [2, 3] {
        log::Segment::create(&disk, number, 8192).unwrap();
    }
    for (name, log_from) in [("a", 1), ("b", 3)] {
        let id = FilterId(directory.new_number());
        let name = name.parse().unwrap();
        let files = SnapshotFiles::default();
        directory
            .set_filter(&name, id, &files, log_from, None)
            .unwrap();
    }
    for _ in 0..2 {
        start();
    }
}

/// A kill or a disk error can come between the write of the manifest and the removal of the files
/// that it no longer names.
#[test]
fn files_of_a_filter_that_is_gone_go_with_the_next_start() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let names: [FilterName; 2] = ["a", "b"].map(|name| name.parse().unwrap());
    let stored = [&names[0], &names[1]].map(|name| {
        let id = FilterId(directory.new_number());
        let files: Vec<u64> = (0..3).map(|_| directory.new_number()).collect();
        for &file in &files {
            disk.put(&names::snapshot(name, file), b"x");
        }
        StoredFilter {
            id,
            log_from: 0,
            rebuilds: None,
            files,
        }
    });
    let insert = |manifest: &mut Manifest| {
        let filters = names.iter().cloned().zip(stored.clone());
        manifest.filters.extend(filters);
    };
    directory.change(insert).unwrap();
    let reset = |manifest: &mut Manifest| {
        let stored = manifest.filters.get_mut(&names[1]).unwrap();
        stored.files = vec![99];
        stored.id = FilterId(98);
        manifest.next_number = 100;
    };
    let remove = |manifest: &mut Manifest| drop(manifest.filters.remove(&names[0]));
    let left = |directory: DataDirectory| {
        drop(directory);
        let directory = on(&disk).unwrap();
        assert_eq!(directory.startup_warnings(), &StartupWarnings::default());
        disk.names().unwrap().len() - 1
    };
    // The files of the deleted filter, and the files that the other had before it was reset.
    drop(directory.commit(None, remove).unwrap());
    assert_eq!(left(directory), 3);
    let directory = on(&disk).unwrap();
    disk.put(&names::snapshot(&names[1], 99), b"x");
    drop(directory.commit(None, reset).unwrap());
    assert_eq!(left(directory), 1);
    // From the next manifest on, such a file belongs to somebody else.
    let directory = on(&disk).unwrap();
    directory.change(|_| {}).unwrap();
    drop(directory);
    let back = names::snapshot(&names[0], stored[0].files[0]);
    disk.put(&back, b"x");
    let directory = on(&disk).unwrap();
    assert_eq!(
        directory.startup_warnings().unknown,
        [directory.path(&back)]
    );
}

/// Makes ten changes that wait for the writer, and returns their results.
fn ten_at_once(
    disk: &SimulatedDisk,
    directory: &DataDirectory,
    then: impl FnOnce(),
) -> Vec<Result<(), StoreError>> {
    let writing = directory.manifest.hold_writes();
    let calls = disk.calls();
    std::thread::scope(|scope| {
        let changes: Vec<_> = (0..10)
            .map(|number| {
                scope.spawn(move || {
                    let name: FilterName = format!("f{number}").parse().unwrap();
                    let id = FilterId(directory.new_number());
                    directory.set_filter(&name, id, &SnapshotFiles::default(), 0, None)
                })
            })
            .collect();
        while directory.manifest.changes() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(disk.calls(), calls);
        then();
        drop(writing);
        changes.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn changes_that_come_at_the_same_time_share_a_write() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let one = disk.calls();
    directory.change(|_| {}).unwrap();
    let one = disk.calls() - one;
    let directory = on(&disk).unwrap();
    let before = disk.calls();
    let done = ten_at_once(&disk, &directory, || {});
    assert!(done.iter().all(Result::is_ok));
    assert_eq!(disk.calls() - before, one);
    // None of their files exists.
    assert_eq!(on(&disk).unwrap().startup_warnings().missing.len(), 10);
}

/// If the write fails, none of the changes is done, and each caller gets the error. The next change
/// works as if they had not been made.
#[test]
fn changes_that_share_a_write_fail_together() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let from = disk.calls();
    let full = Fault::Error(io::ErrorKind::StorageFull);
    let done = ten_at_once(&disk, &directory, || disk.fail(from, 1, full));
    assert_eq!(done.len(), 10);
    for failed in done {
        let error = failed.unwrap_err();
        assert!(error.is_full(), "{error}");
        assert!(!matches!(error, StoreError::InDoubt(_)));
    }
    directory.change(|_| {}).unwrap();
    let filters = |directory: &DataDirectory| {
        directory.filters().len() + directory.startup_warnings().missing.len()
    };
    assert_eq!(filters(&directory), 0);
    assert_eq!(filters(&on(&disk).unwrap()), 0);
    // Numbers are not given again.
    assert!(directory.new_number() > 10);
}

/// The filter is gone no matter which caller writes the manifest, and does not come back with the
/// next manifest.
#[test]
fn a_removal_in_doubt_is_not_undone_by_the_change_of_another() {
    let (removed, other): (FilterName, FilterName) = ("a".parse().unwrap(), "b".parse().unwrap());
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    let set = |name: &FilterName| {
        let id = FilterId(directory.new_number());
        directory.set_filter(name, id, &SnapshotFiles::default(), 0, None)
    };
    set(&removed).unwrap();
    let names = |directory: &DataDirectory| -> Vec<FilterName> {
        directory.manifest.lock().filters.keys().cloned().collect()
    };
    let writing = directory.manifest.hold_writes();
    let changes = directory.manifest.changes();
    std::thread::scope(|scope| {
        let both = [
            scope.spawn(|| directory.remove_filter(&removed)),
            scope.spawn(|| set(&other)),
        ];
        while directory.manifest.changes() < changes + 2 {
            std::thread::yield_now();
        }
        // The rename, after the three calls that write the file.
        disk.fail(disk.calls() + 3, 1, Fault::Error(io::ErrorKind::Other));
        drop(writing);
        for done in both {
            let in_doubt = matches!(done.join().unwrap(), Err(StoreError::InDoubt(_)));
            assert!(in_doubt);
        }
    });
    assert_eq!(names(&directory), []);
    assert!(directory.manifest.is_removal_in_doubt());
    set(&other).unwrap();
    assert!(!directory.manifest.is_removal_in_doubt());
    for directory in [&directory, &on(&disk).unwrap()] {
        assert_eq!(names(directory), std::slice::from_ref(&other));
    }
}

/// The segments before the greater number are gone.
#[test]
fn the_log_does_not_begin_earlier_again() {
    let disk = SimulatedDisk::default();
    let directory = on(&disk).unwrap();
    for (from, expected) in [(5, 5), (7, 7), (6, 7), (0, 0)] {
        directory.begin_log(from, |_, _| true, from).unwrap();
        assert_eq!(directory.requests_from(), expected);
        assert_eq!(on(&disk).unwrap().requests_from(), expected);
    }
}
