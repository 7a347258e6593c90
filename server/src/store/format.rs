//! The format number of a file.
//!
//! Each file of a data directory has a magic, and then its format as four bytes. A server writes
//! the newest format that it knows, and reads all that it knows.

use std::{ops::RangeInclusive, path::Path};

use super::StoreError;

/// Checks the format of the file at `path`. `known` are the formats that this program reads.
///
/// # Errors
///
/// [`StoreError::NewerFormat`], [`StoreError::OlderFormat`], or [`StoreError::Damaged`] for format
/// 0, which no server writes.
pub fn check(path: &Path, known: RangeInclusive<u32>, found: u32) -> Result<(), StoreError> {
    let path = path.to_owned();
    if found > *known.end() {
        return Err(StoreError::NewerFormat { path, known, found });
    }
    if found == 0 {
        return Err(StoreError::Damaged {
            path,
            what: "format".to_owned(),
            expected: shown(&known),
            found: "0".to_owned(),
        });
    }
    match known.contains(&found) {
        true => Ok(()),
        false => Err(StoreError::OlderFormat { path, known, found }),
    }
}

/// Returns the formats as messages print them.
pub fn shown(formats: &RangeInclusive<u32>) -> String {
    match formats.start() == formats.end() {
        true => formats.start().to_string(),
        false => format!("{} to {}", formats.start(), formats.end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_format_is_refused_and_says_what_to_start() {
        let check = |known, found| check(Path::new("data/MANIFEST"), known, found);
        for known in [2, 3, 4] {
            check(2..=4, known).unwrap();
        }
        for (found, message) in [
            (
                5,
                "data/MANIFEST has format 5, and this seenset-server reads format 2 to 4: start a \
                 newer seenset-server",
            ),
            (
                1,
                "data/MANIFEST has format 1, and this seenset-server reads format 2 to 4: start an \
                 older seenset-server that reads both, and store all filters with it",
            ),
            (
                0,
                "data/MANIFEST is damaged: format: expected 2 to 4, found 0",
            ),
        ] {
            let error = check(2..=4, found).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        let error = check(1..=1, 2).unwrap_err().to_string();
        assert!(error.contains("reads format 1:"), "{error}");
    }
}
