//! What tests of the rpcs need.

use std::path::Path;

use crate::{
    engine::{Durability, Engine, Limits, RequestLimits, Settings, SpecRequest},
    store::DataDirectory,
};

/// An engine with the default filter.
pub async fn engine(dir: &Path, durability: Durability) -> Engine {
    let engine = Engine::new(
        DataDirectory::open(dir).unwrap(),
        Settings {
            limits: Limits {
                max_key_bytes: 10_000,
                max_batch_keys: 1000,
            },
            max_memory_bytes: 1 << 30,
            durability,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    );
    let spec = SpecRequest::new(1_000_000, 0.01);
    engine.recover(Some(spec)).await.unwrap();
    engine
}
