//! Periodic samples of the number of keys in each filter, so that its status shows how fast keys
//! come.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::engine::Engine;

/// The interval between two samples. More frequent samples are of no use to the history of a
/// filter.
const INTERVAL: Duration = Duration::from_secs(60);

impl Engine {
    /// Samples the number of keys of each filter, once per interval. Never returns.
    pub async fn sample_periodically(&self) {
        loop {
            sleep(INTERVAL).await;
            let now = Instant::now().into_std();
            let sampled = self.blocking(move |catalog| {
                let filters = catalog.data.registry.list(None, usize::MAX);
                filters.iter().for_each(|filter| filter.sample(now));
                Ok(())
            });
            if let Err(error) = sampled.await {
                tracing::warn!(%error, "how fast keys come is not known for this minute");
            }
        }
    }
}
