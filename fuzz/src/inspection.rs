//! Runs `seenset-server verify` and `--salvage` on a directory: inspects all files, saves the
//! readable data, and leaves a directory on which a server starts.

use std::sync::Arc;

use seenset_server::store::{Damage, Inspection, fuzzing::SimulatedDisk};

use crate::{
    files::{self, Files},
    start::{self, Start},
};

/// Inspects these files and salvages the readable data.
///
/// # Panics
///
/// If the inspection contradicts a start, or no server starts on the salvaged directory.
pub fn inspect(files: &Files) {
    let disk = files::disk(files);
    let before = files::on(&disk);
    let inspection = match Inspection::on(Arc::new(disk.clone())) {
        Ok(inspection) => inspection,
        Err(error) => return start::check(&error),
    };
    let is_untouched = files::on(&disk) == before;
    assert!(is_untouched, "looking changes nothing");
    let told = inspection.damage().flat_map(|damage| &damage.first);
    told.for_each(start::check);
    match read(&files::disk(&before)) {
        Some(start) if start.is_all => assert!(is_whole(&inspection), "a server starts on it"),
        Some(_) => {}
        None => assert!(!is_whole(&inspection), "no server starts on it"),
    }
    let salvaged = inspection.salvage(start::LOG_BYTES);
    salvaged.expect("a disk without faults");
    let again = Inspection::on(Arc::new(disk.clone())).expect("what was saved");
    let wrong: Vec<&Damage> = again.damage().filter(|damage| !damage.is_none()).collect();
    assert!(wrong.is_empty(), "what was saved is whole: {wrong:#?}");
    assert!(start::start(&files::on(&disk)), "a server starts on it");
}

fn is_whole(inspection: &Inspection) -> bool {
    inspection.damage().all(Damage::is_none)
}

fn read(disk: &SimulatedDisk) -> Option<Start> {
    let directory = files::open(disk).ok()?;
    start::read(&directory).ok()
}
