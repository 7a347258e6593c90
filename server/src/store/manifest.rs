//! The manifest (see `docs/format.md`). It says which files hold which filters.
//!
//! A file belongs to a filter only because the manifest says so. The manifest is replaced as a
//! whole, so it is always the old one or the new one. Files that it does not name can be removed.

mod encoding;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    Disk, FilterId, FilterName, StoreError,
    names::{Kind, MANIFEST_FILE, TEMPORARY_SUFFIX},
};

/// The format that is written, and the newest that is read.
pub const FORMAT: u32 = 1;

/// All filters of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The next number for a filter or a file: no two ever have the same.
    pub next_number: u64,
    /// The first segment of the log that holds a request which must be recognised if it is retried;
    /// 0 if there is none.
    pub requests_from: u64,
    /// The filters.
    pub filters: BTreeMap<FilterName, StoredFilter>,
    /// The numbers of files to remove: they belong to no filter, and may still be there.
    pub removed: BTreeSet<u64>,
}

/// The reason why a manifest could not be replaced.
#[derive(Debug)]
pub struct NotWritten {
    /// The error.
    pub error: StoreError,
    /// Whether the new manifest can be in effect nevertheless, now or after a crash.
    pub may_stand: bool,
}

impl Manifest {
    /// Returns the first segment of the log that a filter or the requests need; `None` if none is
    /// needed.
    pub fn log_from(&self) -> Option<u64> {
        self.segments().filter(|&segment| segment > 0).min()
    }

    /// Returns the last segment of the log that is known to have been begun; 0 if none is.
    pub fn last_segment(&self) -> u64 {
        self.segments().max().unwrap_or_default()
    }

    /// Removes a filter, and lists its files for removal.
    pub fn remove(&mut self, name: &FilterName) {
        let Some(removed) = self.filters.remove(name) else {
            return;
        };
        self.removed.extend(&removed.files);
        for stored in self.filters.values_mut() {
            stored.rebuilds = stored.rebuilds.filter(|&id| id != removed.id);
        }
    }

    /// Returns the numbers of all files that the manifest names.
    pub fn files(&self) -> BTreeSet<u64> {
        let numbers = |stored: &StoredFilter| stored.files.clone();
        self.filters.values().flat_map(numbers).collect()
    }

    /// Returns the segments that the manifest names.
    fn segments(&self) -> impl Iterator<Item = u64> {
        let filters = self.filters.values().map(|stored| stored.log_from);
        filters.chain([self.requests_from])
    }
}

/// The entry of one filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFilter {
    /// The id of the filter.
    pub id: FilterId,
    /// The first segment of the log that can hold data that the snapshots do not; 0 if there is no
    /// log.
    pub log_from: u64,
    /// The filter that this one is to replace. Until then this one gets its keys too. If no filter
    /// has this id any more, this one has replaced it.
    pub rebuilds: Option<FilterId>,
    /// The numbers of the snapshot files, from the oldest to the newest.
    pub files: Vec<u64>,
}

impl Default for Manifest {
    /// No filters.
    fn default() -> Self {
        Self {
            next_number: 1,
            requests_from: 0,
            filters: BTreeMap::new(),
            removed: BTreeSet::new(),
        }
    }
}

impl Manifest {
    /// The greatest length of a manifest. A longer file is not a manifest, and is not read.
    pub const MAX_BYTES: u64 = 1 << 30;

    /// The name of the manifest file.
    pub const FILE: &str = MANIFEST_FILE;

    /// Reads the manifest of a directory.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`], or as [`Self::decode`].
    pub fn read(disk: &dyn Disk) -> Result<Self, StoreError> {
        let path = disk.path().join(Self::FILE);
        let failed = |error| StoreError::io("read", &path, error);
        let file = disk.open(Self::FILE).map_err(failed)?;
        let length = file.bytes().map_err(failed)?;
        if length > Self::MAX_BYTES {
            return Err(StoreError::Damaged {
                path,
                what: "length of the file".to_owned(),
                expected: format!("at most {} bytes", Self::MAX_BYTES),
                found: format!("{length} bytes"),
            });
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        Self::decode(&bytes, &path)
    }

    /// Returns the manifest of a directory that has none: one without filters.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if there is a snapshot or a segment of the log, because a manifest
    /// must have named it. A server that skipped such a file would forget its keys.
    pub fn of_none(directory: &Path, files: &[String]) -> Result<Self, StoreError> {
        let data = |file: &&String| matches!(Kind::of(file), Kind::Snapshot(..) | Kind::Segment(_));
        match files.iter().find(data) {
            None => Ok(Self::default()),
            Some(file) => Err(StoreError::Damaged {
                path: directory.join(Self::FILE),
                what: "file".to_owned(),
                expected: format!("one that goes with {file}"),
                found: "none".to_owned(),
            }),
        }
    }

    /// Replaces the manifest of a directory in one step, and returns when the new one is on
    /// stable storage.
    ///
    /// # Errors
    ///
    /// [`NotWritten`].
    pub fn write(&self, disk: &dyn Disk) -> Result<(), NotWritten> {
        let temporary = format!("{}{TEMPORARY_SUFFIX}", Self::FILE);
        let failed = |may_stand| {
            move |error| NotWritten {
                error: StoreError::io("write", disk.path().join(Self::FILE), error),
                may_stand,
            }
        };
        let prepare = || {
            let file = disk.create(&temporary)?;
            file.write_all_at(&self.encode(), 0)?;
            file.sync()
        };
        prepare().map_err(failed(false))?;
        let replaced = disk.rename(&temporary, Self::FILE);
        // A failed rename may still have been done: the kernel does not say.
        replaced.and_then(|()| disk.sync()).map_err(failed(true))
    }
}
