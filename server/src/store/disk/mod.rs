//! The file system, as much of it as the store uses: one directory of files.
//!
//! Whatever reaches or leaves the disk goes through [`Disk`] and [`DiskFile`], so that a
//! simulated disk can stand in for the system's: one that loses what was not synced, and fails
//! where a test wants it to.

mod failed_call;
mod ours;
#[cfg(any(test, fuzzing))]
pub mod simulated;
mod system;

use std::{fmt::Debug, io, path::Path};

pub use self::{failed_call::FailedCall, system::SystemDisk};
use crate::planted::Bug;

/// A directory of files, and nothing else.
///
/// What names there are, and for which files, is on stable storage after [`sync`](Self::sync)
/// alone; what is in a file, after [`DiskFile::sync`].
pub trait Disk: Debug + Send + Sync {
    /// Where the directory is, for messages.
    fn path(&self) -> &Path;

    /// The names of all files, in any order. One that is not UTF-8 has its bytes replaced that
    /// are not, and keeps all others.
    ///
    /// # Errors
    ///
    /// Here and in the methods like this one: what the system says.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file that is there, to be read.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that is there, to be written in.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Makes an empty file that the server's user alone can read: secrets of hashes come into
    /// it. One of the same name is removed before, for what happened to its bytes does not matter
    /// to a new file's.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, in the place of a file that has it, in one step.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Checks that no other program has removed or replaced the lock, the manifest or the log.
    ///
    /// # Errors
    ///
    /// Which file it is.
    fn check(&self) -> io::Result<()>;

    /// Puts the names on stable storage.
    ///
    /// # Errors
    ///
    /// See [`Self::names`]. Which of the changes since the sync before have reached the disk is
    /// then not known.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Its length.
    ///
    /// # Errors
    ///
    /// Here and in the methods like this one: what the system says.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads at a place, and tells how much: less than asked for at the end of the file, and
    /// wherever the system likes.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`]; [`io::ErrorKind::Interrupted`] if a signal came before there was any,
    /// for the caller to try again.
    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes at a place, and tells how much: less than given wherever the system likes.
    ///
    /// # Errors
    ///
    /// See [`Self::read_at`].
    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize>;

    /// Makes a file longer, with zeros, and keeps room on the disk for them where the system
    /// can.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Cuts a file off, and gives back the room behind that. One that is no longer stays as it
    /// is.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    fn cut_off(&self, bytes: u64) -> io::Result<()>;

    /// Puts what is in the file, and its length, on stable storage.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`]. What was written since the sync before may then be lost, and no
    /// later sync says so: the file must not be relied on.
    fn sync(&self) -> io::Result<()>;

    /// Has the system keep no copy in memory of what has reached the disk.
    fn forget(&self);

    /// From now on has writes go past the system's cache, if the system can: each of whole pages
    /// of 4 KiB, at a multiple of as many bytes in memory and in the file.
    fn bypass_cache(&self);
}

impl dyn DiskFile + '_ {
    /// Reads as many bytes as asked for.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before; what the system says.
    pub fn read_exact_at(&self, mut to: &mut [u8], mut at: u64) -> io::Result<()> {
        while !to.is_empty() {
            let read = uninterrupted(|| self.read_at(to, at))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to = to.get_mut(read..).unwrap_or_default();
            at += read as u64;
        }
        Ok(())
    }

    /// Writes all of the bytes.
    ///
    /// # Errors
    ///
    /// What the system says. Any part of the bytes may then have been written.
    pub fn write_all_at(&self, mut from: &[u8], mut at: u64) -> io::Result<()> {
        while !from.is_empty() {
            let written = uninterrupted(|| self.write_at(from, at))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            from = from.get(written..).unwrap_or_default();
            if Bug::ShortWriteTaken.is_planted() {
                return Ok(());
            }
            at += written as u64;
        }
        Ok(())
    }
}

/// So often in a row no signal interrupts a call.
const TRIES: u32 = 100;

/// Tries again what a signal has interrupted. What is interrupted each time has failed: who waits
/// for it is told.
fn uninterrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
    attempt()
}
