//! Filters whose keys age are cleared of what is too old.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{Engine, background, guarded::GuardedFilter};

/// How often it is looked whether a slice has begun: no slice is shorter.
const LOOK: Duration = Duration::from_secs(1);

impl Engine {
    /// Clears the memory of what is too old soon after each slice has begun, so that calls need not
    /// do so when they come upon it. Never returns.
    pub async fn clear_periodically(&self) {
        loop {
            sleep(LOOK).await;
            for filter in self.inner.registry.list(None, usize::MAX) {
                if filter.has_old() {
                    clear(filter).await;
                }
            }
        }
    }
}

async fn clear(filter: Arc<GuardedFilter>) {
    let name = filter.name().clone();
    let cleared = background::run("clear", move || {
        filter.clear_old();
        Ok(())
    });
    // Calls do what is left to do.
    if let Err(error) = cleared.await {
        tracing::warn!(filter = %name, %error, "the filter is not cleared of what is too old");
    }
}
