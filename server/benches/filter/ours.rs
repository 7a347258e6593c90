//! seenset's engine as a contender.

use std::{pin::pin, time::SystemTime};

use futures_util::FutureExt;
use seenset_server::{
    engine::{Durability, Engine, Limits, RequestLimits, Settings},
    filter::{
        hash::Secret,
        spec::{Kind, SpecRequest},
    },
    store::{DataDirectory, FilterId, ShardState, SnapshotFiles, SnapshotHeader},
};

use crate::{
    BATCH, HASH_COUNT, Keys, batches, batches_of,
    limit::{Limit, mapped},
    words,
};

/// seenset's engine with one filter.
pub struct Ours {
    engine: Engine,
    pub limit: Limit,
    _dir: tempfile::TempDir,
}

impl Ours {
    /// Returns a plain filter of `mib` MiB with half of its bits set.
    pub fn new(mib: usize) -> Self {
        Self::of(Kind::Plain, mib)
    }

    /// Returns a filter with `mib` MiB of bits, half of them set. It is restored from a snapshot
    /// with that content.
    pub fn of(kind: Kind, mib: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(dir.path()).unwrap();
        let spec = SpecRequest {
            bit_count: Some((mib as u64) << 23),
            hash_count: Some(HASH_COUNT),
            false_positive_rate: None,
            kind,
            ..SpecRequest::new((mib as u64) << 19, 0.5)
        };
        let header = SnapshotHeader {
            filter: FilterId(directory.new_number()),
            number: directory.new_number(),
            name: "default".parse().unwrap(),
            spec: spec.resolve().unwrap(),
            secret: Secret::new([7; 16]),
            version: 1,
            create_time: SystemTime::now(),
            store_time: SystemTime::now(),
        };
        let shape = header.spec.body.shape();
        let (ones, epoch) = (u64::MAX / 15, epoch(kind));
        let random = words(shape.shard_words() * 100_000);
        let mut random = random.map(|word| match kind {
            Kind::Plain | Kind::Scaling(_) => word,
            // Half of the counters are 1.
            Kind::Counting => word & ones,
            // Half of the stamps are set, each to one of the slices that count.
            Kind::Aging(aging) => {
                let age = (word >> 32) % u64::from(aging.slices + 1);
                (word & ones) * ((epoch - age) % 15 + 1)
            }
        });
        let shards: Vec<usize> = (0..shape.shard_count()).collect();
        let written = directory
            .write_snapshot(&header, &shards, |_, to| {
                to.iter_mut()
                    .zip(&mut random)
                    .for_each(|(to, word)| *to = word);
                Ok(ShardState {
                    version: 1,
                    keys_added: 0,
                    bits_set: shape.bits_set(to),
                    cleared: epoch,
                })
            })
            .unwrap();
        let files = SnapshotFiles::default().with(&written);
        directory
            .set_filter(&header.name, header.filter, &files, 0, None)
            .unwrap();
        let engine = engine(directory);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mapped_before = mapped();
        runtime.block_on(engine.recover(None)).unwrap();
        Self {
            engine,
            limit: Limit::new(
                &mapped_before,
                shape.shard_bytes() as usize * shape.shard_count(),
            ),
            _dir: dir,
        }
    }

    pub fn add(&self, keys: Keys) -> usize {
        keys.iter()
            .filter(|key| now(self.engine.query_and_add("", key)))
            .count()
    }

    pub fn add_batch(&self, keys: Keys) -> usize {
        self.add_in_batches_of(BATCH, keys)
    }

    pub fn add_in_batches_of(&self, size: usize, keys: Keys) -> usize {
        batches_of(size, keys, |batch| {
            now(self.engine.query_and_add_batch("", batch))
        })
    }

    pub fn query(&self, keys: Keys) -> usize {
        keys.iter()
            .filter(|key| now(self.engine.query("", key)))
            .count()
    }

    pub fn query_batch(&self, keys: Keys) -> usize {
        batches(keys, |batch| now(self.engine.query_batch("", batch)))
    }
}

/// Returns seenset's engine over a directory.
pub fn engine(directory: DataDirectory) -> Engine {
    let limits = Limits {
        max_key_bytes: 100,
        max_batch_keys: BATCH,
        max_filters: Limits::MAX_FILTERS,
    };
    Engine::new(
        directory,
        Settings {
            limits,
            max_memory_bytes: u64::MAX,
            durability: Durability::Snapshot,
            segment_bytes: Settings::SEGMENT_BYTES,
            requests: RequestLimits::default(),
        },
    )
}

/// Returns the present epoch, for filters whose keys age.
fn epoch(kind: Kind) -> u64 {
    match kind {
        Kind::Plain | Kind::Counting | Kind::Scaling(_) => 0,
        Kind::Aging(aging) => aging.epoch(SystemTime::UNIX_EPOCH.elapsed().unwrap()),
    }
}

/// Returns the result of a call, which waits only if a layered filter is just counting the bits that
/// it has left.
pub fn now<T, E: std::fmt::Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    let mut call = pin!(call);
    call.as_mut()
        .now_or_never()
        .unwrap_or_else(|| block_on(call))
        .unwrap()
}

#[cold]
fn block_on<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(call)
}
