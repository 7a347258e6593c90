//! A snapshot comes back as it was written, and a damaged one does not come back at all.

use std::{fs, time::SystemTime};

use super::*;
use crate::{
    filter::{
        hash::{HashFunction, Secret},
        shape::Shape,
        spec::{Layout, SpecRequest},
    },
    store::{DataDirectory, FilterName, StoreError},
};

fn header(layout: Layout, bit_count: u64) -> SnapshotHeader {
    let request = SpecRequest {
        layout,
        bit_count: Some(bit_count),
        false_positive_rate: None,
        hash_function: HashFunction::Xxh3_128,
        ..SpecRequest::new(1000, 0.5)
    };
    SnapshotHeader {
        name: "urls".parse().unwrap(),
        spec: request.resolve().unwrap(),
        secret: Secret::new([7; 16]),
        version: 42,
        create_time: SystemTime::UNIX_EPOCH,
        store_time: SystemTime::now(),
    }
}

/// Writes a snapshot whose shard `i` is full of the word `i`: shard 0 is empty.
fn write(directory: &DataDirectory, header: &SnapshotHeader) -> Written {
    directory
        .write_snapshot(header, |index, words| {
            words.fill(index as u64);
            let bits_set = (index as u64).count_ones() as u64 * words.len() as u64;
            ShardState {
                version: 40 + index as u64,
                keys_added: index as u64,
                bits_set,
            }
        })
        .unwrap()
}

fn read(directory: &DataDirectory, name: &FilterName) -> Result<usize, StoreError> {
    let reader = directory.read_snapshot(name)?;
    let mut shards = 0;
    reader.read_shards(|index, state, words| {
        assert_eq!(
            (state.version, state.keys_added),
            (40 + index as u64, index as u64)
        );
        assert!(words.iter().all(|&word| word == index as u64));
        shards += 1;
    })?;
    Ok(shards)
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    for layout in Layout::ALL {
        let header = header(layout, 100_000_000);
        let written = write(&directory, &header);
        let shape = Shape::of(&header.spec);
        assert_eq!(shape.shard_count(), 3);
        let path = directory.snapshot(&header.name);
        assert_eq!(fs::metadata(path).unwrap().len(), written.bytes);
        // The empty shard takes no room.
        assert_eq!(written.bytes, 384 + 3 * 40 + 8 + 2 * shape.shard_bits() / 8);
        let reader = directory.read_snapshot(&header.name).unwrap();
        assert_eq!(reader.header(), &header);
        assert_eq!(read(&directory, &header.name).unwrap(), 2);
        assert!(!directory.temporary(&header.name).exists());
    }
}

/// Every single byte counts: whichever is changed, and wherever the file is cut, it is
/// noticed and the error names the file.
#[test]
fn damage_anywhere_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let header = header(Layout::Blocked, 1024);
    let path = directory.snapshot(&header.name);
    directory
        .write_snapshot(&header, |_, words| {
            words.fill(1);
            ShardState {
                version: 40,
                keys_added: 0,
                bits_set: words.len() as u64,
            }
        })
        .unwrap();
    let good = fs::read(&path).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        let result = directory
            .read_snapshot(&header.name)
            .and_then(|reader| reader.read_shards(|_, _, _| ()));
        let message = result.expect_err(what).to_string();
        assert!(message.contains("urls.snapshot"), "{what}: {message}");
        assert!(
            message.contains("expected") || message.contains("reads format"),
            "{what}: {message}"
        );
        assert_eq!(
            fs::read(&path).unwrap(),
            bytes,
            "{what}: the file was changed"
        );
    };
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 0x10;
        refused(&bytes, &format!("byte {position} changed"));
    }
    for length in 0..good.len() {
        refused(&good[..length], &format!("cut to {length} bytes"));
    }
    refused(&[good.as_slice(), b"x"].concat(), "one byte more");
}

#[test]
fn a_newer_format_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let header = header(Layout::Blocked, 1024);
    write(&directory, &header);
    let path = directory.snapshot(&header.name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = directory.read_snapshot(&header.name).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::NewerFormat {
                expected: 1,
                found: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_snapshot_under_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let header = header(Layout::Blocked, 1024);
    write(&directory, &header);
    let other = "other".parse().unwrap();
    fs::copy(directory.snapshot(&header.name), directory.snapshot(&other)).unwrap();
    let message = directory.read_snapshot(&other).unwrap_err().to_string();
    assert!(
        message.contains("expected other, after the file, found urls"),
        "{message}"
    );
}

/// A header that is well formed and asks for 128 TiB: the length of the file gives it away
/// before anything is allocated.
#[test]
fn a_huge_claim_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let mut header = header(Layout::Blocked, 1024);
    header.spec.bit_count = 1 << 50;
    fs::write(directory.snapshot(&header.name), header.encode(384)).unwrap();
    let message = directory
        .read_snapshot(&header.name)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("length of the file: expected at least"),
        "{message}"
    );
}

/// A write that fails half-way leaves the snapshot before as it was.
#[test]
fn a_failed_write_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let header = header(Layout::Blocked, 1024);
    write(&directory, &header);
    let before = fs::read(directory.snapshot(&header.name)).unwrap();
    // A directory in the place of the temporary file.
    fs::create_dir(directory.temporary(&header.name)).unwrap();
    let error = directory
        .write_snapshot(&header, |_, _| ShardState::default())
        .unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(fs::read(directory.snapshot(&header.name)).unwrap(), before);
}

/// What a crash can leave behind while a second snapshot is written: the first, and any part
/// of the second under its temporary name. The first is what comes back.
#[test]
fn a_crash_while_writing_leaves_the_snapshot_before() {
    let dir = tempfile::tempdir().unwrap();
    let header = header(Layout::Blocked, 1024);
    let write_of = |word: u64| {
        let directory = DataDirectory::open(dir.path()).unwrap();
        let state = ShardState {
            version: word,
            keys_added: 1,
            bits_set: 1,
        };
        directory
            .write_snapshot(&header, |_, words| {
                words.fill(word);
                state
            })
            .unwrap();
        fs::read(directory.snapshot(&header.name)).unwrap()
    };
    let (second, first) = (write_of(2), write_of(1));
    for length in 0..=second.len() {
        let temporary = dir.path().join("urls.snapshot.tmp");
        fs::write(&temporary, &second[..length]).unwrap();
        let directory = DataDirectory::open(dir.path()).unwrap();
        assert!(!temporary.exists());
        assert_eq!(fs::read(directory.snapshot(&header.name)).unwrap(), first);
        let reader = directory.read_snapshot(&header.name).unwrap();
        reader
            .read_shards(|_, _, words| assert!(words.iter().all(|&word| word == 1)))
            .unwrap();
    }
}
