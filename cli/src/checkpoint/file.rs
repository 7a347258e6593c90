//! The file of a checkpoint. It is replaced as a whole, and used by one run at a time.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::Checkpoint;
use crate::failure::Failure;

/// The maximum size of the file in bytes, more than any checkpoint takes.
const MAX_BYTES: u64 = 64 << 20;

/// The file, locked by this run.
#[derive(Debug)]
pub(crate) struct CheckpointFile {
    path: PathBuf,
    /// The file as it was last written, with its lock; `None` if there is none yet.
    locked: Option<File>,
}

impl CheckpointFile {
    /// Opens the file, and reads the checkpoint if there is one.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<Checkpoint>), Failure> {
        let failed = |reason: String| {
            Failure::Failed(format!("cannot continue from {}: {reason}", path.display()))
        };
        let mut this = Self {
            path: path.to_owned(),
            locked: None,
        };
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((this, None)),
            Err(error) => return Err(failed(error.to_string())),
        };
        if is_locked(&file) || !is_there(&file, path) {
            return Err(failed("another run is using it".to_owned()));
        }
        let mut text = String::new();
        (&mut file)
            .take(MAX_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| failed(error.to_string()))?;
        let checkpoint = Checkpoint::parse(&text).map_err(failed)?;
        this.locked = Some(file);
        Ok((this, Some(checkpoint)))
    }

    /// Replaces the checkpoint in one step. When this returns, the checkpoint is on stable storage.
    pub(crate) fn save(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        let directory = self.path.parent().filter(|it| *it != Path::new(""));
        let directory = directory.unwrap_or(Path::new("."));
        let mut file = NamedTempFile::with_prefix_in(".seenset-checkpoint-", directory)?;
        writeln!(file, "{}", checkpoint.text())?;
        file.as_file().sync_all()?;
        // It is locked before others can open it.
        is_locked(file.as_file());
        let saved = match self.locked {
            Some(_) => file.persist(&self.path),
            // Another run that began at the same time may have been first.
            None => file.persist_noclobber(&self.path),
        };
        self.locked = Some(saved.map_err(|error| error.error)?);
        // Some file systems do not sync directories. They keep names without that.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        Ok(())
    }

    /// Removes the file, because the run is complete.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns whether another process has the lock. If not, this process has it from now on. If a file
/// system has no locks, no process has the lock.
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Returns whether the path still names the file that was opened.
fn is_there(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (Ok(opened), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else {
            return false;
        };
        (opened.dev(), opened.ino()) == (named.dev(), named.ino())
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::{super::tests::checkpoint, *};

    #[test]
    fn one_run_at_a_time_has_the_file() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("state");
        let (mut first, found) = CheckpointFile::open(&path).unwrap();
        assert_eq!(found, None);
        let (mut late, _) = CheckpointFile::open(&path).unwrap();
        let mut expected = checkpoint();
        first.save(&expected).unwrap();
        let error = late.save(&expected).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        for line in 20..23 {
            expected.done.line = line;
            first.save(&expected).unwrap();
            let Err(Failure::Failed(message)) = CheckpointFile::open(&path) else {
                panic!("two runs have it");
            };
            assert!(message.ends_with("another run is using it"), "{message}");
        }
        drop(first);
        let (mut next, found) = CheckpointFile::open(&path).unwrap();
        assert_eq!(found, Some(expected));
        next.remove().unwrap();
        // No other file is left either.
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
