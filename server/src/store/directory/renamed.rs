//! Renaming of filters. Their files get the new name afterwards.

use std::collections::BTreeMap;

use super::DataDirectory;
use crate::store::{
    FilterName, SnapshotFiles, StoreError,
    manifest::Manifest,
    names::{self, Kind},
    snapshot,
};

/// A filter that has been renamed, while its files have not.
#[derive(Debug)]
#[must_use]
pub struct Renamed {
    /// `None` if another caller wrote the change.
    before: Option<Manifest>,
    /// The present name and the new name of each file.
    files: Vec<[String; 2]>,
}

impl DataDirectory {
    /// Renames a filter, sets its files, and returns when the change is on stable storage. The same
    /// step removes a filter that has the new name. The caller must then [rename the
    /// files](Self::clear_up_renamed), before anybody stores the filter again.
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

    /// Renames the files of a filter that has been renamed, and removes the files of a filter that
    /// had the new name.
    pub fn clear_up_renamed(&self, Renamed { before, files }: Renamed) {
        if let Some(before) = before {
            self.clear(&before);
        }
        for [from, to] in files {
            // An error does no harm: the manifest knows files by their numbers, and the next start
            // renames them. The newest file has the new name already.
            let _ = self.disk.rename(&from, &to);
        }
    }

    /// Returns the files that still have the former name of their filter, after a crash or a disk
    /// failure. The keys are the names that the files should have.
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

    /// Returns the present name of the file that should have this name.
    pub(in crate::store) fn file<'a>(&'a self, name: &'a str) -> &'a str {
        self.misnamed.get(name).map_or(name, String::as_str)
    }

    /// Returns whether a file was written for a filter that has another name: before the filter was
    /// renamed, or to rename it. If somebody else gave the file its name, its header holds another
    /// name.
    pub(super) fn is_of_renamed(&self, name: &str, file: &str, manifest: &Manifest) -> bool {
        let header = snapshot::read_header(&*self.disk, file);
        header.is_ok_and(|header| {
            let mut filters = manifest.filters.values();
            header.name.as_str() == name && filters.any(|stored| stored.id == header.filter)
        })
    }
}
