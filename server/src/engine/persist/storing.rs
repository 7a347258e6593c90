//! Stores filters: on request, periodically, and at the end.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    runtime::Handle,
    sync::Mutex,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    engine::{
        Engine, background,
        call::filter_name,
        catalog::Catalog,
        commit::Journal,
        error::EngineError,
        filter::{Filter, StoreReport},
    },
    planted::Bug,
    store::{FilterId, FilterName},
};

/// The interval between two checks of the length of the log, while no store runs.
const LOOK_AT_LOG: Duration = Duration::from_secs(1);

/// The number of filters that are stored concurrently.
const STORED_TOGETHER: usize = 16;

/// The most bytes of a snapshot that is written concurrently with others.
const SMALL_BYTES: u64 = 1 << 20;

/// The fewest segments of a long log: 1 GiB at the default segment size.
const LONG_LOG: u64 = 16;

/// The result of one store of a filter that nobody asked for.
#[derive(Debug)]
pub struct StoreOutcome {
    /// The filter.
    pub name: FilterName,
    /// The snapshot, or the reason why there is none. The snapshot before it then still exists.
    pub result: Result<StoreReport, EngineError>,
}

impl Engine {
    /// Writes a snapshot of one filter, or of every filter if `filter` is empty, and waits until
    /// the snapshots are on stable storage.
    ///
    /// # Errors
    ///
    /// [`EngineError`]: the first error, if several filters could not be stored. All other filters
    /// have been stored.
    pub async fn store(&self, filter: &str) -> Result<Vec<StoreReport>, EngineError> {
        self.data.check_recovered()?;
        if !filter.is_empty() {
            let name = filter_name("filter", filter)?;
            // While this call waited for the filter, it may have been deleted or replaced.
            let report = loop {
                let filter = self.filter_named(name.clone())?;
                if let Some(report) = self.store_filter(filter).await? {
                    break report;
                }
            };
            self.shorten_log().await;
            return Ok(vec![report]);
        }
        let (mut reports, mut failed) = (Vec::new(), None);
        let filters = self.data.registry.list(None, usize::MAX);
        for (_, stored) in self.store_each(filters).await {
            match stored {
                Ok(report) => reports.extend(report),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        self.shorten_log().await;
        failed.map_or(Ok(reports), Err)
    }

    /// Stores every filter that has changed since it was last stored, or whose keys have aged. If
    /// one filter fails, the others are still stored.
    pub async fn store_changed(&self) -> Vec<StoreOutcome> {
        let mut filters = self.data.registry.list(None, usize::MAX);
        filters.retain(|filter| filter.is_due());
        let stored = self.store_each(filters).await.into_iter();
        let outcomes = stored.filter_map(|(name, stored)| {
            let result = stored.transpose()?;
            Some(StoreOutcome { name, result })
        });
        let outcomes = outcomes.collect();
        self.shorten_log().await;
        outcomes
    }

    /// Stores filters, and returns the results in their order. Small snapshots are written
    /// concurrently, because they mostly wait for fsync; large ones one after the other.
    async fn store_each(
        &self,
        filters: Vec<Arc<Filter>>,
    ) -> Vec<(FilterName, Result<Option<StoreReport>, EngineError>)> {
        let large = &Mutex::new(());
        let stores = filters.into_iter().map(|filter| async move {
            let _alone = match filter.has_little_to_store(SMALL_BYTES) {
                true => None,
                false => Some(large.lock().await),
            };
            (filter.name(), self.store_filter(filter).await)
        });
        stream::iter(stores)
            .buffered(STORED_TOGETHER)
            .collect()
            .await
    }

    /// Sets the start of the log to the segment that is being written, for each filter whose
    /// snapshot contains all its changes. Otherwise a filter without changes would keep the whole
    /// log of the others.
    async fn shorten_log(&self) {
        let shortened = self.blocking(|catalog| {
            let Some(journal) = catalog.data.journal.get() else {
                return Ok(());
            };
            // Not while a rebuild hands requests over: it appends them to the log before it
            // remembers them, and this would miss them.
            let _shortening = catalog.shortening.lock();
            // Read before the filters are checked: if a filter has no changes since its snapshot,
            // all its later changes are in this segment or a later one.
            let segment = journal.segment();
            catalog.repeat_requests(journal, segment)?;
            let is_stored = |filter: &Arc<Filter>| !filter.has_changed();
            let filters = catalog.data.registry.list(None, usize::MAX);
            let stored = filters.iter().filter(|&filter| is_stored(filter));
            let stored: BTreeSet<FilterId> = stored.map(|filter| filter.id()).collect();
            let is_stored = |_: &FilterName, id| stored.contains(&id);
            let requests_from = if catalog.data.requests.is_on() {
                segment
            } else {
                0
            };
            Ok(catalog
                .directory
                .begin_log(segment, is_stored, requests_from)?)
        });
        // A failure costs only room on the disk.
        if let Err(error) = shortened.await {
            tracing::warn!(%error, "the log keeps what is no longer needed");
        }
    }

    /// Stores the filters that have changed, whenever `interval` has passed or the log has become
    /// long, and calls `report` with the results. Never returns. If the future is dropped, a
    /// snapshot in progress is still finished.
    pub async fn store_periodically(&self, interval: Duration, report: impl Fn(Vec<StoreOutcome>)) {
        loop {
            // The interval begins at the end of the last store, so a store that takes longer than
            // the interval is not followed by another at once.
            let until = Instant::now() + interval;
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.log_is_long() => {}
            }
            report(self.store_changed().await);
        }
    }

    /// Waits until the log takes more room than the filters, and so much that a snapshot is worth
    /// its cost. Recovery would take longer to read the log than the snapshots. The disk might also
    /// have no room for the records until the next snapshot.
    async fn log_is_long(&self) {
        loop {
            // Not at once: the last store may have failed just now.
            sleep(LOOK_AT_LOG).await;
            let catalog = &self.catalog;
            let (Some(journal), Some(first)) =
                (catalog.data.journal.get(), catalog.directory.log_from())
            else {
                continue;
            };
            let segments = journal.segment().saturating_sub(first);
            let log_bytes = segments.saturating_mul(catalog.segment_bytes);
            let long_bytes = catalog.segment_bytes * LONG_LOG;
            let long_bytes = long_bytes.max(catalog.budget.used_bytes());
            // The log always keeps the remembered requests: they are appended again whenever it is
            // shortened.
            let kept_bytes = catalog.data.requests.limits().log_bytes();
            if log_bytes > long_bytes.saturating_add(kept_bytes) {
                return;
            }
        }
    }

    /// Stores one filter; `None` if it has been deleted meanwhile.
    async fn store_filter(&self, filter: Arc<Filter>) -> Result<Option<StoreReport>, EngineError> {
        let lock = filter.snapshot_lock().await;
        let catalog = self.catalog.clone();
        let store = move || Ok(filter.store(&catalog.directory, &catalog.data.barrier, lock)?);
        background::run("store", store).await
    }
}

impl Catalog {
    /// Appends again to the log those remembered requests that can be in a segment before
    /// `segment`, because these segments will be removed. Blocks.
    fn repeat_requests(&self, journal: &Journal, segment: u64) -> Result<(), EngineError> {
        let before = self.data.requests.before(segment);
        if before.is_empty() || Bug::RequestCutOff.is_planted() {
            return Ok(());
        }
        for remembered in &before {
            Handle::current().block_on(journal.repeat(remembered))?;
        }
        let flushed = journal.flush();
        flushed.map_err(|error| EngineError::StorageFailed(error.into()))?;
        self.data.requests.written_again(segment);
        Ok(())
    }
}
