//! Directories as the server's own writers leave them. Edits begin with these.

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

/// A directory, and the changes that are made to it without the server.
#[derive(Debug, Arbitrary)]
pub struct Written {
    /// The parts that are repaired after the edits. This field is the first: an input that is too
    /// short has zeros in its last fields, and then nothing would ever be repaired.
    pub repairs: Repairs,
    /// The edits of the files.
    pub edits: Vec<Edit>,
    /// The log, if there is one.
    pub log: Option<Log>,
    /// The filters.
    pub filters: Vec<Filter>,
}

impl Written {
    /// Returns the files, edited and repaired.
    ///
    /// # Panics
    ///
    /// If the files cannot be written, or a repair changes a file before the edits.
    pub fn files(&self) -> Files {
        // The same input always does the same.
        fuzzing::restart_salts();
        let disk = SimulatedDisk::default();
        self.write(&disk).expect("a disk without faults");
        let mut files = files::on(&disk);
        // A repair must not change the files of the writers. Otherwise `docs/format.md` contradicts
        // the code, or the repairs contradict both. Such repairs would keep the fuzzer away from
        // the code that it must reach.
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
        // Filters name the segments that they need, so the log is written before them.
        if let Some(log) = &self.log {
            log.write(&directory)?;
        }
        for filter in self.filters.iter().take(MOST_FILTERS) {
            filter.store(&directory)?;
        }
        Ok(())
    }
}
