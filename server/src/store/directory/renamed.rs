//! Filters that get another name, and their files, which get it after them.

use std::collections::BTreeMap;

use super::DataDirectory;
use crate::store::{
    FilterName, SnapshotFiles, StoreError,
    manifest::Manifest,
    names::{self, Kind},
    snapshot,
};

/// That a filter has been renamed, and its files have not.
#[derive(Debug)]
#[must_use]
pub struct Renamed {
    /// `None` if another caller wrote the change.
    before: Option<Manifest>,
    /// What they are called, and what they are to be called.
    files: Vec<[String; 2]>,
}

impl DataDirectory {
    /// Gives a filter another name and, with it, these files, and returns when that is on stable
    /// storage. A filter that has the name goes in the same step. What is left to do with the files
    /// is for the caller to [do](Self::clear_up_renamed), before anybody stores the filter again.
    ///
    /// # Errors
    ///
    /// As [`Self::set_filter`].
    pub fn rename_filter(
        &self,
        name: &FilterName,
        new_name: &FilterName,
        files: &SnapshotFiles,
    ) -> Result<Renamed, StoreError> {
        let before = self.commit(None, |manifest| {
            if let Some(mut stored) = manifest.filters.remove(name) {
                stored.files = files.numbers().collect();
                manifest.filters.insert(new_name.clone(), stored);
            }
        })?;
        let both = |file| [name, new_name].map(|name| names::snapshot(name, file));
        let files = files.numbers().map(both).collect();
        Ok(Renamed { before, files })
    }

    /// Gives the files of a filter that has been renamed its name, and removes those of one that
    /// had it.
    pub fn clear_up_renamed(&self, Renamed { before, files }: Renamed) {
        if let Some(before) = before {
            self.clear(&before);
        }
        for [from, to] in files {
            // The manifest knows files by their numbers: the next start gives them their names. The
            // newest has its own already.
            let _ = self.disk.rename(&from, &to);
        }
    }

    /// The files that have the name that their filter had before a crash, or before the disk
    /// failed, by the names that they are to have.
    pub(super) fn misnamed_among(&self, files: &[String]) -> BTreeMap<String, String> {
        let manifest = self.manifest.lock();
        let mut missing = BTreeMap::new();
        for (name, stored) in &manifest.filters {
            let own = stored
                .files
                .iter()
                .map(|&number| (number, names::snapshot(name, number)));
            let missed = own.filter(|(number, file)| *number > 0 && !files.contains(file));
            missing.extend(missed.map(|(number, file)| (number, (file, stored.id))));
        }
        let of = |file: &String| {
            let Kind::Snapshot(_, number) = Kind::of(file) else {
                return None;
            };
            let (name, id) = missing.get(&number)?;
            self.is_of(file, *id).then(|| (name.clone(), file.clone()))
        };
        files.iter().filter_map(of).collect()
    }

    /// The file that has the bytes of one of this name.
    pub(in crate::store) fn file<'a>(&'a self, name: &'a str) -> &'a str {
        self.misnamed.get(name).map_or(name, String::as_str)
    }

    /// Whether a file was written for a filter that has another name: before it was renamed, or
    /// to rename it. One that somebody has given its name says another one itself.
    pub(super) fn is_of_renamed(&self, name: &str, file: &str, manifest: &Manifest) -> bool {
        let header = snapshot::read_header(&*self.disk, file);
        header.is_ok_and(|header| {
            let mut filters = manifest.filters.values();
            header.name.as_str() == name && filters.any(|stored| stored.id == header.filter)
        })
    }
}
