//! Restores one filter from its snapshots.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    engine::{
        budget::MemoryBudget,
        clock::Clock,
        commit::versions::Versions,
        error::{EngineError, Full},
        filter::{Filter, LastStore, Presence},
    },
    store::{FilterReader, SnapshotHeader},
};

impl Filter {
    /// Restores a stored filter. Calls `advance` with the number of bytes that were read. An error
    /// that `advance` returns ends the restore.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], but [`EngineError::RestoreOverBudget`] if the filter does not fit the
    /// budget; [`EngineError::Snapshot`] or [`EngineError::StorageFailed`] if a shard is damaged or
    /// cannot be read; the error that `advance` returned.
    pub fn restore(
        stored: FilterReader,
        budget: &Arc<MemoryBudget>,
        clock: &Clock,
        mut advance: impl FnMut(u64) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let SnapshotHeader {
            filter,
            number: _,
            name,
            spec,
            secret,
            version,
            create_time,
            store_time,
        } = stored.header().clone();
        let path = stored.path().to_owned();
        let name_before = stored.name_before().cloned();
        let restored = Self::new(filter, name, spec, secret, create_time, budget, clock);
        let mut filter = restored.map_err(|error| match error {
            EngineError::OverBudget(over) => {
                let path = path.clone();
                EngineError::RestoreOverBudget { path, over }
            }
            other => other,
        })?;
        filter.set_name_before(name_before);
        let body = filter.body.whole_mut();
        body.note_stored(store_time);
        if let Some(last) = stored.shards().max() {
            body.reserve(last).map_err(|why| match why {
                Full::OverBudget(over) => EngineError::RestoreOverBudget { path, over },
                why => EngineError::NoRoomToRestore {
                    name: stored.header().name.clone(),
                    why,
                },
            })?;
        }
        body.prepare_pages(&mut stored.states());
        for index in stored.shards() {
            // Only shards of the spec, which have memory now.
            let Some(shard) = body.get_mut(index) else {
                continue;
            };
            shard.state = stored.read_shard(index, &mut shard.words, &mut Err)?;
            advance(size_of_val(&*shard.words) as u64)?;
            if let Some(shard) = body.read(index) {
                body.note_filled(&shard);
            }
        }
        for (index, state) in stored.emptied() {
            if let Some(shard) = body.get_mut(index) {
                shard.state = state;
            }
        }
        body.recount();
        let files = stored.files();
        // Shards that were copied late hold changes of calls that came after the version.
        let shards = body.numbers();
        let latest = shards
            .filter_map(|shard| Some(body.read(shard)?.state.version))
            .max();
        let latest = version.max(latest.unwrap_or_default());
        filter.versions = Versions::behind(latest);
        *filter.last_store.get_mut() = Some(LastStore {
            version,
            time: store_time,
        });
        filter.locks = Arc::new(Mutex::new(Presence::Present { files, last: None }));
        Ok(filter)
    }
}
