//! The file that an export is written to.
//!
//! A regular file is replaced when the whole filter has come, and keeps its mode and owner. Some
//! files cannot be replaced, and are written in place: a device, a pipe, a descriptor, a file with
//! several names, and a file in a directory in which no other file can be created.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind, Seek, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::streams;

/// The maximum number of symbolic links that are followed, as on Linux.
const MAX_LINKS: u32 = 40;

/// The file that an export is written to.
#[derive(Debug)]
pub(super) enum Destination {
    /// Standard output, also if it is given by the name of the file that it goes to.
    Stdout,
    /// A file under a temporary name, which gets the name of the target at the end.
    Beside {
        file: NamedTempFile,
        target: PathBuf,
        /// The file that has the name of the target now.
        old: Option<File>,
    },
    /// The target itself.
    InPlace(File),
}

impl Destination {
    /// Opens the destination, and changes nothing yet. A named pipe blocks until another process
    /// opens it for reading.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let old = match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let target = target(path)?.ok_or(error)?;
                return Self::beside(target, None);
            }
            opened => opened?,
        };
        if streams::is_stdout(&old) {
            return Ok(Self::Stdout);
        }
        let metadata = old.metadata()?;
        if !metadata.is_file() || has_other_names(&metadata) {
            return Ok(Self::InPlace(old));
        }
        match target(path)? {
            None => Ok(Self::InPlace(old)),
            Some(target) => Self::beside(target, Some(old)),
        }
    }

    fn beside(target: PathBuf, old: Option<File>) -> io::Result<Self> {
        match (file_beside(&target, old.as_ref()), old) {
            (Ok(file), old) => Ok(Self::Beside { file, target, old }),
            (Err(error), Some(old)) if is_forbidden(&error) => Ok(Self::InPlace(old)),
            (Err(error), _) => Err(error),
        }
    }

    /// Writes a part of the filter.
    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().write_all(data),
            Self::Beside { file, .. } => file.write_all(data),
            Self::InPlace(file) => file.write_all(data),
        }
    }

    /// Truncates a file that is written in place. Called when the first part has come.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        match self {
            Self::InPlace(file) if file.metadata()?.is_file() => file.set_len(0),
            _ => Ok(()),
        }
    }

    /// Waits until the filter is on stable storage, if there is any, and gives the file the name of
    /// the target.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().flush(),
            Self::InPlace(file) if file.metadata()?.is_file() => file.sync_all(),
            Self::InPlace(_) => Ok(()),
            Self::Beside { file, target, old } => {
                file.as_file().sync_all()?;
                match (file.persist(target), old) {
                    (Ok(_), _) => Ok(()),
                    // A file that is mounted by itself, for instance into a container.
                    (Err(error), Some(old)) if error.error.kind() == ErrorKind::ResourceBusy => {
                        copy(error.file, old)
                    }
                    (Err(error), _) => Err(error.error),
                }
            }
        }
    }

    /// Returns true if the filter goes to standard output.
    pub(super) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }
}

fn copy(mut from: NamedTempFile, mut to: File) -> io::Result<()> {
    from.as_file_mut().rewind()?;
    to.set_len(0)?;
    io::copy(from.as_file_mut(), &mut to)?;
    to.sync_all()
}

/// Returns the file that a path leads to through symbolic links, whether it exists or not. Returns
/// `None` if the path is a descriptor of a process, for instance /dev/fd/3: its file may have
/// another name by now, or none.
fn target(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let directory = directory_of(&path);
        let real = fs::canonicalize(directory)?;
        if real.starts_with("/proc") || real.starts_with("/dev/fd") {
            return Ok(None);
        }
        match fs::read_link(&path) {
            Ok(link) => path = directory.join(link),
            Err(error) => {
                return match error.kind() {
                    // The path is no link, or does not exist.
                    ErrorKind::InvalidInput | ErrorKind::NotFound => Ok(Some(path)),
                    _ => Err(error),
                };
            }
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    directory.unwrap_or(Path::new("."))
}

/// Creates a file under a temporary name, which is removed if it is not renamed. It gets the mode
/// and the owner of the file that it replaces.
fn file_beside(target: &Path, old: Option<&File>) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new();
    file.prefix(".seenset-").suffix(".partial");
    // The user's umask applies, as for any file.
    #[cfg(unix)]
    file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = file
        .tempfile_in(directory_of(target))
        // The error must not name this file, because the user has not given that name.
        .map_err(|error| io::Error::from(error.kind()))?;
    if let Some(old) = old {
        keep_owner_and_mode(file.as_file(), &old.metadata()?)?;
    }
    Ok(file)
}

#[cfg(unix)]
fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};

    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    file.set_permissions(old.permissions())
}

#[cfg(unix)]
fn has_other_names(metadata: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) > 1
}

#[cfg(not(unix))]
fn has_other_names(_: &Metadata) -> bool {
    false
}

/// Returns whether the directory allows no new file, or the file cannot be given to its owner.
fn is_forbidden(error: &io::Error) -> bool {
    let forbidden = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    forbidden.contains(&error.kind())
}
