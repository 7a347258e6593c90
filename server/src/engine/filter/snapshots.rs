//! The snapshots of one filter: written while it is in use, removed with it.
//!
//! Only the holder of a filter's [`SnapshotLock`] can write or remove its snapshot. Waiting for it
//! blocks no thread, so callers that all want the same filter stored do not delay others. Callers
//! that asked before a snapshot was begun share it, because it holds everything that was
//! acknowledged to them.

use std::time::{Instant, SystemTime};

use super::{
    Addition, Filter,
    snapshot_lock::{Presence, SnapshotLock, StoreReport},
};
use crate::{
    engine::{call::barrier::WriteBarrier, commit::FilterLog},
    planted::Bug,
    store::{
        DataDirectory, FilterName, FilterReader, ShardState, SnapshotFiles, SnapshotHeader,
        StoreError,
    },
};

/// The last snapshot that reached stable storage.
#[derive(Debug, Clone, Copy)]
pub struct LastStore {
    /// The version that it holds.
    pub version: u64,
    /// The time when it was begun.
    pub time: SystemTime,
}

impl Filter {
    /// Returns whether something has changed since the last snapshot, or the place of the filter is
    /// in doubt.
    pub fn has_changed(&self) -> bool {
        let stored = self.last_store.lock().map(|last| last.version);
        stored != Some(self.versions.latest()) || self.is_place_in_doubt()
    }

    /// Returns whether another snapshot is due: the filter [has changed](Self::has_changed), or its
    /// keys have aged since the last one.
    pub fn is_due(&self) -> bool {
        let stored = *self.last_store.lock();
        self.has_changed()
            || stored.is_some_and(|stored| self.body.whole().has_gone_on_since(stored.time))
    }

    /// Returns whether a snapshot would write at most `bytes` bytes.
    pub fn has_little_to_store(&self, bytes: u64) -> bool {
        let stored = self.stored_version();
        let shard_map = self.shard_map();
        let mut left = bytes;
        self.body.whole().numbers().all(|shard| {
            let state = self.body.whole().read(shard).map(|shard| shard.state);
            if state.is_some_and(|state| state.version > stored) {
                let shard_bytes = shard_map.shape(shard).shard_bytes();
                let (rest, is_over) = left.overflowing_sub(shard_bytes);
                left = rest;
                return !is_over;
            }
            true
        })
    }

    /// Returns whether the last snapshot holds all changes of a version.
    pub fn is_stored(&self, version: u64) -> bool {
        let last = *self.last_store.lock();
        let left_out = u64::from(Bug::ReplayLeavesOut.is_planted());
        last.is_some_and(|last| version <= last.version + left_out)
    }

    /// Returns the version up to which the last snapshot holds all changes; 0 if there is none.
    pub fn stored_version(&self) -> u64 {
        self.last_store.lock().map_or(0, |last| last.version)
    }

    /// Waits until no other caller writes or removes the snapshot.
    pub async fn snapshot_lock(&self) -> SnapshotLock {
        let asked = Instant::now();
        SnapshotLock {
            presence: self.locks.clone().lock_owned().await,
            asked,
        }
    }

    /// Writes a snapshot of what has changed, and returns its report; `None` if the filter has been
    /// deleted. Blocks until the snapshot is on stable storage.
    ///
    /// All calls that change the filter pass the barrier; this waits for those in progress. Locks
    /// one shard at a time (with its neighbours behind the same lock), only while it copies the
    /// shard, and only against writers.
    ///
    /// Writes no snapshot if another was begun after the lock was requested: that one holds
    /// everything that was acknowledged before the request.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the previous snapshot still exists then.
    pub fn store(
        &self,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        mut lock: SnapshotLock,
    ) -> Result<Option<StoreReport>, StoreError> {
        self.store_in(&mut lock, directory, barrier)
    }

    /// Stores the filter, and returns a reader of what is stored; `None` if the filter has been
    /// deleted. The reader has everything that was acknowledged before the lock was requested. It
    /// has nothing that is stored later, whatever happens to the filter and its files. Blocks as
    /// [`Self::store`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::store`].
    pub fn stored(
        &self,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        mut lock: SnapshotLock,
    ) -> Result<Option<FilterReader>, StoreError> {
        match self.store_in(&mut lock, directory, barrier)? {
            // Other threads can rename the filter or remove its files only after the lock is
            // released. The files are open by then.
            Some(report) => directory.read_filter(&report.name),
            None => Ok(None),
        }
    }

    fn store_in(
        &self,
        lock: &mut SnapshotLock,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
    ) -> Result<Option<StoreReport>, StoreError> {
        let (files, last) = match &mut *lock.presence {
            Presence::Deleted => return Ok(None),
            Presence::Present {
                last: Some((begun, report)),
                ..
            } if *begun >= lock.asked => return Ok(Some(report.clone())),
            Presence::Present { files, last } => (files, last),
        };
        let begun = Instant::now();
        let stored = *self.last_store.lock();
        let (version, log_from) = self.begin_snapshot(barrier);
        let holds_all = |stored: LastStore| {
            stored.version == version
                && !self.is_place_in_doubt()
                && !self.body.whole().has_gone_on_since(stored.time)
        };
        let written_bytes = match stored {
            Some(stored) if holds_all(stored) => 0,
            _ => self.write_snapshot(directory, files, (version, log_from), stored, None)?,
        };
        let report = StoreReport {
            name: self.name(),
            version,
            written_bytes,
            duration: begun.elapsed(),
        };
        *last = Some((begun, report.clone()));
        Ok(Some(report))
    }

    /// Returns the version that a snapshot begun now holds, and the first log segment that can
    /// contain later changes. Blocks until the writes in progress have ended.
    pub fn begin_snapshot(&self, barrier: &WriteBarrier) -> (u64, u64) {
        // The segment is read before the version: a change with a later version is appended later,
        // so it is in this segment or a later one. A change in an earlier segment has set its bits,
        // so the snapshot contains it.
        let segment = self.log.as_ref().map_or(0, FilterLog::segment);
        let version = self.versions.seal();
        if !Bug::SnapshotAmidCalls.is_planted() {
            barrier.wait_for_writes();
        }
        (version, segment)
    }

    /// Returns the header of the snapshot whose file has the given number.
    pub fn header(&self, number: u64, name: FilterName, stored: LastStore) -> SnapshotHeader {
        SnapshotHeader {
            filter: self.id,
            number,
            name,
            spec: self.spec.clone(),
            secret: self.secret,
            version: stored.version,
            create_time: self.create_time,
            store_time: stored.time,
        }
    }

    /// Writes the shards that have changed since the last snapshot, `stored`, if there is one.
    /// Returns the length of the file. The snapshot holds all changes up to `version`; later
    /// changes are in the log, from the segment `log_from` on. An `addition` goes into the shards
    /// in the file, but not into memory.
    pub fn write_snapshot(
        &self,
        directory: &DataDirectory,
        files: &mut SnapshotFiles,
        (version, log_from): (u64, u64),
        stored: Option<LastStore>,
        mut addition: Option<&mut Addition<'_>>,
    ) -> Result<u64, StoreError> {
        let (name, time) = (self.name(), self.time());
        let header = self.header(directory.new_number(), name, LastStore { version, time });
        let shard_map = self.shard_map();
        let shard_bytes = |shard| shard_map.shape(shard).shard_bytes();
        let (mut changed, mut with_keys, mut bytes) = (Vec::new(), 0, 0);
        for shard in self.body.whole().numbers() {
            let Some(state) = self.body.whole().read(shard).map(|shard| shard.state) else {
                continue;
            };
            let gets_more = addition
                .as_ref()
                .is_some_and(|addition| addition.has(shard));
            if state.bits_set > 0 || gets_more {
                with_keys += 1;
                bytes += shard_bytes(shard);
            }
            // A shard that is empty again must be written, to replace its previous copy.
            let has_content = state.bits_set > 0 || state.version > 0;
            let has_changed = stored.is_none_or(|stored| state.version > stored.version);
            if gets_more || (has_content && has_changed) {
                changed.push(shard);
            }
        }
        let shards = files.next(changed, with_keys, bytes, shard_bytes);
        if Bug::DirtyMarkClearedTooEarly.is_planted() {
            *self.last_store.lock() = Some(LastStore { version, time });
        }
        let mut latest = version;
        let written = directory.write_snapshot(&header, &shards, |shard, words| {
            let mut state = {
                // The shard existed when the shards were listed, or it is in a file.
                let Some(shard) = self.body.whole().read(shard) else {
                    return Ok(ShardState::default());
                };
                words.copy_from_slice(&shard.words);
                latest = shard.state.version.max(latest);
                shard.state
            };
            state = self.body.whole().for_disk(state, words);
            match &mut addition {
                Some(addition) => addition.add_to_copy(shard, (state, words)),
                None => Ok(state),
            }
        })?;
        // Suppose that a crash leaves a key in the snapshot and not in the log. Then every call
        // would see the key, also a request that is retried because it got no answer.
        let log = self.log.as_ref();
        let log = log.filter(|_| !Bug::SnapshotAheadOfTheLog.is_planted());
        let logged = log.map_or(Ok(()), |log| log.flush(latest));
        logged.map_err(|error| directory.give_up_snapshot(&header, error))?;
        let changed = files.with(&written);
        directory.set_filter(&header.name, self.id, &changed, log_from, self.rebuilds)?;
        *files = changed;
        self.confirm_place();
        *self.last_store.lock() = Some(LastStore { version, time });
        Ok(written.bytes)
    }

    /// Removes the filter from the disk, and prevents that it is stored again. Returns `false` if
    /// it was deleted before.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the filter can then still be stored, unless that is
    /// [`StoreError::InDoubt`].
    pub fn delete(
        &self,
        directory: &DataDirectory,
        mut lock: SnapshotLock,
    ) -> Result<bool, StoreError> {
        if matches!(*lock.presence, Presence::Deleted) {
            return Ok(false);
        }
        // If the removal fails half-way, the filter lives on and must be stored again.
        *self.last_store.lock() = None;
        *lock.presence = Presence::default();
        let removed = directory.remove_filter(&self.name());
        if let Ok(()) | Err(StoreError::InDoubt(_)) = removed {
            *lock.presence = Presence::Deleted;
        }
        removed.map(|()| true)
    }
}
