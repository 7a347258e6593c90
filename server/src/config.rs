//! The configuration: defaults < file < environment < flags.
//!
//! [`Config`] is the one struct behind all four. `sources.rs` and `main.rs` are the only
//! ones that read arguments and the environment.

mod address;
mod default_filter;
mod sources;
mod values;

use std::{net::Ipv4Addr, path::PathBuf};

use clap::{ArgAction, Args};
use serde::{Deserialize, Serialize};

pub use self::address::Address;
pub use self::sources::{Command, ConfigError, Verify};
pub use self::values::{DurabilityMode, LogFormat, MemoryLimit, Period, Size};
use crate::engine::{Durability, Limits, RequestLimits, Settings};
use crate::filter::{
    hash::HashFunction,
    scaling::OnFullName,
    spec::{KindName, Layout},
};
use crate::grpc::ClientMemory;

/// The largest message, in bytes: as much as a server must be ready to hold for each call.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The most keys that a batch can be allowed: what a message can hold, see
/// [`seenset_proto::codec::MAX_FIELDS`].
const MAX_BATCH_KEYS: usize = 1_000_000;
const _: () = assert!(MAX_BATCH_KEYS + 2 <= seenset_proto::codec::MAX_FIELDS);

/// The most connections that can be allowed: past the ports that one client has.
const MAX_CONNECTIONS: usize = 1_000_000;
/// Each change writes a manifest of all.
const MAX_FILTERS: usize = 1_000_000;

/// What a server can be told. Each field is a flag (`--data-dir`), an environment variable
/// (`SEENSET_DATA_DIR`) and a key of the configuration file (`data_dir = "..."`).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to listen: an address and a port (`[::]:9090` is every address), a host name and a port
    /// (all its addresses), or unix:/PATH (a socket for the user and the group of the server).
    /// Several with commas, or one after the other. Port 0 takes a free one, and the log says which
    #[arg(long, env = "SEENSET_LISTEN", value_name = "ADDRESS", value_delimiter = ',', default_values_t = Config::default().listen)]
    #[serde(with = "address")]
    pub listen: Vec<Address>,

    /// Where to serve metrics, for Prometheus, at /metrics; written as --listen is [default: none
    /// are served]
    #[arg(
        long,
        env = "SEENSET_METRICS_LISTEN",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    #[serde(with = "address", skip_serializing_if = "Vec::is_empty")]
    pub metrics_listen: Vec<Address>,

    /// Directory of the snapshots and the log. Made if it does not exist; one server at a time works in it
    #[arg(
        long,
        env = "SEENSET_DATA_DIR",
        value_name = "DIR",
        default_value = "./seenset-data"
    )]
    pub data_dir: PathBuf,

    /// Number of distinct keys (n) that the default filter is made for. It is made at the
    /// first start; later starts keep the one there is
    #[arg(long, env = "SEENSET_CAPACITY", value_name = "KEYS", value_parser = values::whole, default_value_t = Config::default().capacity)]
    pub capacity: u64,

    /// Share of keys never added that the default filter reports as seen, at capacity (p)
    /// [default: 0.001, or what --bit-count gives]
    #[arg(long, env = "SEENSET_FALSE_POSITIVE_RATE", value_name = "RATE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positive_rate: Option<f64>,

    /// Size of the default filter in bits (m) [default: what the rate takes]
    #[arg(long, env = "SEENSET_BIT_COUNT", value_name = "BITS", value_parser = values::whole)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bit_count: Option<u64>,

    /// Bits that each key sets in the default filter (k), 1 to 64 [default: the best]
    #[arg(long, env = "SEENSET_HASH_COUNT", value_name = "BITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_count: Option<u32>,

    /// Layout of the default filter: blocked (fastest), classic (fewest bits), guava or
    /// guava-mitz-32 (as Guava's BloomFilter)
    #[arg(long, env = "SEENSET_LAYOUT", value_name = "LAYOUT", default_value_t = Layout::default())]
    #[serde(with = "values::text")]
    pub layout: Layout,

    /// Kind of the default filter: scaling (it grows when it is full, or does what --on-full says),
    /// plain (it does not grow, and is somewhat smaller), counting (keys can be removed; four times
    /// the memory) or aging (keys are forgotten after --max-age; four times the memory) [default:
    /// scaling; plain with --bit-count, --hash-count or a --layout other than blocked]
    #[arg(long, env = "SEENSET_KIND", value_name = "KIND")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindName>,

    /// For how long an aging default filter remembers a key: 12h, 30days. It is forgotten within
    /// one slice after that
    #[arg(long, env = "SEENSET_MAX_AGE", value_name = "TIME")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Period>,

    /// Number of equal parts of --max-age, 1 to 13 [default: 8]
    #[arg(long, env = "SEENSET_SLICES", value_name = "SLICES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,

    /// Have a key that is seen by QueryAndAdd remembered from then on, in an aging default filter
    #[arg(long, env = "SEENSET_REFRESH", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub refresh: bool,

    /// What becomes of new keys when a scaling default filter is full: scale (they go to another
    /// layer, and are refused when there may be no more), reject (they are refused) or degrade (they
    /// are added, and the rate rises) [default: scale]
    #[arg(long, env = "SEENSET_ON_FULL", value_name = "WHAT")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub on_full: Option<OnFullName>,

    /// How many times the size of the layer before a new one of a scaling default filter has, 2 to
    /// 16, with --on-full scale [default: 2]
    #[arg(long, env = "SEENSET_GROWTH", value_name = "FACTOR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<u32>,

    /// Memory that all layers of a scaling default filter may take together, with --on-full scale:
    /// 12GiB, or a number of bytes [default: what --max-memory has room for]
    #[arg(long, env = "SEENSET_MAX_FILTER_MEMORY", value_name = "SIZE")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub max_filter_memory: Option<Size>,

    /// Hash of the default filter: siphash-1-3-128 (for any keys) or xxh3-128 (for keys that
    /// are trusted) [default: siphash-1-3-128, or that of the layout]
    #[arg(long, env = "SEENSET_HASH_FUNCTION", value_name = "NAME")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub hash_function: Option<HashFunction>,

    /// What the keys of the default filter become before they are hashed: url-v1 [default: they are
    /// hashed as they come]
    #[arg(long, env = "SEENSET_KEY_PROFILE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_profile: Option<String>,

    /// Sort the parameters of a query, in that profile
    #[arg(long, env = "SEENSET_SORT_QUERY", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub sort_query: bool,

    /// Leave out a parameter of a query, in that profile: sid, or utm_* for all names that begin so.
    /// Several with commas, or one after the other
    #[arg(
        long,
        env = "SEENSET_DROP_PARAMETER",
        value_name = "NAME",
        value_delimiter = ','
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop_parameter: Vec<String>,

    /// Time between snapshots of what has changed: 90, 90s, 5m, 1h. 0 turns them off
    #[arg(long, env = "SEENSET_STORE_INTERVAL", value_name = "TIME", default_value_t = Config::default().store_interval)]
    #[serde(with = "values::text")]
    pub store_interval: Period,

    /// What must have happened to a change before it is acknowledged: always (it is on stable
    /// storage), interval (the system has it, and syncs it every --sync-interval) or snapshot
    /// (nothing: it may be lost until the next snapshot)
    #[arg(long, env = "SEENSET_DURABILITY", value_name = "MODE", default_value_t = DurabilityMode::default())]
    #[serde(with = "values::text")]
    pub durability: DurabilityMode,

    /// What a power cut may take of the last acknowledged changes under --durability interval
    #[arg(long, env = "SEENSET_SYNC_INTERVAL", value_name = "TIME", default_value_t = Config::default().sync_interval)]
    #[serde(with = "values::text")]
    pub sync_interval: Period,

    /// Size of the files of the log: 1MiB to 1GiB. There is always one more than the one that is
    /// written to
    #[arg(long, env = "SEENSET_LOG_SEGMENT_SIZE", value_name = "SIZE", default_value_t = Config::default().log_segment_size)]
    #[serde(with = "values::text")]
    pub log_segment_size: Size,

    /// How many keys are remembered with the requests (request_id) that have added them, so that
    /// a request that is repeated gets its first answer; a request counts as four more. 0 for none
    #[arg(long, env = "SEENSET_RETRY_KEYS", value_name = "KEYS", default_value_t = Config::default().retry_keys)]
    pub retry_keys: u64,

    /// How long requests are remembered, if they are not too many
    #[arg(long, env = "SEENSET_RETRY_AGE", value_name = "TIME", default_value_t = Config::default().retry_age)]
    #[serde(with = "values::text")]
    pub retry_age: Period,

    /// How long a stopping server waits for the calls in flight
    #[arg(long, env = "SEENSET_DRAIN_TIMEOUT", value_name = "TIME", default_value_t = Config::default().drain_timeout)]
    #[serde(with = "values::text")]
    pub drain_timeout: Period,

    /// Memory that all filters together may take: 80%, 12GiB, or a number of bytes
    #[arg(long, env = "SEENSET_MAX_MEMORY", value_name = "SIZE", default_value_t = Config::default().max_memory)]
    #[serde(with = "values::text")]
    pub max_memory: MemoryLimit,

    /// Memory that all clients together may make the server hold, beside the filters: messages that
    /// arrive, calls, answers that are not read. 10%, 1GiB, or a number of bytes; 32MiB at least
    #[arg(long, env = "SEENSET_MAX_CLIENT_MEMORY", value_name = "SIZE", default_value_t = Config::default().max_client_memory)]
    #[serde(with = "values::text")]
    pub max_client_memory: MemoryLimit,

    /// Most connections at once. One more is closed as soon as it is made
    #[arg(long, env = "SEENSET_MAX_CONNECTIONS", value_name = "CONNECTIONS", default_value_t = Config::default().max_connections)]
    pub max_connections: usize,

    /// Most connections at once from one address. Raise it where all clients come through one
    /// proxy
    #[arg(long, env = "SEENSET_MAX_CONNECTIONS_PER_ADDRESS", value_name = "CONNECTIONS", default_value_t = Config::default().max_connections_per_address)]
    pub max_connections_per_address: usize,

    /// Most filters
    #[arg(long, env = "SEENSET_MAX_FILTERS", value_name = "FILTERS", default_value_t = Config::default().max_filters)]
    pub max_filters: usize,

    /// Longest key, in bytes
    #[arg(long, env = "SEENSET_MAX_KEY_BYTES", value_name = "BYTES", default_value_t = Config::default().max_key_bytes)]
    pub max_key_bytes: usize,

    /// Most keys in a batch
    #[arg(long, env = "SEENSET_MAX_BATCH_KEYS", value_name = "KEYS", default_value_t = Config::default().max_batch_keys)]
    pub max_batch_keys: usize,

    /// Form of the log: text or json
    #[arg(long, env = "SEENSET_LOG_FORMAT", value_name = "FORMAT", default_value_t = LogFormat::default())]
    #[serde(with = "values::text")]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug or trace, also for each part of the program
    /// (info,seenset_server::grpc=debug)
    #[arg(long, env = "SEENSET_LOG_FILTER", value_name = "FILTER", default_value_t = Config::default().log_filter)]
    pub log_filter: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![Address::Socket((Ipv4Addr::LOCALHOST, 9090).into())],
            metrics_listen: Vec::new(),
            data_dir: "./seenset-data".into(),
            capacity: 100_000_000,
            false_positive_rate: None,
            bit_count: None,
            hash_count: None,
            layout: Layout::default(),
            kind: None,
            max_age: None,
            slices: None,
            refresh: false,
            on_full: None,
            growth: None,
            max_filter_memory: None,
            hash_function: None,
            key_profile: None,
            sort_query: false,
            drop_parameter: Vec::new(),
            store_interval: Period::from_secs(300),
            durability: DurabilityMode::default(),
            sync_interval: Period::from_secs(1),
            log_segment_size: Size::from_bytes(Settings::SEGMENT_BYTES),
            retry_keys: RequestLimits::default().keys,
            retry_age: Period::from_secs(600),
            drain_timeout: Period::from_secs(30),
            max_memory: MemoryLimit::Percent(80),
            max_client_memory: MemoryLimit::Percent(10),
            max_connections: 4096,
            max_connections_per_address: 1024,
            max_filters: Limits::MAX_FILTERS,
            max_key_bytes: 65_536,
            max_batch_keys: 100_000,
            log_format: LogFormat::default(),
            log_filter: "info".to_owned(),
        }
    }
}

impl Config {
    /// What must have happened to a change before it is acknowledged.
    pub fn durability(&self) -> Durability {
        match self.durability {
            DurabilityMode::Always => Durability::Always,
            DurabilityMode::Interval => Durability::Interval(self.sync_interval.get()),
            DurabilityMode::Snapshot => Durability::Snapshot,
        }
    }

    /// Which requests are recognised if they come again.
    pub fn requests(&self) -> RequestLimits {
        RequestLimits {
            keys: self.retry_keys,
            age: self.retry_age.get(),
        }
    }

    /// Checks what the type of a field does not say.
    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}; it must be 1 to {most}"))
            }
        };
        if self.listen.is_empty() {
            return Err("listen is an empty list; it must have at least one address".to_owned());
        }
        within("max_filters", self.max_filters, MAX_FILTERS)?;
        within("max_key_bytes", self.max_key_bytes, MAX_MESSAGE_BYTES / 2)?;
        within("max_batch_keys", self.max_batch_keys, MAX_BATCH_KEYS)?;
        within("max_connections", self.max_connections, MAX_CONNECTIONS)?;
        within(
            "max_connections_per_address",
            self.max_connections_per_address,
            MAX_CONNECTIONS,
        )?;
        let least = ClientMemory::LEAST_BYTES as u64;
        if let MemoryLimit::Bytes(bytes) = self.max_client_memory
            && bytes < least
        {
            return Err(format!(
                "max_client_memory is {bytes}; it must be at least {}, for two of the largest \
                 messages",
                Size::from_bytes(least)
            ));
        }
        let size = self.log_segment_size;
        let all = Settings::SEGMENT_SIZES;
        if !all.contains(&size.bytes()) {
            let [least, most] = [all.start(), all.end()].map(|&end| Size::from_bytes(end));
            return Err(format!(
                "log_segment_size is {size}; it must be {least} to {most}"
            ));
        }
        let keys = self.max_batch_keys;
        let needed = Settings::segment_bytes_for(keys);
        if size.bytes() < needed {
            return Err(format!(
                "log_segment_size is {size}; for batches of {keys} keys (max_batch_keys) it must \
                 be at least {needed} on this machine"
            ));
        }
        if self.capacity > i64::MAX as u64 {
            return Err(format!(
                "capacity is {}; it must be at most {}",
                self.capacity,
                i64::MAX
            ));
        }
        if let Some(rate) = self.false_positive_rate
            && !(rate > 0.0 && rate < 1.0)
        {
            return Err(format!(
                "false_positive_rate is {rate}; it must be above 0 and below 1"
            ));
        }
        crate::telemetry::check_filter(&self.log_filter)
            .map_err(|error| format!("log_filter is {:?}: {error}", self.log_filter))
    }
}

#[cfg(test)]
mod tests;
