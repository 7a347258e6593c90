//! The part of the file system that the store uses: one directory of files.
//!
//! All reads and writes of the disk go through [`Disk`] and [`DiskFile`], so that a simulated disk
//! can replace the real one. The simulated disk loses what was not synced, and fails where a test
//! wants it to.

mod failed_call;
mod ours;
#[cfg(any(test, fuzzing))]
pub mod simulated;
mod system;

use std::{fmt::Debug, io, path::Path};

pub use self::{failed_call::FailedCall, system::SystemDisk};

/// A directory of files, and nothing else.
///
/// The names of files are on stable storage only after [`sync`](Self::sync). The contents of a file
/// are on stable storage only after [`DiskFile::sync`].
pub trait Disk: Debug + Send + Sync {
    /// Returns the path of the directory, for messages.
    fn path(&self) -> &Path;

    /// Returns the names of all files, in any order. In a name that is not UTF-8 the invalid bytes
    /// are replaced, and the others are kept.
    ///
    /// # Errors
    ///
    /// The error of the kernel, here and in the methods like this one.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file for reading.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for writing.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file that only the server's user can read, because it will hold secrets of
    /// hashes. Removes a file of the same name first, so that what happened to its bytes does not
    /// matter to the new file.
    ///
    /// # Errors
    ///
    /// See [`Self::names`].
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file in one step, and replaces a file that has the new name.
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
    /// The error names the file.
    fn check(&self) -> io::Result<()>;

    /// Puts the names on stable storage.
    ///
    /// # Errors
    ///
    /// See [`Self::names`]. It is then not known which changes since the last sync have reached the
    /// disk.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Returns the length of the file.
    ///
    /// # Errors
    ///
    /// The error of the kernel, here and in the methods like this one.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads at an offset, and returns the number of bytes read. It can be less than asked for, at
    /// the end of the file and also elsewhere.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`]; [`io::ErrorKind::Interrupted`] if a signal came before the first byte.
    /// The caller must then retry.
    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes at an offset, and returns the number of bytes written. It can be less than given.
    ///
    /// # Errors
    ///
    /// See [`Self::read_at`].
    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize>;

    /// Extends a file with zeros, and reserves room on the disk for them if the file system can.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Truncates a file to `bytes` bytes, and releases the room after them. A file that is not
    /// longer stays as it is.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`].
    fn cut_off(&self, bytes: u64) -> io::Result<()>;

    /// Puts the contents and the length of the file on stable storage.
    ///
    /// # Errors
    ///
    /// See [`Self::bytes`]. Data that was written since the last sync can then be lost, and no
    /// later sync reports that: the file must not be relied on.
    fn sync(&self) -> io::Result<()>;

    /// Drops data of the file that has reached the disk from the page cache.
    fn forget(&self);

    /// From now on writes bypass the page cache, if the kernel can do that. Each write must consist
    /// of whole pages of 4 KiB, and begin at a multiple of 4 KiB in memory and in the file.
    fn bypass_cache(&self);
}

impl dyn DiskFile + '_ {
    /// Reads as many bytes as asked for.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before; the error of the kernel.
    pub fn read_exact_at(&self, mut to: &mut [u8], mut at: u64) -> io::Result<()> {
        while !to.is_empty() {
            let read = uninterrupted(|| self.read_at(to, at))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to = to
                .get_mut(read..)
                .expect("a read returns at most what it was asked for");
            at += read as u64;
        }
        Ok(())
    }

    /// Writes all of the bytes.
    ///
    /// # Errors
    ///
    /// The error of the kernel. Any part of the bytes may then have been written.
    pub fn write_all_at(&self, mut from: &[u8], mut at: u64) -> io::Result<()> {
        while !from.is_empty() {
            let written = uninterrupted(|| self.write_at(from, at))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            from = from
                .get(written..)
                .expect("a write takes at most what it was given");
            at += written as u64;
        }
        Ok(())
    }
}

/// The number of tries of an interrupted call. Signals do not interrupt a call that often in a row.
const TRIES: u32 = 100;

/// Retries a call that a signal has interrupted. If every try is interrupted, the call fails, so
/// that the waiting caller gets an error.
fn uninterrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
    attempt()
}
