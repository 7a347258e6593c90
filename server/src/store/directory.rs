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

/// A data directory, which no other process works in.
#[derive(Debug)]
pub struct DataDirectory {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) manifest: Commits,
    oddities: Oddities,
    /// Files that have the name that their filter had before, by the names that they are to have.
    /// Where something is changed there are none: they are given theirs.
    misnamed: BTreeMap<String, String>,
}

/// What an operator should know of the files of a directory. Nothing of it keeps a server from
/// starting: somebody may have meant it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Oddities {
    /// Filters that the manifest names, and no file of which is there. They are not served.
    pub gone: Vec<FilterName>,
    /// Snapshots that the manifest does not name. They are not read.
    pub strangers: Vec<PathBuf>,
}

impl DataDirectory {
    /// Makes the directory if it does not exist, locks it, reads its manifest and removes what
    /// a crash left behind.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has it, [`StoreError::Io`] if it cannot be
    /// made or written in, [`StoreError::Damaged`] or [`StoreError::NewerFormat`] if that is
    /// what its manifest is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::on(Arc::new(SystemDisk::open(path)?))
    }

    /// The data directory that is all of a disk.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn on(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mut directory = Self {
            disk,
            manifest: Commits::default(),
            oddities: Oddities::default(),
            misnamed: BTreeMap::new(),
        };
        let files = directory.files()?;
        let has_manifest = files.iter().any(|file| file == Manifest::FILE);
        directory.manifest.set(if has_manifest {
            let manifest = Manifest::read(&*directory.disk)?;
            // It may be known to the system alone, if the server was killed; and what it does
            // not name is about to be removed.
            let synced = directory.disk.sync();
            synced.map_err(|error| directory.failed("sync", Manifest::FILE, error))?;
            manifest
        } else {
            let manifest = Manifest::of_format1(directory.disk.path(), &files)?;
            // Also one of no filters: from now on there is one, or it has been lost.
            let written = manifest.write(&*directory.disk);
            written.map_err(|NotWritten { error, .. }| error)?;
            manifest
        });
        for (name, file) in directory.misnamed_among(&files) {
            let renamed = directory.disk.rename(&file, &name);
            renamed.map_err(|error| directory.failed("rename", &file, error))?;
        }
        directory.clear_up()?;
        // The files are gone. The next write of the manifest drops the list; a start that fails writes
        // nothing.
        directory
            .manifest
            .change_both(|manifest| manifest.removed.clear());
        directory.oddities = directory.look_for_oddities(&directory.files()?);
        Ok(directory)
    }

    /// A directory that nothing is changed in. `manifest` tells what its files are.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if they cannot be listed, or what `manifest` returned.
    pub(super) fn to_inspect(
        disk: Arc<dyn Disk>,
        manifest: impl FnOnce(&dyn Disk, &[String]) -> Result<Manifest, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut directory = Self {
            disk,
            manifest: Commits::default(),
            oddities: Oddities::default(),
            misnamed: BTreeMap::new(),
        };
        let mut files = directory.files()?;
        directory.manifest.set(manifest(&*directory.disk, &files)?);
        directory.misnamed = directory.misnamed_among(&files);
        for (name, file) in &directory.misnamed {
            files.retain(|other| other != file);
            files.push(name.clone());
        }
        directory.oddities = directory.look_for_oddities(&files);
        Ok(directory)
    }

    /// The filters that there are, in the order of their names, without those whose files were
    /// all [gone](Oddities::gone) at the start.
    pub fn filters(&self) -> Vec<FilterName> {
        let manifest = self.manifest.lock();
        let names = manifest.filters.keys();
        names
            .filter(|name| !self.oddities.gone.contains(name))
            .cloned()
            .collect()
    }

    /// As [`Disk::check`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn check(&self) -> io::Result<()> {
        self.disk.check()
    }

    /// What an operator should know of the files that were there at the start.
    pub fn oddities(&self) -> &Oddities {
        &self.oddities
    }

    /// What is kept of a filter.
    pub(super) fn filter(&self, name: &FilterName) -> Option<StoredFilter> {
        self.manifest.lock().filters.get(name).cloned()
    }

    /// The filter whose place another is to take, or has taken, if that is gone.
    pub fn rebuilds(&self, name: &FilterName) -> Option<FilterId> {
        self.filter(name)?.rebuilds
    }

    /// A number that no filter and no file of this directory has, nor had or will have.
    pub fn new_number(&self) -> u64 {
        self.manifest.new_number()
    }

    /// Has a filter's snapshots be in these files, and what they do not hold in the log from a
    /// segment on (0 if there is no log); makes the filter if it is new, for the place of another if
    /// one is given, and returns when that is on stable storage. Files that are of no more use are
    /// removed, segments among them.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]: what the filter had before still stands. [`StoreError::InDoubt`]: one
    /// of the two stands. The new files are then of no use, and those before have not been
    /// removed.
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
            // Those before have been removed, since no filter needed them. A new one was not
            // among these, but none of them can hold anything of it.
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

    /// Has the log of some filters begin with a segment, if it does not begin later, and the
    /// requests that are remembered with another (0 if none are), and returns when that is on
    /// stable storage. Segments that are of no more use are removed.
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

    /// The first segment that may hold a request which is remembered; 0 if none does.
    pub fn requests_from(&self) -> u64 {
        self.manifest.lock().requests_from
    }

    /// Whether the manifest has the log kept for all filters, and for requests if they are to be
    /// remembered.
    pub fn is_logged(&self, with_requests: bool) -> bool {
        let manifest = self.manifest.lock();
        let mut filters = manifest.filters.values();
        filters.all(|stored| stored.log_from > 0) && (!with_requests || manifest.requests_from > 0)
    }

    /// The first segment of the log that is needed; `None` if none is.
    pub fn log_from(&self) -> Option<u64> {
        self.manifest.lock().log_from()
    }

    /// The log of all filters, to be read.
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

    /// Opens a segment behind the end of a log, all of which is on stable storage then, and
    /// removes what is of no more use: segments made ahead, the tail, and the room behind the ends
    /// of segments. If the disk has no room for a segment nevertheless, the log goes on
    /// [without one](LogWriter::has_segment).
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn open_log(
        &self,
        found: &mut FoundLog,
        segment_bytes: u64,
    ) -> Result<LogWriter, StoreError> {
        // What is written from now on says that it is there.
        if !Bug::FoundNotSettled.is_planted() {
            found.settle(&*self.disk)?;
        }
        let end = found.end;
        let segment = match (
            self.next_segment(found, segment_bytes),
            found.last_segment(),
        ) {
            // The manifest may come to name that one: it has to be there.
            (Err(error), Some(last)) if error.is_full() => Segment::missing(last),
            (opened, _) => opened?,
        };
        Ok(LogWriter::new(self.disk.clone(), end, segment))
    }

    /// Makes the segment behind the end of a log, in the room of what is of no more use.
    fn next_segment(
        &self,
        found: &mut FoundLog,
        segment_bytes: u64,
    ) -> Result<Segment, StoreError> {
        found.cut_off(&*self.disk)?;
        let next = found.end.sequence + 1;
        // Segments made ahead have no batches. One that was being begun when the power was cut would
        // be reported by each start until it is made again. A segment that the manifest names stays:
        // the next start looks for it.
        let last = self.manifest.lock().last_segment().max(next);
        let is_of_no_use = |file: &String| {
            let made_ahead = log::segment_of(file).is_some_and(|number| number > last);
            made_ahead || file == Tail::FILE
        };
        for file in self.files()?.into_iter().filter(is_of_no_use) {
            // Only room on the disk is at stake.
            let _ = self.disk.remove(&file);
        }
        Segment::create(&*self.disk, next, segment_bytes)
    }

    /// Removes a filter, and returns when the removal is on stable storage. That there is none
    /// is not an error.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the filter is then still there. [`StoreError::InDoubt`]; it is gone, and
    /// may come back after a crash until the removal is [settled](Self::settle_removals).
    pub fn remove_filter(&self, name: &FilterName) -> Result<(), StoreError> {
        self.change_removing(Some(name), |manifest| manifest.remove(name))
    }

    /// Has no filter be one that is to take the place of another any more.
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

    /// Sees to it that no filter comes back whose removal was left in doubt.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; one may come back nevertheless.
    pub fn settle_removals(&self) -> Result<(), StoreError> {
        match self.manifest.is_removal_in_doubt() {
            true => self.change(|_| {}),
            false => Ok(()),
        }
    }

    /// Removes what was being written when the server ended, and what a filter had no more use
    /// for then.
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

    /// Whether nobody has any more use for a file. Whatever else is there was put there by
    /// somebody.
    fn is_rest(&self, file: &str, manifest: &Manifest) -> bool {
        match Kind::of(file) {
            Kind::Unfinished => true,
            Kind::Other | Kind::Format1(_) => false,
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

    /// What an operator should know of some files.
    fn look_for_oddities(&self, files: &[String]) -> Oddities {
        let manifest = self.manifest.lock();
        let is_stranger = |file: &&String| {
            let (name, number) = match Kind::of(file) {
                Kind::Snapshot(name, number) => (name, number),
                Kind::Format1(name) => (name, 0),
                _ => return false,
            };
            let stored = manifest.filters.get(name);
            let is_named = stored.is_some_and(|stored| stored.files.contains(&number));
            !is_named && !self.is_rest(file, &manifest)
        };
        let strangers = files.iter().filter(is_stranger);
        let is_gone = |(name, stored): &(&FilterName, &StoredFilter)| {
            let mut numbers = stored.files.iter();
            !numbers.any(|&number| files.contains(&names::snapshot(name, number)))
        };
        let gone = manifest.filters.iter().filter(is_gone);
        Oddities {
            gone: gone.map(|(name, _)| name.clone()).collect(),
            strangers: strangers.map(|file| self.path(file)).collect(),
        }
    }

    fn files(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error| StoreError::io("list the data directory", self.disk.path(), error);
        self.disk.names().map_err(failed)
    }

    /// The path of a file, for messages.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.disk.path().join(file)
    }

    pub(super) fn failed(&self, action: &'static str, file: &str, error: io::Error) -> StoreError {
        StoreError::io(action, self.path(file), error)
    }
}

#[cfg(test)]
mod tests;
