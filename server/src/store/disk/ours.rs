//! The files by which a server owns a directory, as they were when it made or opened them: whoever
//! removes one of them, or puts another in its place, takes what is acknowledged from the next
//! start, or lets a second server in.

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

/// A file that is not the one that the server made or opened.
#[derive(Debug, Error)]
#[error(
    "{} was removed or replaced by another program: stop the server, which stores what it can, see \
     that no other works in the directory, and start it again",
    path.display()
)]
struct Taken {
    path: PathBuf,
}

/// Which file it is, whatever its name.
type Identity = (u64, u64);

/// The files of a directory that must not be taken from the server.
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

    /// Opens or makes a file, and notes which one it is.
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

    /// Gives a file another name.
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

    /// Removes a file.
    pub fn removed(&self, name: &str, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.forget(name);
        remove()
    }

    /// Misses a file no longer, which is about to be changed: the disk is not waited for with the
    /// lock held, for which the thread of the log would wait.
    fn forget(&self, name: &str) {
        self.files.lock().remove(name);
    }

    fn note(&self, name: &str, identity: Identity) {
        self.files.lock().insert(name.to_owned(), identity);
    }

    /// Looks whether each of the files is still the one that it was.
    ///
    /// # Errors
    ///
    /// The name of one that is not, or why that cannot be found out.
    pub fn check(&self) -> io::Result<()> {
        let files = self.files.lock().clone();
        for (name, identity) in &files {
            // One that is being changed is not there any more in the list.
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
