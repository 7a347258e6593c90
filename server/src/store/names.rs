//! The names of the files in a data directory. The name of a file shows its kind.

use super::{FilterName, Tail, log};

/// The suffix of a file that is being written.
pub const TEMPORARY_SUFFIX: &str = ".tmp";
/// The part of the name of a snapshot after the filter name and before the number.
const SNAPSHOT: &str = ".snapshot";

/// The kind of a file, taken from its name.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A snapshot of a filter, and its number.
    Snapshot(&'a str, u64),
    /// A segment of the log.
    Segment(u64),
    /// A file that was being written when the server ended.
    Unfinished,
    /// Any other file.
    Other,
}

impl<'a> Kind<'a> {
    pub fn of(file: &'a str) -> Self {
        if let Some(stem) = file.strip_suffix(TEMPORARY_SUFFIX) {
            return match Self::of(stem) {
                Self::Segment(_) => Self::Unfinished,
                _ if stem == MANIFEST_FILE => Self::Unfinished,
                _ => Self::Other,
            };
        }
        if let Some(sequence) = log::segment_of(file) {
            return Self::Segment(sequence);
        }
        let parts = file.rsplit_once('.');
        let numbered = parts.and_then(|(stem, number)| {
            let number = u64::from_str_radix(number, 16).ok()?;
            let name = stem.strip_suffix(SNAPSHOT)?;
            (file == format!("{name}{SNAPSHOT}.{number:016x}")).then_some((name, number))
        });
        numbered.map_or(Self::Other, |(name, number)| Self::Snapshot(name, number))
    }
}

/// The manifest.
pub const MANIFEST_FILE: &str = "MANIFEST";
/// The file that a server locks.
pub const LOCK_FILE: &str = "LOCK";

/// Returns whether the server watches a file ([`super::Disk::check`]): the lock, the manifest and
/// the log.
pub fn must_stay(file: &str) -> bool {
    let is_one = [LOCK_FILE, MANIFEST_FILE, Tail::FILE].contains(&file);
    is_one || matches!(Kind::of(file), Kind::Segment(_))
}

/// Returns whether a server has given a file its name.
pub fn is_ours(file: &str) -> bool {
    file == MANIFEST_FILE || Kind::of(file) != Kind::Other
}

/// Returns the name of the file of a filter's snapshot.
pub fn snapshot(name: &FilterName, number: u64) -> String {
    format!("{name}{SNAPSHOT}.{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_files_are() {
        for (file, kind) in [
            ("a.snapshot.000000000000002a", Kind::Snapshot("a", 42)),
            ("...snapshot.0000000000000001", Kind::Snapshot("..", 1)),
            ("a.snapshot", Kind::Other),
            ("a.snapshot.000000000000002A", Kind::Other),
            ("a.snapshot.2a", Kind::Other),
            ("a.000000000000002a", Kind::Other),
            ("0000000000000001.log.tmp", Kind::Unfinished),
            ("MANIFEST.tmp", Kind::Unfinished),
            ("MANIFEST", Kind::Other),
            ("notes.txt", Kind::Other),
            ("notes.tmp", Kind::Other),
        ] {
            assert_eq!(Kind::of(file), kind, "{file}");
        }
    }
}
