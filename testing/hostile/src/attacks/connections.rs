//! Connections that do nothing, or next to nothing.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::{Attack, Target, nothing};
use crate::raw::{self, Raw, frame};

pub const SILENT: Attack = Attack {
    name: "silent connections",
    prepare: nothing,
    run: |target| {
        Box::pin(async move {
            let until = target.until;
            let act = move |target: Target| async move {
                let _connection = Raw::silent(&target.address).await?;
                tokio::time::sleep_until(until).await;
                Ok(())
            };
            target.repeat(3000, act).await
        })
    },
    engine_bytes: 0,
};

pub const SLOW: Attack = Attack {
    name: "a byte now and then",
    prepare: nothing,
    run: |target| Box::pin(async move { target.repeat(1000, slow).await }),
    engine_bytes: 0,
};

/// Sends a frame byte by byte.
async fn slow(target: Target) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 1 << 16).await?;
    for byte in frame(raw::PING, 0, 0, &[0; 8]) {
        connection.send(&[byte]).await?;
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

pub const CHURN: Attack = Attack {
    name: "connections that come and go",
    prepare: nothing,
    run: |target| {
        Box::pin(async move {
            let act = |target: Target| async move {
                for _ in 0..100 {
                    Raw::connect(&target.address, 1 << 16).await?;
                }
                Ok(())
            };
            target.repeat(8, act).await
        })
    },
    engine_bytes: 0,
};
