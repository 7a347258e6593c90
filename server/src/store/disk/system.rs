//! The real file system.
//!
//! When a signal interrupts an open, sync or truncate call, the standard library retries without
//! end. So this module does not use the standard library for these calls.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags};

use super::{Disk, DiskFile, FailedCall, ours::OurFiles, uninterrupted};
use crate::store::{
    StoreError,
    names::{self, LOCK_FILE},
};

/// A directory that this process has locked: the file `LOCK`, and the directory itself, in case
/// somebody removes the file. The locks end with this value, and with the process.
#[derive(Debug)]
pub struct SystemDisk {
    path: PathBuf,
    ours: OurFiles,
    _locks: Locks,
}

impl SystemDisk {
    /// Creates the directory if it does not exist, and locks it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has locked it, [`StoreError::Io`] if it cannot be
    /// created or written to.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        make(path).map_err(|error| StoreError::io("make the data directory", path, error))?;
        let ours = OurFiles::new(path);
        let mut locks = Locks(vec![lock(path, &ours)?]);
        locks.0.extend(lock_directory(path)?);
        Ok(Self {
            path: path.to_owned(),
            ours,
            _locks: locks,
        })
    }

    /// Opens an existing directory that a server has worked in, or a copy of one. Locks the file
    /// `LOCK` if it exists.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process has locked it, [`StoreError::Io`] if it does not
    /// exist or no server has worked in it.
    pub fn existing(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("open the data directory", path, error);
        let lock_file = path.join(LOCK_FILE);
        let mut locks = match open(&lock_file, OFlags::RDONLY | OFlags::NOFOLLOW) {
            Ok(file) => {
                try_lock(&file, path, &lock_file)?;
                Locks(vec![file])
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Locks(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let had_lock = !locks.0.is_empty();
        locks.0.extend(lock_directory(path)?);
        let disk = Self {
            path: path.to_owned(),
            ours: OurFiles::new(path),
            _locks: locks,
        };
        let files = disk.names().map_err(failed)?;
        if !had_lock && !files.iter().any(|file| names::is_ours(file)) {
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
        uninterrupted(|| {
            fs::read_dir(&self.path)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        })
        .map_err(FailedCall::named("readdir"))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let open = || open(&self.path.join(name), OFlags::RDONLY);
        Ok(Box::new(self.ours.opened(name, open)?))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let open = || open(&self.path.join(name), OFlags::RDWR);
        Ok(Box::new(self.ours.opened(name, open)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        match self.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let new = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let open = || open(&self.path.join(name), new);
        Ok(Box::new(self.ours.opened(name, open)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let rename = || uninterrupted(|| fs::rename(self.path.join(from), self.path.join(to)));
        let renamed = self.ours.renamed(to, rename);
        renamed.map_err(FailedCall::named("rename"))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let remove = || uninterrupted(|| fs::remove_file(self.path.join(name)));
        let removed = self.ours.removed(name, remove);
        removed.map_err(FailedCall::named("unlink"))
    }

    fn check(&self) -> io::Result<()> {
        self.ours.check()
    }

    fn sync(&self) -> io::Result<()> {
        sync_names(&self.path)
    }
}

impl DiskFile for File {
    fn bytes(&self) -> io::Result<u64> {
        let metadata = uninterrupted(|| self.metadata());
        Ok(metadata.map_err(FailedCall::named("fstat"))?.len())
    }

    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, to, at).map_err(FailedCall::named("pread"))
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize> {
        match FileExt::write_at(self, from, at) {
            // Some file systems refuse to bypass the cache only when a write is tried. And after a
            // partial write the rest may not be whole pages.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput && set_bypass(self, false) =>
            {
                FileExt::write_at(self, from, at)
            }
            done => done,
        }
        .map_err(FailedCall::named("pwrite"))
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            use rustix::{fs::FallocateFlags, io::Errno};
            let none = FallocateFlags::empty();
            let reserve = || match rustix::fs::fallocate(self, none, 0, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
                done => Ok(done.map(|()| true)?),
            };
            if uninterrupted(reserve).map_err(FailedCall::named("fallocate"))? {
                return Ok(());
            }
        }
        set_length(self, bytes)
    }

    fn cut_off(&self, bytes: u64) -> io::Result<()> {
        if self.bytes()? <= bytes {
            return Ok(());
        }
        set_length(self, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        // The length counts as data.
        #[cfg(target_os = "linux")]
        return uninterrupted(|| Ok(rustix::fs::fdatasync(self)?))
            .map_err(FailedCall::named("fdatasync"));
        // On other systems the standard library knows the right call.
        #[cfg(not(target_os = "linux"))]
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

/// Makes writes bypass the page cache, or go through it. Returns whether that is a change.
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

/// Opens a file or a directory. Only the server's user can read a file that is created.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    uninterrupted(|| Ok(rustix::fs::openat(CWD, path, flags, mode)?.into()))
        .map_err(FailedCall::named("open"))
}

/// Puts the names in a directory on stable storage.
fn sync_names(directory: &Path) -> io::Result<()> {
    let directory = open(directory, OFlags::RDONLY)?;
    #[cfg(target_os = "linux")]
    return uninterrupted(|| Ok(rustix::fs::fsync(&directory)?)).map_err(FailedCall::sync_names);
    #[cfg(not(target_os = "linux"))]
    directory.sync_all()
}

fn set_length(file: &File, bytes: u64) -> io::Result<()> {
    uninterrupted(|| Ok(rustix::fs::ftruncate(file, bytes)?))
        .map_err(FailedCall::named("ftruncate"))
}

/// Creates a directory and its parents, and puts each new name on stable storage: if the name of a
/// directory is lost, its contents are lost too.
fn make(path: &Path) -> io::Result<()> {
    let new: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    fs::create_dir_all(path).map_err(FailedCall::named("mkdir"))?;
    for directory in new {
        let parent = directory
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        sync_names(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// The locked files of a data directory; none if there was nothing to lock.
///
/// Unlocks them when it is dropped. Closing them would not be enough: a process that another thread
/// has forked holds them too, until it executes its program.
#[derive(Debug)]
struct Locks(Vec<File>);

impl Drop for Locks {
    fn drop(&mut self) {
        let Self(files) = self;
        for file in files {
            // If this fails, the kernel unlocks the file when the last process closes it.
            let _ = file.unlock();
        }
    }
}

/// Locks the file `LOCK` of a directory. Fails if it is a symbolic link.
fn lock(directory: &Path, ours: &OurFiles) -> Result<File, StoreError> {
    let path = directory.join(LOCK_FILE);
    let open = || open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW);
    let file = ours
        .opened(LOCK_FILE, open)
        .map_err(|error| StoreError::io("write in the data directory: open", &path, error))?;
    try_lock(&file, directory, &path)?;
    // The process id is for people who want to know who holds the lock; the kernel keeps the lock
    // itself. On a full disk the id cannot be written, and this start may be what makes room.
    let to: &dyn DiskFile = &file;
    let owner = format!("{}\n", std::process::id());
    let _ = to
        .cut_off(0)
        .and_then(|()| to.write_all_at(owner.as_bytes(), 0));
    Ok(file)
}

/// Locks the directory itself; `None` if its file system cannot (NFS).
fn lock_directory(directory: &Path) -> Result<Option<File>, StoreError> {
    let file = open(directory, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|error| StoreError::io("open the data directory", directory, error))?;
    match uninterrupted(|| match file.try_lock() {
        Ok(()) => Ok(Some(true)),
        Err(TryLockError::WouldBlock) => Ok(Some(false)),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Err(error),
        Err(TryLockError::Error(_)) => Ok(None),
    }) {
        Ok(Some(false)) => Err(StoreError::Locked {
            path: directory.to_owned(),
            owner: None,
        }),
        Ok(Some(true)) => Ok(Some(file)),
        Ok(None) | Err(_) => Ok(None),
    }
}

fn try_lock(file: &File, directory: &Path, path: &Path) -> Result<(), StoreError> {
    let is_locked = uninterrupted(|| match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    });
    let is_locked = is_locked.map_err(FailedCall::lock);
    if is_locked.map_err(|error| StoreError::io("lock", path, error))? {
        return Ok(());
    }
    Err(StoreError::Locked {
        path: directory.to_owned(),
        owner: owner(file),
    })
}

/// Returns the process id that the owner of the lock wrote into it.
fn owner(lock: &dyn DiskFile) -> Option<String> {
    let mut bytes = vec![0; lock.bytes().ok()?.min(32) as usize];
    lock.read_exact_at(&mut bytes, 0).ok()?;
    let id = String::from_utf8(bytes).ok()?.trim().to_owned();
    (!id.is_empty()).then_some(id)
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
    fn one_server_at_a_time_also_without_the_file_that_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let first = SystemDisk::open(dir.path()).unwrap();
        fs::remove_file(dir.path().join(LOCK_FILE)).unwrap();
        let second = SystemDisk::open(dir.path());
        assert!(matches!(second, Err(StoreError::Locked { .. })));
        drop(first);
        SystemDisk::open(dir.path()).unwrap();
    }

    #[test]
    fn a_process_that_was_forked_does_not_keep_the_locks() {
        let dir = tempfile::tempdir().unwrap();
        let first = SystemDisk::open(dir.path()).unwrap();
        let Locks(files) = &first._locks;
        // As the child of a fork has them.
        let copies = files.iter().map(|file| file.try_clone().unwrap());
        let copies: Vec<File> = copies.collect();
        assert_eq!(copies.len(), 2);
        drop(first);
        SystemDisk::open(dir.path()).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let others = dir.path().join("others");
        fs::write(&others, "a text").unwrap();
        std::os::unix::fs::symlink(&others, dir.path().join(LOCK_FILE)).unwrap();
        for message in [
            SystemDisk::open(dir.path()).unwrap_err().to_string(),
            SystemDisk::existing(dir.path()).unwrap_err().to_string(),
        ] {
            assert!(message.contains("symbolic link"), "{message}");
        }
        assert_eq!(fs::read(&others).unwrap(), b"a text");
    }

    #[test]
    fn a_file_that_is_taken_away_or_replaced_is_missed() {
        for file in [LOCK_FILE, "MANIFEST", "log.tail"] {
            let dir = tempfile::tempdir().unwrap();
            let disk = SystemDisk::open(dir.path()).unwrap();
            disk.create("log.tail").unwrap();
            for _ in 0..2 {
                disk.create("MANIFEST.tmp").unwrap();
                disk.rename("MANIFEST.tmp", "MANIFEST").unwrap();
                disk.create("a.snapshot.0000000000000001").unwrap();
            }
            disk.check().unwrap();
            // Snapshots are not watched: there are many, and each start reports which are missing.
            fs::remove_file(dir.path().join("a.snapshot.0000000000000001")).unwrap();
            disk.check().unwrap();
            let path = dir.path().join(file);
            let other = dir.path().join("other");
            fs::copy(&path, &other).unwrap();
            fs::rename(&other, &path).unwrap();
            let message = disk.check().unwrap_err().to_string();
            assert!(
                message.contains(file) && message.contains("replaced"),
                "{message}"
            );
            // The file system may give the new file the inode number of the old one.
            fs::remove_file(&path).unwrap();
            disk.check().unwrap_err();
            fs::write(&path, b"").unwrap();
            disk.check().unwrap_err();
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = SystemDisk::open(dir.path()).unwrap();
        disk.create("log.tail").unwrap();
        let path = dir.path().join("log.tail");
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"").unwrap();
        disk.check().unwrap_err();
        let dir = tempfile::tempdir().unwrap();
        let disk = SystemDisk::open(dir.path()).unwrap();
        disk.create("log.tail").unwrap();
        disk.remove("log.tail").unwrap();
        disk.check().unwrap();
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
