//! A disk in memory that behaves as badly as a real one is allowed to.
//!
//! It stores separately what the page cache has and what has reached stable storage, for the bytes
//! of files and for their names. A [power cut](SimulatedDisk::cut) keeps what was synced, and a
//! random part of everything else: single sectors of a write, a name without its file's bytes, a
//! later change without an earlier one. Calls can be made to [fail](Fault).

#![allow(
    clippy::indexing_slicing,
    reason = "no server has it: it is for tests and for fuzzing, where a panic shows a mistake"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io, mem,
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use super::{Disk, DiskFile};
use crate::{planted::Bug, store::names::MANIFEST_FILE};

/// The unit that reaches stable storage whole or not at all, in bytes.
const SECTOR_BYTES: usize = 512;

/// Parts of the names of files that planted bugs concern.
const SEGMENT: &str = ".log";
const SNAPSHOT: &str = ".snapshot.";

/// A disk, and all handles to it.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

/// A fault of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A call fails with this kind of error, and has done nothing. A sync that fails makes the
    /// kernel forget that anything was to be synced.
    Error(io::ErrorKind),
    /// A write or a read does only a part of what it was asked for.
    Short,
    /// Nothing works any more.
    PowerCut,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// The changes to the names since they were synced.
    name_changes: Vec<NameChange>,
    /// The number of calls so far.
    calls: u64,
    /// The faults, each with the first call that it affects and the call after the last one.
    faults: Vec<(u64, u64, Fault)>,
    /// The bytes that all files together may have.
    room_bytes: Option<u64>,
    /// The time that a sync of a file takes.
    sync_time: Duration,
    has_power: Option<bool>,
}

#[derive(Debug, Default, Clone)]
struct File {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Resize(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Set(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

impl SimulatedDisk {
    /// Returns the number of calls so far that could have had a fault.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Makes `count` calls go wrong, from call `from` on (as [`Self::calls`] counts them).
    pub fn fail(&self, from: u64, count: u64, fault: Fault) {
        let end = from.saturating_add(count);
        self.0.lock().faults.push((from, end, fault));
    }

    /// Makes all calls work again, except those after a power cut.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Limits the bytes of all files together; `None` for no limit.
    pub fn limit(&self, bytes: Option<u64>) {
        self.0.lock().room_bytes = bytes;
    }

    /// Makes each sync of a file take `sync_time`.
    pub fn slow_down(&self, sync_time: Duration) {
        self.0.lock().sync_time = sync_time;
    }

    /// Returns the disk as it is found after the power was cut.
    pub fn cut(&self, chance: &mut Rng) -> Self {
        let state = self.0.lock();
        let files = state.files.iter().map(|file| file.cut(chance)).collect();
        let mut names = state.durable_names.clone();
        // A journal keeps the changes in their order; without one any of them may be there.
        let in_order = chance.bool();
        let kept = chance.usize(..=state.name_changes.len());
        for (index, change) in state.name_changes.iter().enumerate() {
            if if in_order {
                index < kept
            } else {
                chance.bool()
            } {
                change.apply(&mut names);
            }
        }
        Self::of(files, names)
    }

    /// Returns the disk as it is found after the process was killed: with all data that the page
    /// cache has.
    pub fn kill(&self) -> Self {
        let state = self.0.lock();
        // Data that was not on stable storage still is not. Data that a failed sync made the kernel
        // forget stays forgotten for another process.
        let named = state.named();
        let file = |(index, file): (usize, &File)| match named.contains(&index) {
            true => file.clone(),
            // Nobody has it open any more.
            false => File::default(),
        };
        let files = state.files.iter().enumerate().map(file).collect();
        let killed = Self::of(files, state.names.clone());
        let mut found = killed.0.lock();
        found.durable_names = state.durable_names.clone();
        found.name_changes = state.name_changes.clone();
        drop(found);
        killed
    }

    /// Returns the contents of a file in the page cache.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.0.lock();
        let &file = state.names.get(name)?;
        Some(state.files[file].bytes.clone())
    }

    /// Puts a file on stable storage.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.0.lock();
        let file = state.files.len();
        state.files.push(File {
            bytes: bytes.to_vec(),
            durable: bytes.to_vec(),
            changes: Vec::new(),
        });
        state.names.insert(name.to_owned(), file);
        state.durable_names.insert(name.to_owned(), file);
    }

    fn of(files: Vec<File>, names: BTreeMap<String, usize>) -> Self {
        Self(Arc::new(Mutex::new(State {
            files,
            durable_names: names.clone(),
            names,
            ..State::default()
        })))
    }
}

impl State {
    /// Counts a call, and applies the fault that is due: returns an error, or `true` if the call is
    /// to do only a part.
    fn call(&mut self) -> io::Result<bool> {
        let this = self.calls;
        self.calls += 1;
        let due = |&&(from, end, _): &&(u64, u64, Fault)| (from..end).contains(&this);
        match self.faults.iter().find(due) {
            _ if self.has_power == Some(false) => {}
            Some((_, _, Fault::PowerCut)) => self.has_power = Some(false),
            Some((_, _, Fault::Error(kind))) => return Err((*kind).into()),
            Some((_, _, Fault::Short)) => return Ok(true),
            None => return Ok(false),
        }
        Err(io::Error::other("the power is off"))
    }

    /// Returns whether a file has, in the page cache, a name with this part.
    fn is_named(&self, file: usize, part: &str) -> bool {
        let mut names = self.names.iter();
        names.any(|(name, &named)| named == file && name.contains(part))
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        let file = self.names.get(name).copied();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the files that have a name, or can have one after a power cut.
    fn named(&self) -> BTreeSet<usize> {
        let changed = self.name_changes.iter().filter_map(|change| match change {
            NameChange::Set(_, file) | NameChange::Rename(_, _, file) => Some(file),
            NameChange::Remove(_) => None,
        });
        let names = self.names.values().chain(self.durable_names.values());
        names.chain(changed).copied().collect()
    }

    /// Fails if there is no room for a file of `bytes` bytes.
    fn take_room(&self, file: usize, bytes: usize) -> io::Result<()> {
        let Some(room) = self.room_bytes else {
            return Ok(());
        };
        let named = self.names.values().filter(|&&other| other != file);
        let others: usize = named.map(|&other| self.files[other].bytes.len()).sum();
        let grows = bytes > self.files[file].bytes.len();
        if grows && (others + bytes) as u64 > room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl File {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.bytes);
        self.changes.push(change);
    }

    /// Puts the first changes on stable storage.
    fn sync(&mut self, count: usize) {
        for change in self.changes.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// Returns the file as it is found after the power was cut.
    fn cut(&self, chance: &mut Rng) -> Self {
        let mut bytes = self.durable.clone();
        let all_or_none = chance.u64(..4);
        for change in &self.changes {
            if all_or_none == 0 || (all_or_none > 1 && chance.u64(..3) == 0) {
                continue;
            }
            match change {
                Change::Write { at, bytes: new } if all_or_none != 1 && chance.bool() => {
                    let (mut at, mut new) = (*at, &**new);
                    while !new.is_empty() {
                        let sector = (SECTOR_BYTES - at % SECTOR_BYTES).min(new.len());
                        let (now, later) = new.split_at(sector);
                        if chance.bool() {
                            let bytes_now = now.to_vec();
                            let change = Change::Write {
                                at,
                                bytes: bytes_now,
                            };
                            change.apply(&mut bytes);
                        }
                        at += sector;
                        new = later;
                    }
                }
                change => change.apply(&mut bytes),
            }
        }
        Self {
            durable: bytes.clone(),
            bytes,
            changes: Vec::new(),
        }
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*at..end].copy_from_slice(bytes);
            }
            Self::Resize(bytes) => to.resize(*bytes, 0),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Set(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

/// Returns whether a planted bug leaves a change of a name unsynced for good.
fn is_left_out(change: &NameChange) -> bool {
    match change {
        NameChange::Set(name, _) => {
            Bug::SnapshotNameNotSynced.is_planted() && name.contains(SNAPSHOT)
        }
        NameChange::Rename(_, name, _) => {
            Bug::ManifestNameNotSynced.is_planted() && name == MANIFEST_FILE
                || Bug::SegmentNameNotSynced.is_planted() && name.ends_with(SEGMENT)
        }
        NameChange::Remove(_) => false,
    }
}

impl SimulatedDisk {
    fn change_name(&self, change: NameChange) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        if let NameChange::Rename(name, ..) | NameChange::Remove(name) = &change {
            state.find(name)?;
        }
        change.apply(&mut state.names);
        state.name_changes.push(change);
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self) -> &Path {
        Path::new("simulated")
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.0.lock();
        state.call()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.call()?;
        let file = state.find(name)?;
        let disk = self.clone();
        Ok(Box::new(SimulatedFile { disk, file }))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.call()?;
        if state.find(name).is_ok() {
            let change = NameChange::Remove(name.to_owned());
            change.apply(&mut state.names);
            state.name_changes.push(change);
        }
        state.files.push(File::default());
        let file = state.files.len() - 1;
        let change = NameChange::Set(name.to_owned(), file);
        change.apply(&mut state.names);
        state.name_changes.push(change);
        let disk = self.clone();
        Ok(Box::new(SimulatedFile { disk, file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if Bug::ManifestInPlace.is_planted()
            && to == MANIFEST_FILE
            && let Some(bytes) = self.contents(from)
            && let Ok(file) = self.open(to)
        {
            file.reserve(bytes.len() as u64)?;
            file.write_at(&bytes, 0)?;
            return self.remove(from);
        }
        let file = self.0.lock().find(from);
        // If there is no such file, the call fails anyway.
        let file = file.unwrap_or(usize::MAX);
        self.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_name(NameChange::Remove(name.to_owned()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let changes = mem::take(&mut state.name_changes);
        for change in changes {
            match is_left_out(&change) {
                true => state.name_changes.push(change),
                false => change.apply(&mut state.durable_names),
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
}

impl DiskFile for SimulatedFile {
    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.disk.0.lock();
        state.call()?;
        Ok(state.files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        let is_short = state.call()?;
        let bytes = &state.files[self.file].bytes;
        let from = bytes.get(at as usize..).unwrap_or_default();
        let wanted = if is_short {
            to.len().div_ceil(2)
        } else {
            to.len()
        };
        let count = wanted.min(from.len());
        to[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<usize> {
        let mut state = self.disk.0.lock();
        let is_short = state.call()?;
        let count = if is_short {
            from.len().div_ceil(2)
        } else {
            from.len()
        };
        let at = at as usize;
        state.take_room(self.file, at + count)?;
        let bytes = from[..count].to_vec();
        state.files[self.file].change(Change::Write { at, bytes });
        match Bug::ShortWriteTaken.is_planted() {
            true => Ok(from.len()),
            false => Ok(count),
        }
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.call()?;
        state.take_room(self.file, bytes as usize)?;
        state.files[self.file].change(Change::Resize(bytes as usize));
        Ok(())
    }

    fn cut_off(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.call()?;
        let file = &mut state.files[self.file];
        if bytes < file.bytes.len() as u64 {
            file.change(Change::Resize(bytes as usize));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let is_segment = state.is_named(self.file, SEGMENT);
        if Bug::LogNotSynced.is_planted() && is_segment
            || Bug::SnapshotNotSynced.is_planted() && state.is_named(self.file, SNAPSHOT)
        {
            return Ok(());
        }
        let done = state.call();
        // Data that is written during this sync is for the next one.
        let count = state.files[self.file].changes.len();
        if !state.sync_time.is_zero() {
            let sync_time = state.sync_time;
            MutexGuard::unlocked(&mut state, || thread::sleep(sync_time));
        }
        let file = &mut state.files[self.file];
        match done {
            Ok(_) => file.sync(count.min(file.changes.len())),
            // The kernel treats the pages as clean from now on.
            Err(_) => file.changes.clear(),
        }
        match done {
            Err(_) if Bug::FailedSyncBelieved.is_planted() && is_segment => Ok(()),
            done => done.map(|_| ()),
        }
    }

    fn forget(&self) {}

    fn bypass_cache(&self) {}
}

#[cfg(test)]
mod tests;
