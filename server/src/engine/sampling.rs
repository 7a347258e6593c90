//! What filters are looked at for from time to time, so that their status tells how fast keys
//! come.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Engine;

/// As often as the history of a filter has use for.
const INTERVAL: Duration = Duration::from_secs(60);

impl Engine {
    /// Notes how many keys each filter has, again and again. Never returns.
    pub async fn sample_periodically(&self) {
        loop {
            sleep(INTERVAL).await;
            let now = Instant::now().into_std();
            let sampled = self.blocking(move |inner| {
                let filters = inner.registry.list(None, usize::MAX);
                filters.iter().for_each(|filter| filter.sample(now));
                Ok(())
            });
            if let Err(error) = sampled.await {
                tracing::warn!(%error, "how fast keys come is not known for this minute");
            }
        }
    }
}
