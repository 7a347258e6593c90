//! The start of a server: reads all files of a directory, and compares the result with the promises
//! of a directory.

use std::collections::BTreeMap;

use seenset_server::{
    filter::shard_map::ShardMap,
    store::{
        Batch, DataDirectory, FilterName, FoundLog, Record, ShardState, SnapshotFiles,
        SnapshotHeader, StoreError, fuzzing::SimulatedDisk,
    },
};

use crate::files::{self, Files};

/// The largest filter that is read. A server refuses a filter that exceeds its memory limit.
const MAX_FILTER_BYTES: u64 = 64 << 20;

/// The size of a segment.
pub const LOG_BYTES: u64 = 2 * 4096;

/// The contents of a directory.
#[derive(Debug, PartialEq)]
struct Found {
    filters: BTreeMap<FilterName, Stored>,
    records: Vec<Record>,
}

/// A filter, as it is stored.
#[derive(Debug, PartialEq)]
struct Stored {
    header: SnapshotHeader,
    /// The shards that have any bits: their state and a checksum of their words.
    shards: BTreeMap<usize, (ShardState, u64)>,
}

/// The result of reading a directory.
pub struct Start {
    /// True if no filter was left out because of its size.
    pub is_all: bool,
    found: Found,
    /// The files of each filter that was read.
    files: BTreeMap<FilterName, SnapshotFiles>,
    log: FoundLog,
}

/// Starts on these files. If the start succeeds, starts again after a log was opened, and again
/// after a store of each filter. Returns whether the first start succeeded.
///
/// # Panics
///
/// If an error names no file, or a later start does not find what the first one found.
pub fn start(files: &Files) -> bool {
    let disk = files::disk(files);
    let directory = files::open(&disk);
    match directory.and_then(|directory| Ok((read(&directory)?, directory))) {
        Ok((start, directory)) => {
            let went_on = go_on(&disk, directory, start);
            went_on.expect("a server that started once starts again");
            true
        }
        Err(error) => {
            check(&error);
            false
        }
    }
}

/// Does the work of a server between two starts, and starts again.
fn go_on(disk: &SimulatedDisk, directory: DataDirectory, start: Start) -> Result<(), StoreError> {
    let Start {
        found: first,
        files,
        mut log,
        ..
    } = start;
    assert!(log.torn.as_ref().is_none_or(|torn| torn.bytes > 0));
    // The first batch records where the log before it ends.
    let mut log = directory.open_log(&mut log, LOG_BYTES)?;
    log.write(&mut Batch::default())?;
    log.sync()?;
    // Any change writes the manifest anew.
    directory.remove_filter(&"nobody".parse().expect("a name"))?;

    let directory = files::open(disk)?;
    let mut second = read(&directory)?;
    assert_eq!(second.found, first, "after a log has been opened");
    assert_eq!(second.log.torn, None, "torn off once, and there again");
    let log = directory.open_log(&mut second.log, LOG_BYTES)?;
    for (name, stored) in &files {
        let mut header = first.filters[name].header.clone();
        header.number = directory.new_number();
        let suffix = format!(".snapshot.{:016x}", header.number);
        let is_new = !files::on(disk).keys().any(|file| file.ends_with(&suffix));
        assert!(is_new, "{suffix} is there already");
        let nothing = |_: usize, _: &mut [u64]| Ok(ShardState::default());
        let files = stored.with(&directory.write_snapshot(&header, &[], nothing)?);
        directory.set_filter(name, header.filter, &files, log.sequence(), None)?;
    }

    let directory = files::open(disk)?;
    let third = read(&directory)?.found;
    for (name, stored) in &first.filters {
        let again = third.filters.get(name).map(|stored| &stored.shards);
        assert_eq!(again, Some(&stored.shards), "{name} after a store");
    }
    for name in directory.filters() {
        directory.remove_filter(&name)?;
    }
    let directory = files::open(disk)?;
    assert_eq!(directory.filters(), [], "after all have been removed");
    Ok(())
}

/// Reads the filters and the log, as a start does.
///
/// # Errors
///
/// [`StoreError`] if a server would not start.
pub fn read(directory: &DataDirectory) -> Result<Start, StoreError> {
    let mut is_all = true;
    let mut filters = BTreeMap::new();
    let mut files = BTreeMap::new();
    for name in directory.filters() {
        let Some(reader) = directory.read_filter(&name)? else {
            continue;
        };
        assert!(reader.path().starts_with("simulated"));
        let header = reader.header().clone();
        let shard_map = reader.shard_map();
        let bytes = match &shard_map {
            ShardMap::Whole(shape) => shape.bit_count() / 8,
            // A filter in layers has only the memory of its layers.
            ShardMap::Layered(_) => reader.bytes(),
        };
        if bytes > MAX_FILTER_BYTES {
            is_all = false;
            continue;
        }
        let mut shards = BTreeMap::new();
        let mut words = Vec::new();
        for shard in reader.shards() {
            words.resize(shard_map.shape(shard).shard_words(), 0);
            let state = reader.read_shard(shard, &mut words, &mut Err)?;
            shards.insert(shard, (state, checksum(&words)));
        }
        files.insert(name.clone(), reader.files());
        filters.insert(name, Stored { header, shards });
    }
    let mut records = Vec::new();
    let log = directory.log()?.read(
        |record| {
            records.push(record);
            Ok::<_, StoreError>(())
        },
        &mut Err,
    )?;
    let found = Found { filters, records };
    Ok(Start {
        is_all,
        found,
        files,
        log,
    })
}

/// Returns a checksum that tells different words apart.
fn checksum(words: &[u64]) -> u64 {
    let mix = |sum: u64, word: &u64| (sum.rotate_left(5) ^ word).wrapping_mul(PRIME);
    words.iter().fold(PRIME, mix)
}

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// Checks that an error names the file.
///
/// # Panics
///
/// If it names no file.
pub fn check(error: &StoreError) {
    let path = match error {
        StoreError::InDoubt(error) => return check(error),
        StoreError::Damaged { path, .. }
        | StoreError::NewerFormat { path, .. }
        | StoreError::OlderFormat { path, .. }
        | StoreError::Io { path, .. }
        | StoreError::Locked { path, .. } => path,
    };
    let is_of_a_file = path.parent() == Some("simulated".as_ref());
    let text = error.to_string();
    let names_it = text.contains(&path.display().to_string());
    assert!(is_of_a_file && names_it, "of which file? {text}");
}
