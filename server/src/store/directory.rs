//! The data directory: which files are in it, and that only one server works there.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{FilterName, StoreError};

const LOCK_FILE: &str = "LOCK";
const SNAPSHOT_SUFFIX: &str = ".snapshot";
const TEMPORARY_SUFFIX: &str = ".snapshot.tmp";

/// A data directory that this process holds the lock of. The lock goes with the value, and
/// with the process however it ends.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: File,
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
        make(path).map_err(|error| StoreError::io("make the data directory", path, error))?;
        let directory = Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        };
        for file in directory.files_with(TEMPORARY_SUFFIX)? {
            let file = directory.path.join(file);
            fs::remove_file(&file)
                .map_err(|error| StoreError::io("remove the unfinished", file, error))?;
        }
        Ok(directory)
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
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
                path: self.path.join(&file),
                what: "name of the file".to_owned(),
                expected: format!("a filter name and {SNAPSHOT_SUFFIX}"),
                found: format!("{stem:?}"),
            })?);
        }
        names.sort();
        Ok(names)
    }

    /// The path of a filter's snapshot.
    pub fn snapshot(&self, name: &FilterName) -> PathBuf {
        self.path.join(format!("{name}{SNAPSHOT_SUFFIX}"))
    }

    /// The path at which a filter's next snapshot is written.
    pub(super) fn temporary(&self, name: &FilterName) -> PathBuf {
        self.path.join(format!("{name}{TEMPORARY_SUFFIX}"))
    }

    /// Removes a filter's snapshot, and returns when the removal is on stable storage.
    /// That there is none is not an error.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; the snapshot may then still be there, or come back after a crash.
    pub fn remove_snapshot(&self, name: &FilterName) -> Result<(), StoreError> {
        let path = self.snapshot(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", path, error))
            }
            _ => self.sync(),
        }
    }

    /// Puts the directory itself on stable storage: which names there are, and what for.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        File::open(&self.path)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| StoreError::io("sync the directory", &self.path, error))
    }

    fn files_with(&self, suffix: &str) -> Result<Vec<String>, StoreError> {
        let failed = |error| StoreError::io("list the data directory", &self.path, error);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            // A name that is not UTF-8 keeps its suffix through the conversion, and is then
            // refused for what it is not.
            let name = name.to_string_lossy();
            if name.ends_with(suffix) {
                files.push(name.into_owned());
            }
        }
        Ok(files)
    }
}

/// Makes a directory and those above it, and puts each new name on stable storage: what is
/// stored in a directory is lost with its name.
fn make(path: &Path) -> io::Result<()> {
    let new: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    fs::create_dir_all(path)?;
    for directory in new {
        let parent = directory
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK_FILE);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| StoreError::io("write in the data directory: open", &path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::Locked {
                path: directory.to_owned(),
                owner: fs::read_to_string(&path)
                    .ok()
                    .map(|id| id.trim().to_owned())
                    .filter(|id| !id.is_empty()),
            });
        }
        Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", path, error)),
    }
    // For whoever wonders who holds it; the lock itself is the system's. On a disk that is
    // full it cannot be written, and the start may be what makes room.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDirectory::open(dir.path()).unwrap();
        let message = DataDirectory::open(dir.path()).unwrap_err().to_string();
        assert!(
            message.contains("is in use by another seenset-server (process "),
            "{message}"
        );
        drop(first);
        DataDirectory::open(dir.path()).unwrap();
    }

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
            let path = directory.snapshot(&name.parse().unwrap());
            assert_eq!(path.parent(), Some(dir.path()));
            fs::write(&path, "x").unwrap();
        }
        assert_eq!(directory.filters().unwrap().len(), 2);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let message = DataDirectory::open(&path).unwrap_err().to_string();
        assert!(message.contains("choose another --data-dir"), "{message}");
    }
}
