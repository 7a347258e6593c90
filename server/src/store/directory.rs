//! The data directory: which files are in it, and what they are for.

mod commits;
mod renamed;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use self::commits::Commits;
pub use self::renamed::Renamed;
use super::{
    Disk, FilterId, FilterName, FoundLog, LogReader, LogWriter, Segment, SnapshotFiles, StoreError,
    SystemDisk, Tail, log,
    manifest::{Manifest, NotWritten, StoredFilter},
    names::{self, Kind},
};
use crate::planted::Bug;

/// A data directory that no other process works in.
#[derive(Debug)]
pub struct DataDirectory {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) manifest: Commits,
    startup_warnings: StartupWarnings,
    /// Files that still have the former name of their filter. The key is the name that a file
    /// should have, the value is the name that it has. The map is empty unless the directory is
    /// only inspected: otherwise the files have been renamed.
    misnamed: BTreeMap<String, String>,
}

/// Findings about the files of a directory that an operator should know. They do not keep a server
/// from starting, because somebody may have intended them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartupWarnings {
    /// Filters that the manifest names but that have no file. They are not served.
    pub missing: Vec<FilterName>,
    /// Snapshots that the manifest does not name. They are not read.
    pub unknown: Vec<PathBuf>,
}

impl DataDirectory {
    /// Creates the directory if it does not exist, locks it, reads its manifest and removes the
    /// files that a crash left over.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has locked it, [`StoreError::Io`] if it cannot be
    /// created or written to, [`StoreError::Damaged`] or [`StoreError::NewerFormat`] if its
    /// manifest is damaged or of a newer format.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::on(Arc::new(SystemDisk::open(path)?))
    }

    /// Opens the data directory that takes up a whole disk.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn on(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut directory = Self {
            disk,
            manifest: Commits::default(),
            startup_warnings: StartupWarnings::default(),
            misnamed: BTreeMap::new(),
        };
        let files = directory.files()?;
        let has_manifest = files.iter().any(|file| file == Manifest::FILE);
        directory.manifest.set(if has_manifest {
            let manifest = Manifest::read(&*directory.disk)?;
            // If the server was killed, the manifest may be only in the page cache. It must be
            // durable before the files that it does not name are removed.
            let synced = directory.disk.sync();
            synced.map_err(|error| directory.failed("sync", Manifest::FILE, error))?;
            manifest
        } else {
            let manifest = Manifest::of_none(directory.disk.path(), &files)?;
            // Written even without filters: if the manifest is missing later, it was lost.
            let written = manifest.write(&*directory.disk);
            written.map_err(|NotWritten { error, .. }| error)?;
            manifest
        });
        for (name, file) in directory.misnamed_among(&files) {
            let renamed = directory.disk.rename(&file, &name);
            renamed.map_err(|error| directory.failed("rename", &file, error))?;
        }
        directory.clear_up()?;
        // The files are gone. The next write of the manifest drops the list; a start that fails
        // writes nothing.
        directory
            .manifest
            .change_both(|manifest| manifest.removed.clear());
        directory.startup_warnings = directory.find_startup_warnings(&directory.files()?);
        Ok(directory)
    }

    /// Opens a directory without changing anything in it. `manifest` returns its manifest.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if the files cannot be listed, or the error that `manifest` returned.
    pub(super) fn to_inspect(
        disk: Arc<dyn Disk>,
        manifest: impl FnOnce(&dyn Disk, &[String]) -> Result<Manifest, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut directory = Self {
            disk,
            manifest: Commits::default(),
            startup_warnings: StartupWarnings::default(),
            misnamed: BTreeMap::new(),
        };
        let mut files = directory.files()?;
        directory.manifest.set(manifest(&*directory.disk, &files)?);
        directory.misnamed = directory.misnamed_among(&files);
        for (name, file) in &directory.misnamed {
            files.retain(|other| other != file);
            files.push(name.clone());
        }
        directory.startup_warnings = directory.find_startup_warnings(&files);
        Ok(directory)
    }

    /// Returns the filters in the order of their names, without the filters whose files were all
    /// [missing](StartupWarnings::missing) at the start.
    pub fn filters(&self) -> Vec<FilterName> {
        let manifest = self.manifest.lock();
        let names = manifest.filters.keys();
        names
            .filter(|name| !self.startup_warnings.missing.contains(name))
            .cloned()
            .collect()
    }

    /// Runs [`Disk::check`].
    ///
    /// # Errors
    ///
    /// As [`Disk::check`].
    pub fn check(&self) -> io::Result<()> {
        self.disk.check()
    }

    /// Returns the findings about the files at the start that an operator should know.
    pub fn startup_warnings(&self) -> &StartupWarnings {
        &self.startup_warnings
    }

    /// Returns the entry of a filter in the manifest.
    pub(super) fn filter(&self, name: &FilterName) -> Option<StoredFilter> {
        self.manifest.lock().filters.get(name).cloned()
    }

    /// Returns the filter that the filter `name` is to replace. If that filter is missing, `name`
    /// has replaced it.
    pub fn rebuilds(&self, name: &FilterName) -> Option<FilterId> {
        self.filter(name)?.rebuilds
    }

    /// Returns a number that no filter and no file of this directory has, had or will have.
    pub fn new_number(&self) -> u64 {
        self.manifest.new_number()
    }

    /// Stores in the manifest that the snapshots of a filter are in `files`, and that the log from
    /// segment `log_from` on holds what the snapshots do not (0 if there is no log). Creates the
    /// filter if it is new. A new filter is to replace the filter `rebuilds`, if that is given.
    ///
    /// Returns when the change is on stable storage. Removes files and segments that are no longer
    /// needed.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]: the filter has the state before the call. [`StoreError::InDoubt`]: it
    /// has the state before the call or the new one. The new files are then useless, and the old
    /// files have not been removed.
    pub fn set_filter(
        &self,
        name: &FilterName,
        id: FilterId,
        files: &SnapshotFiles,
        log_from: u64,
        rebuilds: Option<FilterId>,
    ) -> Result<(), StoreError> {
        let mut stored = StoredFilter {
            id,
            log_from,
            rebuilds,
            files: files.numbers().collect(),
        };
        self.change(|manifest| {
            // The segments before `first` were removed because no filter needed them. A new filter
            // was not among those filters, but these segments cannot hold anything of it.
            let first = manifest.log_from().unwrap_or_default();
            if log_from > 0 {
                stored.log_from = log_from.max(first);
            }
            if let Some(before) = manifest.filters.get(name).filter(|before| before.id == id) {
                stored.rebuilds = before.rebuilds;
            }
            manifest.filters.insert(name.clone(), stored);
        })
    }

    /// Sets the first needed segment of the filters that `of` selects to `segment`, unless their
    /// log begins later. Sets the first segment with remembered requests to `requests_from` (0 if
    /// none are remembered). Returns when the change is on stable storage. Removes segments that
    /// are no longer needed.
    ///
    /// # Errors
    ///
    /// As [`Self::set_filter`].
    pub fn begin_log(
        &self,
        segment: u64,
        of: impl Fn(&FilterName, FilterId) -> bool,
        requests_from: u64,
    ) -> Result<(), StoreError> {
        let is_behind = |(name, stored): &(&FilterName, &StoredFilter)| {
            stored.log_from < segment && of(name, stored.id)
        };
        // Never backwards: the segments before the greater number are removed.
        let requests_from = |manifest: &Manifest| match requests_from {
            0 => 0,
            from => from.max(manifest.requests_from),
        };
        let needs_no_change = {
            let manifest = self.manifest.lock();
            let mut filters = manifest.filters.iter();
            let is_the_same = manifest.requests_from == requests_from(&manifest);
            !filters.any(|filter| is_behind(&filter)) && is_the_same
        };
        if needs_no_change {
            return Ok(());
        }
        self.change(|manifest| {
            for (name, stored) in &mut manifest.filters {
                if is_behind(&(name, stored)) {
                    stored.log_from = segment;
                }
            }
            manifest.requests_from = requests_from(manifest);
        })
    }

    /// Returns the first segment that can hold a remembered request; 0 if none does.
    pub fn requests_from(&self) -> u64 {
        self.manifest.lock().requests_from
    }

    /// Returns whether the manifest says that the log is kept for all filters, and for requests if
    /// `with_requests`.
    pub fn is_logged(&self, with_requests: bool) -> bool {
        let manifest = self.manifest.lock();
        let mut filters = manifest.filters.values();
        filters.all(|stored| stored.log_from > 0) && (!with_requests || manifest.requests_from > 0)
    }

    /// Returns the first segment of the log that is needed; `None` if none is.
    pub fn log_from(&self) -> Option<u64> {
        self.manifest.lock().log_from()
    }

    /// Opens the log of all filters for reading.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn log(&self) -> Result<LogReader<'_>, StoreError> {
        let (first, last) = {
            let manifest = self.manifest.lock();
            (manifest.log_from(), manifest.last_segment())
        };
        LogReader::open(&*self.disk, first.unwrap_or_default(), last)
    }

    /// Opens a new segment after the end of a log. The whole log is then on stable storage. Removes
    /// what is no longer needed: segments made ahead, the tail, and the unused space after the ends
    /// of segments. If the disk still has no room for a segment, the log goes on [without
    /// one](LogWriter::has_segment).
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn open_log(
        &self,
        found: &mut FoundLog,
        segment_bytes: u64,
    ) -> Result<LogWriter, StoreError> {
        // The records that follow imply that the records found are durable.
        if !Bug::FoundNotSynced.is_planted() {
            found.sync(&*self.disk)?;
        }
        let end = found.end;
        let segment = match (
            self.next_segment(found, segment_bytes),
            found.last_segment(),
        ) {
            // The manifest may later name this segment, so it must be one that exists.
            (Err(error), Some(last)) if error.is_full() => Segment::missing(last),
            (opened, _) => opened?,
        };
        Ok(LogWriter::new(self.disk.clone(), end, segment))
    }

    /// Creates the segment after the end of a log, in the space of files that are no longer needed.
    fn next_segment(
        &self,
        found: &mut FoundLog,
        segment_bytes: u64,
    ) -> Result<Segment, StoreError> {
        found.cut_off(&*self.disk)?;
        let next = found.end.sequence + 1;
        // Segments made ahead have no batches. If the power was cut while one was being begun, each
        // start would report it until it is made again. A segment that the manifest names stays:
        // the next start looks for it.
        let last = self.manifest.lock().last_segment().max(next);
        let is_of_no_use = |file: &String| {
            let made_ahead = log::segment_of(file).is_some_and(|number| number > last);
            made_ahead || file == Tail::FILE
        };
        for file in self.files()?.into_iter().filter(is_of_no_use) {
            // A failed removal only wastes disk space.
            let _ = self.disk.remove(&file);
        }
        Segment::create(&*self.disk, next, segment_bytes)
    }

    /// Removes a filter, and returns when the removal is on stable storage. Succeeds if the filter
    /// does not exist.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]: the filter still exists. [`StoreError::InDoubt`]: the filter is missing,
    /// but can come back after a crash until the removal is [synced](Self::sync_removals).
    pub fn remove_filter(&self, name: &FilterName) -> Result<(), StoreError> {
        self.change_removing(Some(name), |manifest| manifest.remove(name))
    }

    /// Ends all rebuilds: no filter is to replace another any more.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn end_rebuilds(&self) -> Result<(), StoreError> {
        let are_there = {
            let manifest = self.manifest.lock();
            let mut filters = manifest.filters.values();
            filters.any(|stored| stored.rebuilds.is_some())
        };
        if !are_there {
            return Ok(());
        }
        self.change(|manifest| {
            for stored in manifest.filters.values_mut() {
                stored.rebuilds = None;
            }
        })
    }

    /// Makes sure that no filter comes back whose removal was left in doubt.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; a removed filter can still come back.
    pub fn sync_removals(&self) -> Result<(), StoreError> {
        match self.manifest.is_removal_in_doubt() {
            true => self.change(|_| {}),
            false => Ok(()),
        }
    }

    /// Removes the files that were being written when the server ended, and the files that their
    /// filter no longer needed.
    fn clear_up(&self) -> Result<(), StoreError> {
        let manifest = self.manifest.lock();
        for file in self
            .files()?
            .iter()
            .filter(|file| self.is_rest(file, &manifest))
        {
            let removed = self.disk.remove(file);
            removed.map_err(|error| self.failed("remove the unfinished", file, error))?;
        }
        Ok(())
    }

    /// Returns whether a file is a leftover that nobody needs. Somebody put every other unknown
    /// file there.
    fn is_rest(&self, file: &str, manifest: &Manifest) -> bool {
        match Kind::of(file) {
            Kind::Unfinished => true,
            Kind::Other => false,
            Kind::Segment(sequence) => manifest.log_from().is_none_or(|first| sequence < first),
            Kind::Snapshot(name, number) => match manifest.filters.get(name) {
                Some(stored) if stored.files.contains(&number) => false,
                _ if manifest.removed.contains(&number) => true,
                Some(stored) if self.is_of(file, stored.id) => true,
                _ => {
                    number >= manifest.next_number
                        || self.is_unfinished(file)
                        || self.is_of_renamed(name, file, manifest)
                }
            },
        }
    }

    /// Returns the findings about some files that an operator should know.
    fn find_startup_warnings(&self, files: &[String]) -> StartupWarnings {
        let manifest = self.manifest.lock();
        let is_stranger = |file: &&String| {
            let Kind::Snapshot(name, number) = Kind::of(file) else {
                return false;
            };
            let stored = manifest.filters.get(name);
            let is_named = stored.is_some_and(|stored| stored.files.contains(&number));
            !is_named && !self.is_rest(file, &manifest)
        };
        let unknown = files.iter().filter(is_stranger);
        let is_gone = |(name, stored): &(&FilterName, &StoredFilter)| {
            let mut numbers = stored.files.iter();
            !numbers.any(|&number| files.contains(&names::snapshot(name, number)))
        };
        let missing = manifest.filters.iter().filter(is_gone);
        StartupWarnings {
            missing: missing.map(|(name, _)| name.clone()).collect(),
            unknown: unknown.map(|file| self.path(file)).collect(),
        }
    }

    fn files(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error| StoreError::io("list the data directory", self.disk.path(), error);
        self.disk.names().map_err(failed)
    }

    /// Returns the path of a file, for messages.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.disk.path().join(file)
    }

    pub(super) fn failed(&self, action: &'static str, file: &str, error: io::Error) -> StoreError {
        StoreError::io(action, self.path(file), error)
    }
}

#[cfg(test)]
mod tests;
