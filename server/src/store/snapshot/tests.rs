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
        Ok::<_, StoreError>(())
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
        let path = directory.path(&DataDirectory::snapshot(&header.name));
        assert_eq!(fs::metadata(path).unwrap().len(), written.bytes);
        // The empty shard takes no room.
        assert_eq!(written.bytes, 384 + 3 * 40 + 8 + 2 * shape.shard_bits() / 8);
        let reader = directory.read_snapshot(&header.name).unwrap();
        assert_eq!(reader.header(), &header);
        assert_eq!(read(&directory, &header.name).unwrap(), 2);
        assert!(
            !directory
                .path(&DataDirectory::temporary(&header.name))
                .exists()
        );
    }
}

/// A good snapshot of one shard, to be damaged.
struct Victim {
    _dir: tempfile::TempDir,
    directory: DataDirectory,
    name: FilterName,
    good: Vec<u8>,
}

impl Victim {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(dir.path()).unwrap();
        let header = header(Layout::Blocked, 1024);
        directory
            .write_snapshot(&header, |_, words| {
                words.fill(1);
                ShardState {
                    version: 40,
                    keys_added: 2,
                    bits_set: words.len() as u64,
                }
            })
            .unwrap();
        Self {
            good: fs::read(directory.path(&DataDirectory::snapshot(&header.name))).unwrap(),
            name: header.name,
            directory,
            _dir: dir,
        }
    }

    /// What is said of these bytes in the place of the good ones. They must stay as they are.
    fn refusal(&self, bytes: &[u8], what: &str) -> String {
        let path = self.directory.path(&DataDirectory::snapshot(&self.name));
        fs::write(&path, bytes).unwrap();
        let read = self
            .directory
            .read_snapshot(&self.name)
            .and_then(|reader| reader.read_shards(|_, _, _| Ok(())));
        let message = read.expect_err(what).to_string();
        assert!(message.contains("urls.snapshot"), "{what}: {message}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{what}: it was changed");
        message
    }
}

/// Every single byte counts: whichever is changed, and wherever the file is cut, it is
/// noticed and the error names the file.
#[test]
fn damage_anywhere_is_noticed() {
    let victim = Victim::new();
    let refused = |bytes: &[u8], what: &str| {
        let message = victim.refusal(bytes, what);
        assert!(
            message.contains("expected") || message.contains("reads format"),
            "{what}: {message}"
        );
    };
    for position in 0..victim.good.len() {
        let mut bytes = victim.good.clone();
        bytes[position] ^= 0x10;
        refused(&bytes, &format!("byte {position} changed"));
        // Another byte with as many bits set.
        bytes[position] = victim.good[position].rotate_left(1);
        if bytes != victim.good {
            refused(&bytes, &format!("byte {position} rotated"));
        }
    }
    for length in 0..victim.good.len() {
        refused(&victim.good[..length], &format!("cut to {length} bytes"));
    }
    refused(&[victim.good.as_slice(), b"x"].concat(), "one byte more");
}

/// Numbers that no seenset would write, with good checksums over them: a program gone wrong,
/// or somebody who wants to see what a snapshot can make the server do.
#[test]
fn well_formed_nonsense_is_refused_by_name() {
    let victim = Victim::new();
    let nan = f64::NAN.to_bits();
    let (one, much) = (1.0_f64.to_bits(), u64::MAX);
    // Offsets are those of docs/format.md.
    let (table, shards) = (384, 384 + 40 + 8);
    let cases: &[(usize, &[u8], &str)] = &[
        (
            16,
            &much.to_le_bytes(),
            "length of the file: expected 18446744073709551615",
        ),
        (24, &much.to_le_bytes(), "version: expected at most"),
        (
            48,
            &0_u64.to_le_bytes(),
            "capacity: expected at least 1, found 0",
        ),
        (
            56,
            &nan.to_le_bytes(),
            "false_positive_rate: expected above 0",
        ),
        (
            56,
            &one.to_le_bytes(),
            "false_positive_rate: expected above 0",
        ),
        (
            56,
            &0_u64.to_le_bytes(),
            "false_positive_rate: expected above 0",
        ),
        (64, &0_u64.to_le_bytes(), "bit_count: expected 1 to"),
        (64, &much.to_le_bytes(), "bit_count: expected 1 to"),
        (
            64,
            &1025_u64.to_le_bytes(),
            "bit_count: expected 1536, found 1025",
        ),
        (
            64,
            &2048_u64.to_le_bytes(),
            "bits per shard: expected 2048, found 1024",
        ),
        (
            72,
            &0_u32.to_le_bytes(),
            "hash_count: expected 1 to 64, found 0",
        ),
        (
            72,
            &65_u32.to_le_bytes(),
            "hash_count: expected 1 to 64, found 65",
        ),
        (76, &9_u32.to_le_bytes(), "layout: expected 1 or 2, found 9"),
        (80, b"md5\0", "hash function: expected a known one"),
        (
            128,
            &2_u64.to_le_bytes(),
            "shard count: expected 1, found 2",
        ),
        (
            136,
            &8_u64.to_le_bytes(),
            "bits per shard: expected 1024, found 8",
        ),
        (144, b"../x", "filter name: expected a filter name"),
        (
            table,
            &64_u64.to_le_bytes(),
            "stored bytes of shard 0: expected 0 or 128",
        ),
        (table, &0_u64.to_le_bytes(), "counts of shard 0"),
        (
            table + 8,
            &much.to_le_bytes(),
            "version of shard 0: expected at most",
        ),
        (table + 16, &17_u64.to_le_bytes(), "counts of shard 0"),
        (
            table + 24,
            &much.to_le_bytes(),
            "set bits of shard 0: expected at most 1024",
        ),
        (
            table + 24,
            &15_u64.to_le_bytes(),
            "set bits of shard 0: expected 15, found 16",
        ),
    ];
    for (offset, value, expected) in cases {
        let mut bytes = victim.good.clone();
        bytes[*offset..][..value.len()].copy_from_slice(value);
        for covered in [0..table - 8, table..shards - 8] {
            let sum = checksum(&bytes[covered.clone()]).to_le_bytes();
            bytes[covered.end..][..8].copy_from_slice(&sum);
        }
        let message = victim.refusal(&bytes, expected);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

#[test]
fn a_newer_format_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let header = header(Layout::Blocked, 1024);
    write(&directory, &header);
    let path = directory.path(&DataDirectory::snapshot(&header.name));
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
    fs::copy(
        directory.path(&DataDirectory::snapshot(&header.name)),
        directory.path(&DataDirectory::snapshot(&other)),
    )
    .unwrap();
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
    fs::write(
        directory.path(&DataDirectory::snapshot(&header.name)),
        header.encode(384),
    )
    .unwrap();
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
    let before = fs::read(directory.path(&DataDirectory::snapshot(&header.name))).unwrap();
    // A directory in the place of the temporary file.
    fs::create_dir(directory.path(&DataDirectory::temporary(&header.name))).unwrap();
    let error = directory
        .write_snapshot(&header, |_, _| ShardState::default())
        .unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(
        fs::read(directory.path(&DataDirectory::snapshot(&header.name))).unwrap(),
        before
    );
}

/// What a crash can leave behind while a second snapshot is written: the first, and any part
/// of the second under its temporary name. The first is what comes back.
#[test]
fn a_crash_while_writing_leaves_the_snapshot_before() {
    let dir = tempfile::tempdir().unwrap();
    let header = header(Layout::Blocked, 1024);
    let write_of = |word: u64| {
        let directory = DataDirectory::open(dir.path()).unwrap();
        directory
            .write_snapshot(&header, |_, words| {
                words.fill(word);
                ShardState {
                    version: word,
                    keys_added: 1,
                    bits_set: u64::from(word.count_ones()) * words.len() as u64,
                }
            })
            .unwrap();
        fs::read(directory.path(&DataDirectory::snapshot(&header.name))).unwrap()
    };
    let (second, first) = (write_of(2), write_of(1));
    for length in 0..=second.len() {
        let temporary = dir.path().join("urls.snapshot.tmp");
        fs::write(&temporary, &second[..length]).unwrap();
        let directory = DataDirectory::open(dir.path()).unwrap();
        assert!(!temporary.exists());
        assert_eq!(
            fs::read(directory.path(&DataDirectory::snapshot(&header.name))).unwrap(),
            first
        );
        let reader = directory.read_snapshot(&header.name).unwrap();
        reader
            .read_shards(|_, _, words| {
                assert!(words.iter().all(|&word| word == 1));
                Ok::<_, StoreError>(())
            })
            .unwrap();
    }
}
