//! Clears filters whose keys age of keys that are too old.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::engine::{Engine, background, filter::Filter};

/// The interval between two checks whether a slice has begun. No slice is shorter.
const LOOK: Duration = Duration::from_secs(1);

impl Engine {
    /// Clears keys that are too old from memory, soon after each slice has begun, so that calls
    /// need not do it when they find them. Never returns.
    pub async fn clear_periodically(&self) {
        loop {
            sleep(LOOK).await;
            for filter in self.data.registry.list(None, usize::MAX) {
                if filter.has_old() {
                    clear(filter).await;
                }
            }
        }
    }
}

async fn clear(filter: Arc<Filter>) {
    let name = filter.name().clone();
    let cleared = background::run("clear", move || {
        filter.clear_old();
        Ok(())
    });
    // Calls clear the rest.
    if let Err(error) = cleared.await {
        tracing::warn!(filter = %name, %error, "the filter is not cleared of what is too old");
    }
}
