//! The files that a server depends on: lock, manifest, log. If another program removes or replaces
//! one, acknowledged keys may be lost at the next start, or a second server may start in the
//! directory.
//!
//! A file is known by its device and inode. The server keeps it open, so that the file system gives
//! the inode's number to no other file.

use std::{
    collections::BTreeMap,
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use thiserror::Error;

use super::uninterrupted;
use crate::store::names;

/// The error for a file that was removed or replaced.
#[derive(Debug, Error)]
#[error(
    "{} was removed or replaced by another program: stop the server, which stores what it can, see \
     that no other works in the directory, and start it again",
    path.display()
)]
struct Taken {
    path: PathBuf,
}

/// The watched files of a directory.
#[derive(Debug)]
pub struct OurFiles {
    directory: PathBuf,
    files: Mutex<BTreeMap<String, Arc<File>>>,
}

impl OurFiles {
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            files: Mutex::default(),
        }
    }

    /// Opens or creates a file, and watches it.
    pub fn opened(&self, name: &str, open: impl FnOnce() -> io::Result<File>) -> io::Result<File> {
        if !names::must_stay(name) {
            return open();
        }
        self.forget(name);
        let file = open()?;
        self.watch(name, file.try_clone()?);
        Ok(file)
    }

    /// Renames a file, and watches it under the new name.
    pub fn renamed(&self, to: &str, rename: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !names::must_stay(to) {
            return rename();
        }
        self.forget(to);
        rename()?;
        let path = self.directory.join(to);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32);
        self.watch(to, uninterrupted(|| options.open(&path))?);
        Ok(())
    }

    /// Stops watching a file, and removes it.
    pub fn removed(&self, name: &str, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.forget(name);
        remove()
    }

    /// Stops watching a file that is about to change. The mutex is not locked during the disk call,
    /// because the thread of the log locks it too.
    fn forget(&self, name: &str) {
        // Closed after the mutex is released.
        let _closed = self.files.lock().remove(name);
    }

    fn watch(&self, name: &str, file: File) {
        self.files.lock().insert(name.to_owned(), Arc::new(file));
    }

    /// Compares the watched files with those on the disk.
    ///
    /// # Errors
    ///
    /// An error with the path of a file that is not the same, or the error of the check.
    pub fn check(&self) -> io::Result<()> {
        let files = self.files.lock().clone();
        for (name, file) in &files {
            let path = self.directory.join(name);
            let there = match uninterrupted(|| path.symlink_metadata()) {
                Ok(metadata) => Some(identity(&metadata)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let ours = identity(&uninterrupted(|| file.metadata())?);
            // This process does not watch a file while it changes it.
            let is_watched = || {
                let files = self.files.lock();
                files.get(name).is_some_and(|now| Arc::ptr_eq(now, file))
            };
            if there != Some(ours) && is_watched() {
                return Err(io::Error::other(Taken { path }));
            }
        }
        Ok(())
    }
}

/// Returns device and inode.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
