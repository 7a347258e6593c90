//! Attacks that occupy the threads, the locks or the disk of the server.

use anyhow::Result;
use seenset_proto::v1::{
    AddBatchRequest, Counting, CreateFilterRequest, FilterSpec, GetFilterRequest,
    QueryAndAddRequest, StartRebuildRequest, StoreRequest, filter_spec::Kind,
};
use tokio::time::Instant;

use super::{Attack, Running, Target, nothing};

/// The memory of filters, of requests and of their answers.
const FILTERS_BYTES: u64 = 256 << 20;

const fn attack(name: &'static str, run: fn(Target) -> Running<String>) -> Attack {
    Attack {
        name,
        prepare: nothing,
        run,
        engine_bytes: FILTERS_BYTES,
    }
}

const HEAVY: &str = "heavy";
const TINY: &str = "tiny";

fn filter(name: &str, capacity: u64, kind: Option<Kind>) -> CreateFilterRequest {
    let spec = FilterSpec {
        capacity,
        false_positive_rate: 0.001,
        kind,
        ..Default::default()
    };
    CreateFilterRequest {
        name: name.to_owned(),
        spec: Some(spec),
    }
}

fn counting(target: Target) -> Running<()> {
    Box::pin(async move {
        let mut filters = target.filters().await?;
        let kind = Some(Kind::Counting(Counting::default()));
        filters
            .create_filter(filter(HEAVY, 10_000_000, kind))
            .await?;
        filters.create_filter(filter(TINY, 1000, None)).await?;
        Ok(())
    })
}

pub const HEAVY_BATCHES: Attack = Attack {
    prepare: counting,
    ..attack("heavy batches", |target| {
        Box::pin(async move { target.repeat(4, heavy_batches).await })
    })
};

/// Adds batches of 99,000 keys to a counting filter.
async fn heavy_batches(target: Target) -> Result<()> {
    heavy_batches_of(target, |_| String::new()).await
}

/// Adds batches like [`heavy_batches`], in calls that have a request id.
async fn heavy_batches_of(target: Target, request_id: fn(&Target) -> String) -> Result<()> {
    let mut dedup = target.dedup().await?;
    for round in 0.. {
        let keys = (0..99_000).map(|key| format!("{}/{key}", round % 50));
        let batch = AddBatchRequest {
            filter: HEAVY.to_owned(),
            keys: keys.collect(),
            request_id: request_id(&target),
            ..Default::default()
        };
        dedup.add_batch(batch).await?;
        if target.is_over() {
            break;
        }
    }
    Ok(())
}

pub const HEAVY_BATCHES_AND_STORES: Attack = Attack {
    prepare: counting,
    ..attack("heavy batches, and stores of a tiny filter", |target| {
        Box::pin(async move {
            let stores = target.clone();
            let (heavy, stores) = tokio::join!(
                target.repeat(4, heavy_batches),
                stores.repeat(1, stores_of_a_tiny_filter),
            );
            stores?;
            heavy
        })
    })
};

/// Returns a request id that all calls within some tenths of a second share.
fn shared_id(target: &Target) -> String {
    let left = target.until.saturating_duration_since(Instant::now());
    (left.as_millis() / 200).to_string()
}

pub const HEAVY_BATCHES_AND_CALLS_OF_THEIR_ID: Attack = Attack {
    prepare: counting,
    ..attack("heavy batches, and calls of their request id", |target| {
        Box::pin(async move {
            let calls = target.clone();
            let (heavy, calls) = tokio::join!(
                target.repeat(4, |target| heavy_batches_of(target, shared_id)),
                calls.repeat(50, |target| single_calls(target, shared_id)),
            );
            calls?;
            heavy
        })
    })
};

fn rebuilt(target: Target) -> Running<()> {
    Box::pin(async move {
        counting(target.clone()).await?;
        let start = StartRebuildRequest {
            name: HEAVY.to_owned(),
            new_name: "new".to_owned(),
            spec: None,
        };
        target.filters().await?.start_rebuild(start).await?;
        Ok(())
    })
}

pub const HEAVY_BATCHES_TO_A_REBUILT_FILTER: Attack = Attack {
    prepare: rebuilt,
    ..attack(
        "heavy batches, and calls, to a filter that is rebuilt",
        |target| {
            Box::pin(async move {
                let calls = target.clone();
                let (heavy, calls) = tokio::join!(
                    target.repeat(4, heavy_batches),
                    calls.repeat(50, |target| single_calls(target, |_| String::new())),
                );
                calls?;
                heavy
            })
        },
    )
};

/// Adds one key after the other to the filter of the heavy batches.
async fn single_calls(target: Target, request_id: fn(&Target) -> String) -> Result<()> {
    let mut dedup = target.dedup().await?;
    for key in 0.. {
        let add = QueryAndAddRequest {
            filter: HEAVY.to_owned(),
            key: format!("single {key}"),
            request_id: request_id(&target),
            ..Default::default()
        };
        dedup.query_and_add(add).await?;
        if target.is_over() {
            break;
        }
    }
    Ok(())
}

async fn stores_of_a_tiny_filter(target: Target) -> Result<()> {
    let mut dedup = target.dedup().await?;
    while !target.is_over() {
        let add = AddBatchRequest {
            filter: TINY.to_owned(),
            keys: vec!["k".to_owned()],
            ..Default::default()
        };
        dedup.add_batch(add).await?;
        let store = StoreRequest {
            filter: TINY.to_owned(),
        };
        dedup.store(store).await?;
    }
    Ok(())
}

pub const MEASUREMENTS: Attack = attack("measurements of a filter", |target| {
    Box::pin(async move { target.repeat(200, measurements).await })
});

async fn measurements(target: Target) -> Result<()> {
    let mut filters = target.filters().await?;
    while !target.is_over() {
        let get = GetFilterRequest {
            name: "default".to_owned(),
        };
        filters.get_filter(get).await?;
    }
    Ok(())
}

pub const CREATIONS: Attack = Attack {
    prepare: counting,
    ..attack("creation of a filter that is there", |target| {
        Box::pin(async move { target.repeat(200, creations).await })
    })
};

async fn creations(target: Target) -> Result<()> {
    let mut filters = target.filters().await?;
    while !target.is_over() {
        filters.create_filter(filter(TINY, 1000, None)).await?;
    }
    Ok(())
}
