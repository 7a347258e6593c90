//! The identities (device and inode) of the files that a server depends on: lock, manifest, log. If
//! another program removes or replaces one, acknowledged keys may be lost at the next start, or a
//! second server may start in the directory.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
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

/// Device and inode of a file.
type Identity = (u64, u64);

/// The watched files of a directory.
#[derive(Debug)]
pub struct OurFiles {
    directory: PathBuf,
    files: Mutex<BTreeMap<String, Identity>>,
}

impl OurFiles {
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            files: Mutex::default(),
        }
    }

    /// Opens or creates a file, and stores its identity.
    pub fn opened(&self, name: &str, open: impl FnOnce() -> io::Result<File>) -> io::Result<File> {
        if !names::must_stay(name) {
            return open();
        }
        self.forget(name);
        let file = open()?;
        let metadata = uninterrupted(|| file.metadata())?;
        self.note(name, (metadata.dev(), metadata.ino()));
        Ok(file)
    }

    /// Renames a file, and stores its identity under the new name.
    pub fn renamed(&self, to: &str, rename: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !names::must_stay(to) {
            return rename();
        }
        self.forget(to);
        rename()?;
        if let Some(identity) = self.identity(to)? {
            self.note(to, identity);
        }
        Ok(())
    }

    /// Removes a file, and its identity before.
    pub fn removed(&self, name: &str, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.forget(name);
        remove()
    }

    /// Stops watching a file that is about to change. The mutex is not locked during the disk call,
    /// because the thread of the log locks it too.
    fn forget(&self, name: &str) {
        self.files.lock().remove(name);
    }

    fn note(&self, name: &str, identity: Identity) {
        self.files.lock().insert(name.to_owned(), identity);
    }

    /// Compares the identities with those on the disk.
    ///
    /// # Errors
    ///
    /// The name of one that is not, or why that cannot be found out.
    pub fn check(&self) -> io::Result<()> {
        let files = self.files.lock().clone();
        for (name, identity) in &files {
            // A file that this process is changing is not in the map now.
            let is_missed = |name| self.files.lock().get(name) == Some(identity);
            if self.identity(name)? != Some(*identity) && is_missed(name) {
                let path = self.directory.join(name);
                return Err(io::Error::other(Taken { path }));
            }
        }
        Ok(())
    }

    fn identity(&self, name: &str) -> io::Result<Option<Identity>> {
        let path = self.directory.join(name);
        match uninterrupted(|| path.symlink_metadata()) {
            Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
