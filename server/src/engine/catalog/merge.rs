//! Merges filters: `MergeFilters`. A filter takes the keys of another, as the union of their bits or
//! the sums of their counters.
//!
//! # On stable storage first
//!
//! Keys that calls add are in the log before the calls are acknowledged. The bits of another filter
//! are not in the log. If they reached memory first, a call could report a key among them as seen
//! or as added, and a crash could then lose the key.
//!
//! So a merge writes the union to the disk before any call can see it. It writes a snapshot of the
//! shards together with the new bits. This becomes the snapshot of the filter in one step of the
//! manifest. Only then does the merge add the bits to the shards in memory, one by one, on top of
//! the changes that calls have made meanwhile. After a crash, the filter has the whole union if the
//! crash came after the step, and nothing of it otherwise.
//!
//! # The same bits on the disk and in memory
//!
//! Memory must get the same bits as the disk. A crash loses a key that was added to memory alone.
//! Where keys are counted, one key could have one count in memory and two on the disk.
//!
//! The other filter goes on changing, but its stored copy does not. So the other filter is stored
//! first, and both the disk and memory get their bits from the stored copy. In layers, the merge
//! reads the copy once more before that, to find out whether it fits.
//!
//! # Versions
//!
//! A merge is one change with one version. It waits for calls with earlier versions, as a snapshot
//! does.
//!
//! The bits of the merge are not in the log, because no answer depends on them before they are on
//! stable storage. Its version is in the log. Otherwise there would be a gap if the merge fails,
//! and recovery would leave out counts after the gap.
//!
//! As always, the version of a shard shows exactly which changes it holds. It holds all changes up
//! to the version of the merge, because the merge has waited for them. So later changes are counted
//! once, on top of the sums. On the disk, a counter can be saturated when the counter in memory is
//! not, or can have been saturated for longer. The counter on the disk is never less.

use std::{iter, sync::Arc};

use tokio::runtime::Handle;

use super::names::given_name;
use crate::{
    engine::{
        Engine, background,
        call::barrier::WriteBarrier,
        commit::{FilterLog, WalReservation},
        error::EngineError,
        filter::{Addition, Filter, FilterStatus, Presence, SnapshotLock, Unfit, Whole},
    },
    store::{DataDirectory, FilterName, FilterReader, RecordHead, StoreError},
};

impl Engine {
    /// Adds to the target all keys that the source had when the call began, and returns the status
    /// of the target. The source is stored, and not changed. Both filters take calls meanwhile.
    ///
    /// Both filters must have the same spec and the same secret, so one must be a copy of the
    /// other, or both copies of the same filter. In counting filters the counts of both add up. So
    /// a repeated call adds the counts once more; in other filters a call is safe to repeat. Empty
    /// names are not `default` here.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`], [`EngineError::NoRoomToMerge`] or another [`EngineError`]: no
    /// keys were added. [`EngineError::NotDurable`]: none, a part or all of the keys were added,
    /// and a crash can change which. A repeated call adds all of them.
    pub async fn merge_filters(
        &self,
        source: &str,
        target: &str,
    ) -> Result<FilterStatus, EngineError> {
        self.data.check_recovered()?;
        let source = given_name("source", source)?;
        let target = given_name("target", target)?;
        if source == target {
            return Err(EngineError::MergedWithItself { name: source });
        }
        let source = self.filter_named(source)?;
        // Checked before anything is written, and again later: another filter can have the name by
        // then.
        let filter = self.filter_named(target.clone())?;
        filter.check_mergeable(&source)?;
        self.catalog.check_not_rebuilt(&filter)?;
        let (stored, source) = self.stored(source).await?;
        let (filter, lock) = self.filter_with_lock(&target).await?;
        filter.check_mergeable(&source)?;
        // Merged keys would not be added to the mirror that will take its place.
        self.catalog.check_not_rebuilt(&filter)?;
        let (catalog, runtime) = (self.catalog.clone(), Handle::current());
        let merge = move || {
            let (directory, barrier) = (&catalog.directory, &catalog.data.barrier);
            let reservation = catalog
                .data
                .journal
                .get()
                .map(|journal| journal.reserve(0, 1));
            let reservation = reservation
                .map(|reservation| runtime.block_on(reservation))
                .transpose()?;
            match filter.merge(&stored, directory, barrier, reservation, lock)? {
                true => Ok(catalog.status(&filter)),
                false => Err(EngineError::UnknownFilter { name: target }),
            }
        };
        background::run("merge", merge).await
    }

    /// Stores a filter, and returns a reader of its stored files. The reader stays valid if the
    /// filter is deleted or replaced.
    async fn stored(
        &self,
        filter: Arc<Filter>,
    ) -> Result<(FilterReader, Arc<Filter>), EngineError> {
        let lock = filter.snapshot_lock().await;
        let catalog = self.catalog.clone();
        let store = move || {
            let stored = filter.stored(&catalog.directory, &catalog.data.barrier, lock);
            match stored.map_err(not_begun)? {
                Some(stored) => Ok((stored, filter)),
                None => Err(EngineError::UnknownFilter {
                    name: filter.name(),
                }),
            }
        };
        background::run("merge", store).await
    }
}

/// Returns the error for a source that cannot be stored. Even if the snapshot is in doubt, the
/// merge has not begun.
fn not_begun(error: StoreError) -> EngineError {
    match error {
        StoreError::InDoubt(error) => EngineError::from(*error),
        error => error.into(),
    }
}

/// The reason why two filters in layers cannot be merged.
const OVERFULL: &str = "together they have more keys than the layers are made for that they have \
                        come to, and would be wrong more often than was asked for; fill a filter \
                        for more keys from a list";

/// The guard of bits that a merge is about to set. When it is dropped, only bits that are set count.
struct Expected<'a>(&'a dyn Whole);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.recount();
    }
}

impl Filter {
    /// Fails if another filter cannot be merged into this one.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotMergeable`], with the differences.
    pub fn check_mergeable(&self, source: &Self) -> Result<(), EngineError> {
        let (own, other) = (&self.spec, &source.spec);
        let differences = [
            ("capacity", own.capacity != other.capacity),
            (
                "false_positive_rate",
                own.false_positive_rate != other.false_positive_rate,
            ),
            ("bit_count", own.body.bit_count() != other.body.bit_count()),
            (
                "hash_count",
                own.body.hash_count() != other.body.hash_count(),
            ),
            ("layout", own.body.layout() != other.body.layout()),
            ("hash_function", own.hash_function != other.hash_function),
            ("kind", own.body.kind() != other.body.kind()),
            ("key_profile", own.key_profile != other.key_profile),
            (
                "number of shards",
                own.body.shape().shard_count() != other.body.shape().shard_count(),
            ),
            (
                "layers",
                own.body.chain() != other.body.chain() || own.body.layers() != other.body.layers(),
            ),
            // Keys of other programs' filters are hashed without a secret.
            (
                "secret",
                own.body.foreign_bits().is_none() && self.secret != source.secret,
            ),
        ];
        let names = differences.iter().filter(|(_, differs)| *differs);
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(self.not_mergeable(
            &source.name(),
            format!(
                "they differ in {}, so their bits mean other keys; a filter can be merged with its \
                 copies",
                names.join(", ")
            ),
        ))
    }

    fn not_mergeable(&self, source: &FilterName, reason: String) -> EngineError {
        EngineError::NotMergeable {
            source_name: source.clone(),
            target: self.name(),
            reason,
        }
    }

    /// Adds all keys of the stored copy of another filter, which [can be
    /// merged](Self::check_mergeable) into this one. Returns `false` if this one has been deleted.
    /// If there is a log, there must be room for a record without keys. Blocks until the keys are
    /// on stable storage. Locks one shard at a time (with its neighbours behind the same lock).
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no key has been added then. [`EngineError::NotDurable`] is an exception:
    /// all keys, some or none can have been added, now and after a crash.
    pub fn merge(
        &self,
        source: &FilterReader,
        directory: &DataDirectory,
        barrier: &WriteBarrier,
        reservation: Option<WalReservation<'_>>,
        mut lock: SnapshotLock,
    ) -> Result<bool, EngineError> {
        let Presence::Present { files, .. } = &mut *lock.presence else {
            return Ok(false);
        };
        let body = self.body.whole();
        let expected = body.expect_merge(self, source);
        expected.map_err(|why| self.unfit(source, why))?;
        let _expected = Expected(body);
        let stored = *self.last_store.lock();
        // In the same order as `begin_snapshot`: the segment first, then the version.
        let segment = self.log.as_ref().map_or(0, FilterLog::segment);
        let version = self.versions.next_sealed();
        // The record is appended before any wait: no later version is durable without it.
        if let (Some(log), Some(mut reservation)) = (&self.log, reservation) {
            let head = RecordHead {
                kind: body.merge_kind(),
                ..self.record_head(None, version)
            };
            log.append(&mut reservation, &head, 0, iter::empty());
        }
        barrier.wait_for_writes();
        let begin = (version, segment);
        let mut addition = Addition::new(self, source, version);
        self.write_snapshot(directory, files, begin, stored, Some(&mut addition))?;
        let taken = addition.add_to_memory();
        taken.map_err(|error| StoreError::InDoubt(error.into()))?;
        Ok(true)
    }

    /// Returns the error of a merge whose bits do not fit.
    fn unfit(&self, source: &FilterReader, why: Unfit) -> EngineError {
        let name = &source.header().name;
        match why {
            Unfit::Full(why) => EngineError::NoRoomToMerge {
                source_name: name.clone(),
                target: self.name(),
                why,
            },
            Unfit::Overfull => self.not_mergeable(name, OVERFULL.to_owned()),
            Unfit::Unread(error) => error.into(),
        }
    }
}
