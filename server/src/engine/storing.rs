//! When filters are stored: when asked to, from time to time, and at the end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::{MissedTickBehavior, interval_at};

use super::{Engine, EngineError, Inner, guarded::GuardedFilter};
use crate::store::{FilterName, StoreError};

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

/// What came of storing one filter without being asked.
#[derive(Debug)]
pub struct StoreOutcome {
    /// The filter.
    pub name: FilterName,
    /// The snapshot, or why there is none. The one before is then still there.
    pub result: Result<StoreReport, StoreError>,
}

impl Engine {
    /// Writes a snapshot of one filter, or of every filter if `filter` is empty, and returns
    /// when they are on stable storage.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; filters that come before the one it is about may have been stored.
    pub async fn store(&self, filter: &str) -> Result<Vec<StoreReport>, EngineError> {
        self.check_recovered()?;
        let filters = match filter {
            "" => self.inner.registry.list(None, usize::MAX),
            name => vec![self.filter(name)?],
        };
        self.blocking(move |inner| {
            let mut reports = Vec::new();
            for filter in filters {
                reports.extend(inner.store(&filter)?);
            }
            Ok(reports)
        })
        .await
    }

    /// Stores every filter that has changed since it was last stored. One that fails does
    /// not keep the others from being stored.
    ///
    /// # Errors
    ///
    /// [`EngineError::Internal`]; what becomes of each filter is in its outcome.
    pub async fn store_changed(&self) -> Result<Vec<StoreOutcome>, EngineError> {
        self.blocking(|inner| {
            let mut outcomes = Vec::new();
            for filter in inner.registry.list(None, usize::MAX) {
                if filter.has_changed()
                    && let Some(result) = inner.store(&filter).transpose()
                {
                    outcomes.push(StoreOutcome {
                        name: filter.name().clone(),
                        result,
                    });
                }
            }
            Ok(outcomes)
        })
        .await
    }

    /// Stores what has changed, again and again with `interval` between, and reports each
    /// outcome. Never returns; a snapshot that is being written when the future is dropped
    /// is still finished.
    pub async fn store_periodically(
        &self,
        interval: Duration,
        report: impl Fn(Result<Vec<StoreOutcome>, EngineError>),
    ) {
        let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
        // A snapshot that took longer than the interval is not followed by another at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            report(self.store_changed().await);
        }
    }
}

impl Inner {
    /// Stores one filter; `None` if it has been deleted meanwhile.
    fn store(&self, filter: &Arc<GuardedFilter>) -> Result<Option<StoreReport>, StoreError> {
        let begun = Instant::now();
        let stored = filter.store(&self.directory)?;
        Ok(stored.map(|(version, written_bytes)| StoreReport {
            name: filter.name().clone(),
            version,
            written_bytes,
            duration: begun.elapsed(),
        }))
    }
}
