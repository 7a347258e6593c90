//! Filters, stored by the server's own writers.

use std::time::{Duration, SystemTime};

use arbitrary::Arbitrary;
use seenset_server::{
    filter::{
        exchange::redisbloom::{Chain, ChainLayer},
        hash::{HashFunction, Secret},
        profile::{KeyProfile, MAX_DROP_PARAMETERS},
        scaling::{OnFull, Scaling},
        shape::MAX_SHARD_BYTES,
        shard_map::ShardMap,
        spec::{Aging, FilterSpec, Kind, Layout, SpecRequest},
    },
    store::{DataDirectory, FilterId, ShardState, SnapshotFiles, SnapshotHeader, StoreError},
};

/// The most snapshots of one filter in an input. The store itself writes at most 16.
const MOST_SNAPSHOTS: usize = 4;
/// The most shards that a snapshot holds: one for each bit of `Snapshot::shards`.
const MOST_SHARDS: usize = 8;

/// A filter, and its stored snapshots.
#[derive(Debug, Arbitrary)]
pub struct Filter {
    /// An index into the few names, modulo their number. An edit must be able to hit files of other
    /// filters.
    name: u8,
    is_classic: bool,
    is_trusted: bool,
    /// The size of the filter. Most filters are small, which makes them fast to try. One in 1024
    /// has many shards and some MiB in total. The values that a fuzzer prefers do not select it.
    bits: u16,
    hash_count: u8,
    log_from: u8,
    snapshots: Vec<Snapshot>,
    profile: Option<Profile>,
    kind: u8,
}

/// The profile for keys.
#[derive(Debug, Arbitrary)]
struct Profile {
    sort_query: bool,
    /// The lengths of some names, modulo 64.
    names: Vec<u8>,
}

/// A snapshot of some shards.
#[derive(Debug, Arbitrary)]
struct Snapshot {
    /// The shards with bits set in this number, out of up to 3.
    shards: u8,
    version: u8,
    /// The word that is written to each shard.
    word: u64,
}

impl Filter {
    /// Returns an empty filter that needs the log from its first segment on.
    pub fn with_log() -> Self {
        Self {
            name: 0,
            is_classic: false,
            is_trusted: false,
            bits: 1,
            hash_count: 1,
            log_from: 1,
            snapshots: Vec::new(),
            profile: None,
            kind: 0,
        }
    }

    /// The names that a filter can have.
    pub const NAMES: [&str; 4] = ["default", "a", "..", "a.snapshot"];

    /// Stores the filter. It replaces a filter of the same name, which no other code does.
    ///
    /// # Errors
    ///
    /// [`StoreError`], which does not occur on a disk without faults.
    pub fn store(&self, directory: &DataDirectory) -> Result<(), StoreError> {
        let mut header = SnapshotHeader {
            filter: FilterId(directory.new_number()),
            number: 0,
            name: Self::NAMES[usize::from(self.name) % Self::NAMES.len()]
                .parse()
                .expect("a name"),
            spec: self.spec(),
            secret: Secret::new([7; 16]),
            version: 0,
            create_time: SystemTime::UNIX_EPOCH,
            store_time: SystemTime::UNIX_EPOCH,
        };
        let shard_map = ShardMap::of(&header.spec);
        let shard_count = shard_map.shard_count().min(MOST_SHARDS);
        let mut files = SnapshotFiles::default();
        // The first snapshot has no shards. Without a snapshot the filter would have no file.
        let first = Snapshot {
            shards: 0,
            version: 0,
            word: 0,
        };
        for snapshot in [&first]
            .into_iter()
            .chain(self.snapshots.iter().take(MOST_SNAPSHOTS))
        {
            header.number = directory.new_number();
            header.version = snapshot.version.into();
            let is_in = |shard: &usize| snapshot.shards >> shard & 1 == 1;
            let shards: Vec<usize> = (0..shard_count).filter(is_in).collect();
            let written = directory.write_snapshot(&header, &shards, |shard, words| {
                words.fill(0);
                words[0] = snapshot.word;
                Ok(ShardState {
                    version: header.version,
                    keys_added: u64::from(snapshot.word > 0),
                    bits_set: shard_map.shape(shard).bits_set(words),
                    cleared: match header.spec.body.kind() {
                        Kind::Plain | Kind::Counting | Kind::Scaling(_) => 0,
                        Kind::Aging(_) => header.version,
                    },
                })
            })?;
            files = files.with(&written);
        }
        let log_from = u64::from(self.log_from % 8);
        directory.set_filter(&header.name, header.filter, &files, log_from, None)
    }

    fn spec(&self) -> FilterSpec {
        match (self.kind % 8, self.is_trusted) {
            (2, true) => FilterSpec::of_chain(&self.chain(), None),
            _ => self.request().resolve().expect("a small filter"),
        }
    }

    /// Returns a chain of some RedisBloom layers. A classic filter has a power of two as its
    /// modulus, like the first releases of RedisBloom.
    fn chain(&self) -> Chain {
        let layers = (0..u64::from(self.hash_count % 4) + 1).map(|number| {
            let words = u64::from(self.bits) % 64 + number + 1;
            let modulus = match self.is_classic {
                true => 64,
                false => words * 64,
            };
            let hash_count = u32::from(self.hash_count) % 64 + 1;
            ChainLayer::new(words, modulus, hash_count, words, 0.01).expect("a small layer")
        });
        Chain::new(layers.collect()).expect("few layers")
    }

    fn kind(&self) -> Kind {
        match self.kind % 8 {
            0..3 => Kind::Plain,
            3 => Kind::Counting,
            4 => Kind::Scaling(OnFull::Reject),
            5 => Kind::Scaling(OnFull::Degrade),
            6 => Kind::Scaling(OnFull::Scale(Scaling {
                growth: u32::from(self.bits) % 15 + 2,
                max_memory_bytes: (!self.is_classic).then_some(1 << 20),
            })),
            _ => Kind::Aging(Aging {
                // No slice ends before the input does.
                max_age: Duration::from_secs(36_500 * 24 * 3600),
                slices: u32::from(self.kind) % 13 + 1,
                refresh: self.is_classic,
            }),
        }
    }

    fn request(&self) -> SpecRequest {
        let bits = u64::from(self.bits) + 1;
        let bit_count = match self.bits {
            0x5a00..0x5a40 => MAX_SHARD_BYTES * 8 + bits,
            _ => bits,
        };
        let kind = self.kind();
        let layout = match (self.kind % 8, self.is_classic) {
            (2, true) => Layout::GuavaMitz32,
            (2, false) => Layout::Guava,
            (0..2, true) => Layout::Classic,
            _ => Layout::Blocked,
        };
        let request = SpecRequest {
            kind,
            layout,
            bit_count: Some(bit_count),
            false_positive_rate: None,
            hash_count: Some(u32::from(self.hash_count) % 64 + 1),
            hash_function: if self.is_trusted {
                HashFunction::Xxh3_128
            } else {
                layout.hash_function()
            },
            key_profile: self.profile.as_ref().map(Profile::make),
            ..SpecRequest::new(100, 0.5)
        };
        match kind {
            Kind::Plain | Kind::Counting | Kind::Aging(_) => request,
            // The number of bits is computed.
            Kind::Scaling(_) => SpecRequest {
                bit_count: None,
                hash_count: None,
                capacity: u64::from(self.bits) + 1,
                false_positive_rate: Some(0.5 / (1.0 + f64::from(self.hash_count))),
                ..request
            },
        }
    }
}

impl Profile {
    fn make(&self) -> KeyProfile {
        let names = self.names.iter().take(MAX_DROP_PARAMETERS);
        let names: Vec<String> = names
            .map(|length| "n".repeat(usize::from(length % 64) + 1))
            .collect();
        KeyProfile::new(KeyProfile::NAME, self.sort_query, &names).expect("names of parameters")
    }
}
