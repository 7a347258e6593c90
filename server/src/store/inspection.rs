//! Inspection of a data directory: its contents, and all damage. A start ends with the first
//! damage. Nothing is changed, unless the readable part is to be [saved](Inspection::salvage).

mod salvage;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::salvage::Salvaged;
use super::{
    DataDirectory, Disk, FilterName, MAX_NUMBER, OnDamage, StartupWarnings, StoreError, SystemDisk,
    Torn,
    manifest::{Manifest, StoredFilter},
    names::{self, Kind},
};

/// A data directory that has been read completely. No server works in it meanwhile.
#[derive(Debug)]
pub struct Inspection {
    directory: DataDirectory,
    manifest: Damage,
    filters: BTreeMap<FilterName, FilterFindings>,
    log: LogFindings,
}

/// The findings about a filter.
#[derive(Debug, Default)]
pub struct FilterFindings {
    /// The files of its snapshots that can be read.
    pub files: usize,
    /// The number of keys that its snapshots hold.
    pub keys_added: u64,
    /// The damage.
    pub damage: Damage,
}

/// The findings about the log.
#[derive(Debug, Default)]
pub struct LogFindings {
    /// The number of existing segments.
    pub segments: usize,
    /// The number of keys in them, of all filters.
    pub keys: u64,
    /// The bytes that a crash left after the end of the log. They are not damage.
    pub torn: Option<Torn>,
    /// The damage.
    pub damage: Damage,
}

/// The damage of some files.
#[derive(Debug, Default)]
pub struct Damage {
    /// The first errors that were found.
    pub first: Vec<StoreError>,
    /// The number of errors that were found.
    pub count: u64,
    /// The damaged files.
    pub files: BTreeSet<PathBuf>,
}

impl Damage {
    /// The greatest number of errors that are kept.
    const MAX_TOLD: usize = 20;

    /// Returns whether there is no damage.
    pub fn is_none(&self) -> bool {
        self.count == 0
    }

    fn note(&mut self, error: StoreError) {
        self.count += 1;
        if let StoreError::Damaged { path, .. } | StoreError::Io { path, .. } = &error {
            self.files.insert(path.clone());
        }
        if self.first.len() < Self::MAX_TOLD {
            self.first.push(error);
        }
    }

    /// Returns a callback that notes each error, and lets the reading continue.
    fn noting(&mut self) -> impl FnMut(StoreError) -> Result<(), StoreError> {
        |error| {
            self.note(error);
            Ok(())
        }
    }
}

impl Inspection {
    /// Reads the data directory of a server that does not run.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if the server runs, [`StoreError::Io`] if there is no such directory,
    /// [`StoreError::NewerFormat`] if a newer server has written there.
    pub fn of(path: &Path) -> Result<Self, StoreError> {
        Self::on(Arc::new(SystemDisk::existing(path)?))
    }

    /// Reads the data directory that takes up a whole disk.
    ///
    /// # Errors
    ///
    /// As [`Self::of`].
    pub fn on(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut damage = Damage::default();
        let directory = DataDirectory::to_inspect(disk, |disk, files| {
            manifest(disk, files, &mut damage.noting())
        })?;
        let mut filters = BTreeMap::new();
        for name in directory.filters() {
            let mut findings = FilterFindings::default();
            if let Some(stored) = directory.filter(&name) {
                inspect_filter(&directory, &name, &stored, &mut findings)?;
            }
            filters.insert(name, findings);
        }
        let log = inspect_log(&directory)?;
        Ok(Self {
            directory,
            manifest: damage,
            filters,
            log,
        })
    }

    /// Returns the damage of the manifest.
    pub fn manifest(&self) -> &Damage {
        &self.manifest
    }

    /// Returns the filters, in the order of their names.
    pub fn filters(&self) -> impl Iterator<Item = (&FilterName, &FilterFindings)> {
        self.filters.iter()
    }

    /// Returns the findings about the log.
    pub fn log(&self) -> &LogFindings {
        &self.log
    }

    /// Returns the findings that are not damage, but may be unintended.
    pub fn startup_warnings(&self) -> &StartupWarnings {
        self.directory.startup_warnings()
    }

    /// Returns all damage.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        let filters = self.filters.values().map(|filter| &filter.damage);
        [&self.manifest]
            .into_iter()
            .chain(filters)
            .chain([&self.log.damage])
    }
}

fn inspect_filter(
    directory: &DataDirectory,
    name: &FilterName,
    stored: &StoredFilter,
    findings: &mut FilterFindings,
) -> Result<(), StoreError> {
    let mut on_damage = findings.damage.noting();
    let Some(reader) = directory.open_filter(name, stored, &mut on_damage)? else {
        return Ok(());
    };
    let shard_map = reader.shard_map();
    let mut words = Vec::new();
    let mut keys_added = 0;
    for shard in reader.shards() {
        words.resize(shard_map.shape(shard).shard_words(), 0);
        keys_added += reader
            .read_shard(shard, &mut words, &mut on_damage)?
            .keys_added;
    }
    drop(on_damage);
    findings.files = reader.files().numbers().count();
    findings.keys_added = keys_added;
    Ok(())
}

fn inspect_log(directory: &DataDirectory) -> Result<LogFindings, StoreError> {
    let mut findings = LogFindings::default();
    if directory.log_from().is_none() {
        // The next start removes the segments that exist.
        return Ok(findings);
    }
    let log = directory.log()?;
    let mut keys = 0;
    let found = log.read(
        |record| {
            keys += record.hashes.len() as u64;
            Ok::<_, StoreError>(())
        },
        &mut findings.damage.noting(),
    )?;
    findings.segments = log.segments();
    findings.keys = keys;
    findings.torn = found.torn;
    Ok(findings)
}

/// Returns the manifest. If it cannot be read, returns the manifest that fits the files.
fn manifest(
    disk: &dyn Disk,
    files: &[String],
    on_damage: OnDamage<'_>,
) -> Result<Manifest, StoreError> {
    let has_manifest = files.iter().any(|file| file == Manifest::FILE);
    let read = match has_manifest {
        true => Manifest::read(disk),
        false => Manifest::of_none(disk.path(), files),
    };
    match read {
        Ok(manifest) => Ok(manifest),
        Err(error) => {
            error.handle(on_damage)?;
            from_headers(disk, files, on_damage)
        }
    }
}

/// Returns the manifest that fits the existing snapshots, according to their headers, and all of
/// the log.
fn from_headers(
    disk: &dyn Disk,
    files: &[String],
    on_damage: OnDamage<'_>,
) -> Result<Manifest, StoreError> {
    let mut manifest = Manifest::default();
    let mut by_id = BTreeMap::new();
    let mut segments = BTreeSet::new();
    for file in files {
        match Kind::of(file) {
            Kind::Segment(sequence) => {
                segments.insert(sequence);
            }
            Kind::Snapshot(name, number) => {
                let count_on = |number: u64, next: &mut u64| {
                    let given = check_given(disk, file, number);
                    given.map(|()| *next = (*next).max(number + 1))
                };
                let next = &mut manifest.next_number;
                let header = count_on(number, next)
                    .and_then(|()| super::snapshot::read_header(disk, file))
                    .and_then(|header| count_on(header.filter.0, next).map(|()| header));
                let header = match header {
                    Ok(header) => header,
                    Err(error) => {
                        error.handle(on_damage)?;
                        continue;
                    }
                };
                if header.number == number {
                    let files: &mut Vec<_> = by_id.entry(header.filter).or_default();
                    files.push((number, name, header.name));
                }
            }
            Kind::Unfinished | Kind::Other => {}
        }
    }
    for (id, files) in by_id {
        // Files with other names were renamed by somebody else.
        let as_written = files
            .iter()
            .filter(|(_, file, name)| *file == name.as_str());
        let Some((_, _, name)) = as_written.max_by_key(|(number, ..)| *number) else {
            continue;
        };
        // A file that was written before the filter was renamed may have either name.
        let is_its = |file: &str, before: &FilterName| {
            [before, name].iter().any(|name| name.as_str() == file)
        };
        let own = files
            .iter()
            .filter(|(_, file, before)| is_its(file, before));
        let stored = StoredFilter {
            id,
            log_from: 0,
            rebuilds: None,
            files: own.map(|(number, ..)| *number).collect(),
        };
        // Replaces a deleted filter of the same name: its id is less.
        manifest.filters.insert(name.clone(), stored);
    }
    let log_from = segments.first().copied().unwrap_or_default();
    manifest.requests_from = log_from;
    let mut numbers: BTreeSet<u64> = manifest
        .filters
        .values()
        .map(|stored| stored.id.0)
        .collect();
    for (name, stored) in &mut manifest.filters {
        stored.log_from = log_from;
        stored.files.sort_unstable();
        // A file is listed twice if it was copied to another name that it may have had.
        stored.files.dedup();
        let (own, others) = mem::take(&mut stored.files)
            .into_iter()
            .partition(|&number| numbers.insert(number));
        stored.files = own;
        for number in others {
            StoreError::Damaged {
                path: disk.path().join(names::snapshot(name, number)),
                what: "number".to_owned(),
                expected: "one that no other file and no filter has".to_owned(),
                found: number.to_string(),
            }
            .handle(on_damage)?;
        }
    }
    manifest
        .filters
        .retain(|_, stored| !stored.files.is_empty());
    Ok(manifest)
}

/// Checks that a number can have been given to a filter or a file, so that new numbers can be
/// counted on from it.
fn check_given(disk: &dyn Disk, file: &str, number: u64) -> Result<(), StoreError> {
    const MOST: u64 = MAX_NUMBER / 2;
    if number <= MOST {
        return Ok(());
    }
    Err(StoreError::Damaged {
        path: disk.path().join(file),
        what: "number".to_owned(),
        expected: format!("at most {MOST}"),
        found: number.to_string(),
    })
}

#[cfg(test)]
mod tests;
