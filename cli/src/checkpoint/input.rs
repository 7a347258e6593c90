//! The files of a run, as another run finds them again: by size and time, as rsync does. The
//! content is compared too, up to the progress of the run.

use std::{fs, path::PathBuf, time::UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::{failure::Failure, file_name::is_stdin};

/// A file of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputFile {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    /// The time of the last change, in seconds since 1970.
    pub(crate) modified_at: String,
}

impl InputFile {
    /// Returns the files; `None` if one of them cannot be read again, because it is no regular
    /// file.
    pub(crate) fn all(files: &[PathBuf]) -> Result<Option<Vec<Self>>, Failure> {
        let mut all = Vec::new();
        for path in files {
            if is_stdin(path) {
                return Ok(None);
            }
            let failed = |error| Failure::cannot_open(path, &error);
            let metadata = fs::metadata(path).map_err(failed)?;
            if !metadata.is_file() {
                return Ok(None);
            }
            let modified = metadata
                .modified()
                .map_err(failed)?
                .duration_since(UNIX_EPOCH);
            let modified = modified.unwrap_or_default();
            all.push(Self {
                name: path.to_string_lossy().into_owned(),
                size_bytes: metadata.len(),
                modified_at: format!("{}.{:09}", modified.as_secs(), modified.subsec_nanos()),
            });
        }
        Ok(Some(all).filter(|all| !all.is_empty()))
    }

    /// Returns the difference between the files now and before; `None` if there is none. Other
    /// names are no difference.
    pub(crate) fn difference(now: &[Self], before: &[Self]) -> Option<String> {
        if now.len() != before.len() {
            return Some(format!(
                "there are {} files, and there were {}",
                now.len(),
                before.len()
            ));
        }
        now.iter().zip(before).find_map(|(now, before)| {
            let name = &now.name;
            if now.size_bytes != before.size_bytes {
                return Some(format!(
                    "{name} has {} bytes, and {} had {}",
                    now.size_bytes, before.name, before.size_bytes
                ));
            }
            (now.modified_at != before.modified_at).then(|| {
                format!(
                    "{name} was changed at {} (seconds since 1970), and {} at {}: if it is the \
                     same, set its time (touch -d @{2})",
                    now.modified_at, before.name, before.modified_at
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn files_are_the_same_by_number_size_and_time() {
        let directory = TempDir::new().unwrap();
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        for path in &paths {
            fs::write(path, "x\n").unwrap();
        }
        let before = InputFile::all(&paths).unwrap().unwrap();
        assert_eq!(InputFile::difference(&before, &before), None);
        let renamed = directory.path().join("c");
        fs::rename(&paths[1], &renamed).unwrap();
        let paths = [paths[0].clone(), renamed];
        let now = InputFile::all(&paths).unwrap().unwrap();
        assert_eq!(InputFile::difference(&now, &before), None);

        let difference = |now: &[InputFile]| InputFile::difference(now, &before).unwrap();
        assert_eq!(difference(&now[..1]), "there are 1 files, and there were 2");
        File::open(&paths[1])
            .unwrap()
            .set_modified(UNIX_EPOCH)
            .unwrap();
        let touched = InputFile::all(&paths).unwrap().unwrap();
        assert!(difference(&touched).contains("was changed at 0.000000000"));
        fs::write(&paths[0], "x\ny\n").unwrap();
        let longer = InputFile::all(&paths).unwrap().unwrap();
        assert!(difference(&longer).contains("has 4 bytes"));
    }

    #[test]
    fn what_is_no_regular_file_cannot_be_read_again() {
        for paths in [&["-"][..], &["/dev/null"], &[]] {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            assert_eq!(InputFile::all(&paths).unwrap(), None, "{paths:?}");
        }
        assert!(InputFile::all(&["/no/such/file".into()]).is_err());
    }
}
