//! The data directory: which files are in it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Disk, FilterName, StoreError, SystemDisk};

const SNAPSHOT_SUFFIX: &str = ".snapshot";
const TEMPORARY_SUFFIX: &str = ".snapshot.tmp";

/// A data directory, which no other process works in.
#[derive(Debug)]
pub struct DataDirectory {
    pub(super) disk: Arc<dyn Disk>,
}

impl DataDirectory {
    /// Makes the directory if it does not exist, locks it, and removes the unfinished
    /// snapshots that a crash left behind.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has it, [`StoreError::Io`] if it cannot be
    /// made or written in.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::on(Arc::new(SystemDisk::open(path)?))
    }

    /// The data directory that is all of a disk, without the unfinished snapshots that a crash
    /// left behind.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if it cannot be written in.
    pub fn on(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let directory = Self { disk };
        for file in directory.files_with(TEMPORARY_SUFFIX)? {
            directory
                .disk
                .remove(&file)
                .map_err(|error| directory.failed("remove the unfinished", &file, error))?;
        }
        Ok(directory)
    }

    /// The filters that have a snapshot, in the order of their names.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] for a snapshot whose name is not a filter's: it is somebody's
    /// data, and to pass over it would be to forget its keys.
    pub fn filters(&self) -> Result<Vec<FilterName>, StoreError> {
        let mut names = Vec::new();
        for file in self.files_with(SNAPSHOT_SUFFIX)? {
            let stem = file.strip_suffix(SNAPSHOT_SUFFIX).unwrap_or(&file);
            names.push(stem.parse().map_err(|_| StoreError::Damaged {
                path: self.path(&file),
                what: "name of the file".to_owned(),
                expected: format!("a filter name and {SNAPSHOT_SUFFIX}"),
                found: format!("{stem:?}"),
            })?);
        }
        names.sort();
        Ok(names)
    }

    /// The name of the file of a filter's snapshot.
    pub(super) fn snapshot(name: &FilterName) -> String {
        format!("{name}{SNAPSHOT_SUFFIX}")
    }

    /// That of the file in which a filter's next snapshot is written.
    pub(super) fn temporary(name: &FilterName) -> String {
        format!("{name}{TEMPORARY_SUFFIX}")
    }

    /// Removes a filter's snapshot, and returns when the removal is on stable storage.
    /// That there is none is not an error.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the snapshot may then still be there, or come back after a crash.
    pub fn remove_snapshot(&self, name: &FilterName) -> Result<(), StoreError> {
        let file = Self::snapshot(name);
        match self.disk.remove(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", &file, error))
            }
            _ => self.sync(),
        }
    }

    /// Puts the directory itself on stable storage: which names there are, and what for.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::io("sync the directory", self.disk.path(), error);
        self.disk.sync().map_err(failed)
    }

    /// The path of a file, for messages.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.disk.path().join(file)
    }

    pub(super) fn failed(&self, action: &'static str, file: &str, error: io::Error) -> StoreError {
        StoreError::io(action, self.path(file), error)
    }

    fn files_with(&self, suffix: &str) -> Result<Vec<String>, StoreError> {
        let failed = |error| StoreError::io("list the data directory", self.disk.path(), error);
        // A name that is not UTF-8 keeps its suffix, and is then refused for what it is not.
        let mut names = self.disk.names().map_err(failed)?;
        names.retain(|name| name.ends_with(suffix));
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn unfinished_snapshots_go_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["a.snapshot", "a.snapshot.tmp", "notes.txt"] {
            fs::write(dir.path().join(file), "x").unwrap();
        }
        let directory = DataDirectory::open(dir.path()).unwrap();
        assert_eq!(directory.filters().unwrap(), ["a".parse().unwrap()]);
        assert!(!dir.path().join("a.snapshot.tmp").exists());
        assert!(dir.path().join("notes.txt").exists());
    }

    #[test]
    fn a_snapshot_with_a_strange_name_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a b.snapshot"), "x").unwrap();
        let message = DataDirectory::open(dir.path())
            .unwrap()
            .filters()
            .unwrap_err()
            .to_string();
        assert!(message.contains("a b.snapshot is damaged"), "{message}");
    }

    #[test]
    fn names_made_of_dots_stay_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(dir.path()).unwrap();
        for name in [".", ".."] {
            let path = directory.path(&DataDirectory::snapshot(&name.parse().unwrap()));
            assert_eq!(path.parent(), Some(dir.path()));
            fs::write(&path, "x").unwrap();
        }
        assert_eq!(directory.filters().unwrap().len(), 2);
    }
}
