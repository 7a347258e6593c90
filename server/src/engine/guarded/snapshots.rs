//! The snapshots of one filter: written while it is in use, read at the start, removed with it.
//!
//! One at a time may write or remove a filter's snapshot: whoever has its [`Turn`]. A turn is
//! waited for without a thread, so callers that all want the same filter stored hold up
//! nobody else; and those that came before a snapshot was begun share it, for it holds all
//! that they can have been told.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::GuardedFilter;
use crate::{
    engine::{EngineError, budget::MemoryBudget, gate::Gate},
    store::{DataDirectory, FilterName, SnapshotHeader, SnapshotReader, StoreError},
};

/// The last snapshot that reached stable storage.
#[derive(Debug, Clone, Copy)]
pub struct LastStore {
    /// The version that it holds.
    pub version: u64,
    /// When it was begun.
    pub time: SystemTime,
}

/// A snapshot that reached stable storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// The filter.
    pub name: FilterName,
    /// The version that the snapshot holds.
    pub version: u64,
    /// The length of its file.
    pub written_bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Gives out turns, one at a time.
pub(super) type Turns = Arc<Mutex<Presence>>;

/// What the one whose turn it is must know.
#[derive(Debug)]
pub(super) enum Presence {
    /// The filter is there; with the last snapshot of this process and when it was begun.
    Present(Option<(Instant, StoreReport)>),
    /// The filter is gone: its snapshot must not come back.
    Deleted,
}

impl Default for Presence {
    fn default() -> Self {
        Self::Present(None)
    }
}

/// The right to write or remove a filter's snapshot.
#[derive(Debug)]
pub struct Turn {
    presence: OwnedMutexGuard<Presence>,
    /// When the turn was asked for.
    asked: Instant,
}

impl GuardedFilter {
    /// The filter that a snapshot holds. Between two shards `stopped` may end it.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], but for [`EngineError::RestoreOverBudget`] if the filter does not fit
    /// the budget; [`EngineError::Snapshot`] or [`EngineError::StorageFailed`] if a shard is
    /// damaged or cannot be read; [`EngineError::Stopping`] if it was ended.
    pub fn restore(
        snapshot: SnapshotReader,
        budget: &Arc<MemoryBudget>,
        stopped: impl Fn() -> bool,
    ) -> Result<Self, EngineError> {
        let SnapshotHeader {
            name,
            spec,
            secret,
            version,
            create_time,
            store_time,
        } = snapshot.header().clone();
        let path = snapshot.path().to_owned();
        let mut filter =
            Self::new(name, spec, secret, create_time, budget).map_err(|error| match error {
                EngineError::OverBudget(over) => EngineError::RestoreOverBudget { path, over },
                other => other,
            })?;
        snapshot.read_shards(|index, state, words| {
            if stopped() {
                return Err(EngineError::Stopping);
            }
            // The shards of the spec, as many as `new` makes.
            let shard = filter.shards.get_mut(index);
            shard.words.copy_from_slice(words);
            shard.state = state;
            Ok(())
        })?;
        *filter.version.get_mut() = version;
        *filter.last_store.get_mut() = Some(LastStore {
            version,
            time: store_time,
        });
        Ok(filter)
    }

    /// Whether there is anything that the last snapshot does not hold.
    pub fn has_changed(&self) -> bool {
        let stored = self.last_store.lock().map(|last| last.version);
        stored != Some(self.version.load(Ordering::Acquire))
    }

    /// Waits until no other writes or removes the snapshot.
    pub async fn turn(&self) -> Turn {
        let asked = Instant::now();
        Turn {
            presence: self.turns.clone().lock_owned().await,
            asked,
        }
    }

    /// Writes a snapshot and tells what it holds; `None` if the filter has been deleted. All calls
    /// that change the filter pass the gate, which is closed for a moment at the start.
    /// Blocks until it is on stable storage. Locks one shard (and its neighbours behind the same
    /// lock) at a time, for the copy alone and against writers alone. Writes none if one was
    /// begun after the turn was asked for: that one holds everything acknowledged until then.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the snapshot before is then still there.
    pub fn store(
        &self,
        directory: &DataDirectory,
        gate: &Gate,
        mut turn: Turn,
    ) -> Result<Option<StoreReport>, StoreError> {
        match &*turn.presence {
            Presence::Deleted => return Ok(None),
            Presence::Present(Some((begun, report))) if *begun >= turn.asked => {
                return Ok(Some(report.clone()));
            }
            Presence::Present(_) => {}
        }
        let begun = Instant::now();
        let header = SnapshotHeader {
            name: self.name.clone(),
            spec: self.spec,
            secret: self.secret,
            // See the module's argument above.
            version: gate.between_calls(|| self.version.load(Ordering::Acquire)),
            create_time: self.create_time,
            store_time: SystemTime::now(),
        };
        let written = directory.write_snapshot(&header, |index, words| {
            // The shards of the spec, as many as `new` made.
            let shard = self.shards.read(index);
            if shard.state.bits_set > 0 {
                words.copy_from_slice(&shard.words);
            }
            shard.state
        })?;
        *self.last_store.lock() = Some(LastStore {
            version: header.version,
            time: header.store_time,
        });
        let report = StoreReport {
            name: header.name,
            version: header.version,
            written_bytes: written.bytes,
            duration: begun.elapsed(),
        };
        *turn.presence = Presence::Present(Some((begun, report.clone())));
        Ok(Some(report))
    }

    /// Removes the snapshot, and sees to it that none is written any more; `false` if that
    /// has been done before.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the filter can then still be stored.
    pub fn delete(&self, directory: &DataDirectory, mut turn: Turn) -> Result<bool, StoreError> {
        if matches!(*turn.presence, Presence::Deleted) {
            return Ok(false);
        }
        // Should the removal fail half-way, the filter lives on, and must be stored again.
        *self.last_store.lock() = None;
        *turn.presence = Presence::Present(None);
        directory.remove_snapshot(&self.name)?;
        *turn.presence = Presence::Deleted;
        Ok(true)
    }
}
