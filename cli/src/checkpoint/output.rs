//! Standard output as a file that a run appends to and another run continues.

use std::{
    fs::{File, TryLockError},
    io,
};

/// Standard output. If it is no regular file, for instance a pipe, nothing of it can be found
/// again, and a run appends to it as it is.
#[derive(Debug)]
pub(crate) struct OutputFile(Option<File>);

impl OutputFile {
    /// Returns the standard output of the process.
    pub(crate) fn stdout() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use std::os::fd::AsFd;
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            let is_file = file.metadata()?.is_file();
            Ok(Self(Some(file).filter(|_| is_file)))
        }
        #[cfg(not(unix))]
        Ok(Self(None))
    }

    /// Returns the length in bytes; `None` if it is no regular file.
    pub(crate) fn bytes(&self) -> io::Result<Option<u64>> {
        let metadata = self.0.as_ref().map(File::metadata).transpose()?;
        Ok(metadata.map(|metadata| metadata.len()))
    }

    /// Returns whether all writes go to its end, wherever that is (`>>`).
    pub(crate) fn appends(&self) -> io::Result<bool> {
        #[cfg(unix)]
        if let Some(file) = &self.0 {
            let flags = rustix::fs::fcntl_getfl(file)?;
            return Ok(flags.contains(rustix::fs::OFlags::APPEND));
        }
        Ok(true)
    }

    /// Locks it for this run. Returns false if another run has the lock. The lock ends with the
    /// run.
    pub(crate) fn lock(&self) -> bool {
        let locked = self.0.as_ref().map(File::try_lock);
        !matches!(locked, Some(Err(TryLockError::WouldBlock)))
    }

    /// Unlocks it, also for processes that share the lock with this one.
    pub(crate) fn unlock(&self) {
        if let Some(file) = &self.0 {
            let _ = file.unlock();
        }
    }

    /// Removes all data after the first `bytes` bytes.
    pub(crate) fn cut(&self, bytes: u64) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |file| file.set_len(bytes))
    }

    /// Waits until all data written is on stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), File::sync_data)
    }
}
