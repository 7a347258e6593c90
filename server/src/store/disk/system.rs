//! The system's file system.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Disk, DiskFile};
use crate::store::{StoreError, names};

const LOCK_FILE: &str = "LOCK";

/// A directory that this process holds the lock of. The lock goes with the value, and with the
/// process however it ends.
#[derive(Debug)]
pub struct SystemDisk {
    path: PathBuf,
    /// `None` if there was none to be locked.
    _lock: Option<File>,
}

impl SystemDisk {
    /// Makes the directory if it does not exist, and locks it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has it, [`StoreError::Io`] if it cannot be
    /// made or written in.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        make(path).map_err(|error| StoreError::io("make the data directory", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: Some(lock(path)?),
        })
    }

    /// A directory that is there and that a server has worked in, or a copy of it; locks it if it
    /// has a lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has it, [`StoreError::Io`] if it is not there or
    /// no server has worked in it.
    pub fn existing(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("open the data directory", path, error);
        let lock_file = path.join(LOCK_FILE);
        let lock = match File::open(&lock_file) {
            Ok(file) => {
                try_lock(&file, path, &lock_file)?;
                Some(file)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let disk = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        let files = disk.names().map_err(failed)?;
        if disk._lock.is_none() && !files.iter().any(|file| names::is_ours(file)) {
            let error = "no seenset-server has kept any files there";
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, error)));
        }
        Ok(disk)
    }
}

impl Disk for SystemDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(self.path.join(name));
        Ok(Box::new(file?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, to, at)
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize> {
        match FileExt::write_at(self, from, at) {
            // What can be written past the cache, some file systems tell when it is tried; and
            // behind a part of a write the rest may not be whole pages.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput && set_bypass(self, false) =>
            {
                FileExt::write_at(self, from, at)
            }
            done => done,
        }
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::{fs::FallocateFlags, io::Errno};
            match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                done => return Ok(done?),
            }
        }
        self.set_len(bytes)
    }

    fn cut_off(&self, bytes: u64) -> io::Result<()> {
        if self.bytes()? <= bytes {
            return Ok(());
        }
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        // The length counts as data.
        self.sync_data()
    }

    fn forget(&self) {
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn bypass_cache(&self) {
        set_bypass(self, true);
    }
}

/// Has writes go past the cache or through it, and tells whether that is a change.
fn set_bypass(file: &File, bypass: bool) -> bool {
    #[cfg(target_os = "linux")]
    if let Ok(flags) = rustix::fs::fcntl_getfl(file) {
        let direct = rustix::fs::OFlags::DIRECT;
        let is_change = flags.contains(direct) != bypass;
        let mut wanted = flags;
        wanted.set(direct, bypass);
        return is_change && rustix::fs::fcntl_setfl(file, wanted).is_ok();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, bypass);
    false
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
    try_lock(&file, directory, &path)?;
    // For whoever wonders who holds it; the lock itself is the system's. On a disk that is
    // full it cannot be written, and the start may be what makes room.
    let _ = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn try_lock(file: &File, directory: &Path, path: &Path) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
            path: directory.to_owned(),
            owner: fs::read_to_string(path)
                .ok()
                .map(|id| id.trim().to_owned())
                .filter(|id| !id.is_empty()),
        }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = SystemDisk::open(dir.path()).unwrap();
        let message = SystemDisk::open(dir.path()).unwrap_err().to_string();
        assert!(
            message.contains("is in use by another seenset-server (process "),
            "{message}"
        );
        drop(first);
        SystemDisk::open(dir.path()).unwrap();
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let message = SystemDisk::open(&path).unwrap_err().to_string();
        assert!(message.contains("choose another --data-dir"), "{message}");
    }
}
