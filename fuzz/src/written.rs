//! Directories as the ordinary writers leave them: where edits begin.

use arbitrary::Arbitrary;
use seenset_server::store::{
    StoreError,
    fuzzing::{self, SimulatedDisk},
};

use crate::{
    edit::{self, Edit},
    files::{self, Files},
    filter::Filter,
    log::Log,
    repair::Repairs,
};

/// The most filters of one directory.
const MOST_FILTERS: usize = 3;

/// A directory, and what is done to it behind the server's back.
#[derive(Debug, Arbitrary)]
pub struct Written {
    /// What is made right again in the end. First, for where an input is too short the fields
    /// that come last are zeros: then nothing would ever be repaired.
    pub repairs: Repairs,
    /// What is done to the files.
    pub edits: Vec<Edit>,
    /// The log, if there is one.
    pub log: Option<Log>,
    /// The filters.
    pub filters: Vec<Filter>,
}

impl Written {
    /// The files, edited and repaired.
    ///
    /// # Panics
    ///
    /// If they cannot be written, or the repairs do not take them for good as they are.
    pub fn files(&self) -> Files {
        // An input does the same whenever it is tried.
        fuzzing::restart_salts();
        let disk = SimulatedDisk::default();
        self.write(&disk).expect("a disk without faults");
        let mut files = files::on(&disk);
        // Otherwise `docs/format.md` says something else than the code does, or the repairs
        // something else than both: then they would keep the fuzzer from what it is to reach.
        let mut repaired = files.clone();
        Repairs::ALL.apply(&mut repaired);
        for (name, bytes) in &files {
            let is_good = repaired.get(name) == Some(bytes);
            assert!(is_good, "the repairs change {name} as it was written");
        }
        edit::apply(&self.edits, &mut files);
        self.repairs.apply(&mut files);
        files
    }

    fn write(&self, disk: &SimulatedDisk) -> Result<(), StoreError> {
        let directory = files::open(disk)?;
        // Filters say which of its segments they need, so it is there before they are.
        if let Some(log) = &self.log {
            log.write(&directory)?;
        }
        for filter in self.filters.iter().take(MOST_FILTERS) {
            filter.store(&directory)?;
        }
        Ok(())
    }
}
