//! The files of a data directory, as names and bytes.

use std::{collections::BTreeMap, sync::Arc};

use seenset_server::store::{DataDirectory, Disk, StoreError, fuzzing::SimulatedDisk};

/// All files of a directory, by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Returns a directory on this disk, for the server's own code.
pub fn open(disk: &SimulatedDisk) -> Result<DataDirectory, StoreError> {
    DataDirectory::on(Arc::new(disk.clone()))
}

/// Returns a disk that holds these files. It omits files with a name that no file system has.
pub fn disk(files: &Files) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    for (name, bytes) in files {
        if !name.is_empty() && !name.contains(['/', '\0']) {
            disk.put(name, bytes);
        }
    }
    disk
}

/// Returns the files on a disk.
pub fn on(disk: &SimulatedDisk) -> Files {
    let names = disk.names().expect("a disk without faults");
    let file = |name: String| Some((disk.contents(&name)?, name));
    let files = names.into_iter().filter_map(file);
    files.map(|(bytes, name)| (name, bytes)).collect()
}
