//! Makes a damaged directory usable for a server again, with all data that can be read.

use std::{collections::BTreeSet, path::Path};

use super::Inspection;
use crate::store::{
    Batch, DataDirectory, Direction, FilterId, FilterName, LogWriter, RecordKind, SnapshotHeader,
    StoreError,
    manifest::{Manifest, NotWritten, StoredFilter},
};

/// The suffix of the names of damaged files, which are kept so that somebody can examine them.
const SUFFIX: &str = ".damaged";

/// The number of bytes of the log that are written before a sync.
const SYNC_BYTES: u64 = 4 << 20;

/// The result of saving the readable data.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// The filters that were rewritten without the damaged parts. They forget the keys of those
    /// parts, except the keys in the log.
    pub filters: Vec<FilterName>,
    /// The filters without any readable file. They are gone.
    pub lost: Vec<FilterName>,
    /// Whether the log was rewritten.
    pub log: bool,
    /// The damaged files, under their new names.
    pub kept: Vec<String>,
}

impl Inspection {
    /// Rewrites damaged data without the unreadable parts, and then makes the manifest name the new
    /// files. Damaged files are kept under other names. The segments of a rewritten log have
    /// `segment_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]. The directory is then as it was before, except for useless new files.
    pub fn salvage(&self, segment_bytes: u64) -> Result<Salvaged, StoreError> {
        let directory = &self.directory;
        let mut salvaged = Salvaged::default();
        let mut manifest = directory.manifest.lock().clone();
        let next = |manifest: &mut Manifest| {
            manifest.next_number += 1;
            manifest.next_number - 1
        };
        let mut uncounted = BTreeSet::new();
        for (name, findings) in &self.filters {
            let Some(stored) = manifest.filters.get(name).cloned() else {
                continue;
            };
            if findings.damage.is_none() {
                continue;
            }
            match rewrite(directory, name, &stored, || next(&mut manifest))? {
                Some(Rewritten { number, is_newest }) => {
                    if !is_newest {
                        uncounted.insert(stored.id);
                    }
                    let files = vec![number];
                    let stored = StoredFilter { files, ..stored };
                    manifest.filters.insert(name.clone(), stored);
                    salvaged.filters.push(name.clone());
                }
                None => {
                    manifest.filters.remove(name);
                    salvaged.lost.push(name.clone());
                }
            }
        }
        let is_damaged = !self.log.damage.is_none();
        if is_damaged || !uncounted.is_empty() {
            let is_uncounted = |filter| is_damaged || uncounted.contains(&filter);
            let first = rewrite_log(directory, segment_bytes, is_uncounted)?;
            let numbers = manifest
                .filters
                .values_mut()
                .map(|stored| &mut stored.log_from);
            for number in numbers.chain([&mut manifest.requests_from]) {
                if *number > 0 {
                    *number = first;
                }
            }
            salvaged.log = true;
        }
        let mut damaged: BTreeSet<&Path> = BTreeSet::new();
        damaged.extend(
            self.damage()
                .flat_map(|damage| &damage.files)
                .map(|path| &**path),
        );
        let name_of = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        let damaged: Vec<String> = damaged.into_iter().filter_map(name_of).collect();
        if damaged.iter().any(|file| file == Manifest::FILE) {
            salvaged.kept.extend(keep_manifest(directory));
        }
        let written = manifest.write(&*directory.disk);
        written.map_err(|NotWritten { error, .. }| error)?;
        for file in damaged.iter().filter(|&file| file != Manifest::FILE) {
            let kept = format!("{file}{SUFFIX}");
            // The rename fails if the file does not exist: then that is the damage. If a file is
            // not kept for another reason, all readable data of it has been saved.
            if directory.disk.rename(file, &kept).is_ok() {
                salvaged.kept.push(kept);
            }
        }
        Ok(salvaged)
    }
}

/// The result of rewriting a filter.
struct Rewritten {
    number: u64,
    /// Whether the newest snapshot could be read. It holds the version up to which the keys of a
    /// counting filter are counted. Always true for other filters.
    is_newest: bool,
}

/// Writes the readable part of a filter to one file; `None` if nothing can be read.
fn rewrite(
    directory: &DataDirectory,
    name: &FilterName,
    stored: &StoredFilter,
    new_number: impl FnOnce() -> u64,
) -> Result<Option<Rewritten>, StoreError> {
    let Some(reader) = directory.open_filter(name, stored, &mut |_| Ok(()))? else {
        return Ok(None);
    };
    let header = reader.header().clone();
    let counts = header.spec.body.counts();
    let is_newest = !counts || stored.files.last() == Some(&header.number);
    let header = SnapshotHeader {
        number: new_number(),
        // The newest readable snapshot can be from when the filter had another name.
        name: name.clone(),
        version: match counts {
            // The lost keys may be in the log, which is read from here on.
            false => 0,
            // The keys that are not lost must not be counted again.
            true => header.version,
        },
        ..header
    };
    let shards: Vec<usize> = reader.shards().collect();
    let written = directory.write_snapshot(&header, &shards, |shard, words| {
        let read = reader.read_shard(shard, words, &mut |_| Ok(()));
        // Damage is not an error here, and no other error can occur.
        Ok(read.unwrap_or_default())
    })?;
    Ok(Some(Rewritten {
        number: written.number,
        is_newest,
    }))
}

/// Writes the readable part of the log to new segments, and returns the number of the first. The
/// records of some filters then do not say any more how keys were counted.
fn rewrite_log(
    directory: &DataDirectory,
    segment_bytes: u64,
    is_uncounted: impl Fn(FilterId) -> bool,
) -> Result<u64, StoreError> {
    let log = directory.log()?;
    let first = log.last_number() + 1;
    let mut new = LogWriter::begin(directory.disk.clone(), first, segment_bytes)?;
    let most_bytes = Batch::MAX_BYTES.min(new.room_bytes());
    let mut batch = Batch::default();
    log.read(
        |mut record| {
            // To count again, every record is needed, in order, from a known version on. So keys
            // that were counted up are added, which can be repeated. Keys that were counted down
            // stay, because otherwise other keys might be removed.
            let uncounted = is_uncounted(record.head.filter);
            if let RecordKind::Counted(counted) = record.head.kind
                && uncounted
            {
                if counted.direction == Direction::Down {
                    return Ok(());
                }
                record.head.kind = RecordKind::Added;
            }
            let count = record.hashes.len();
            if !batch.fits(count, most_bytes) {
                write(&mut new, &mut batch, segment_bytes)?;
            }
            let hashes = record.hashes.into_iter();
            batch.push(&record.head, count, hashes);
            Ok::<_, StoreError>(())
        },
        &mut |_| Ok(()),
    )?;
    write(&mut new, &mut batch, segment_bytes)?;
    new.sync()?;
    Ok(first)
}

fn write(log: &mut LogWriter, batch: &mut Batch, segment_bytes: u64) -> Result<(), StoreError> {
    if log.room_bytes() < batch.bytes() {
        log.go_on(segment_bytes)?;
    }
    log.write(batch)?;
    batch.clear();
    if log.unsynced_bytes() >= SYNC_BYTES {
        log.sync()?;
    }
    Ok(())
}

/// Copies the manifest before it is replaced, and returns the name of the copy; `None` if it cannot
/// be copied.
fn keep_manifest(directory: &DataDirectory) -> Option<String> {
    let kept = format!("{}{SUFFIX}", Manifest::FILE);
    let copy = || {
        let from = directory.disk.open(Manifest::FILE)?;
        let mut bytes = vec![0; from.bytes()?.min(Manifest::MAX_BYTES) as usize];
        from.read_exact_at(&mut bytes, 0)?;
        let to = directory.disk.create(&kept)?;
        to.write_all_at(&bytes, 0)?;
        to.sync()
    };
    copy().ok().map(|()| kept)
}
