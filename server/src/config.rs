//! The configuration: defaults < file < environment < flags.
//!
//! [`Config`] is the one struct for all four. Only `sources.rs` and `main.rs` read arguments and
//! the environment.

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

/// The maximum size of a message, in bytes. A server must be able to hold a message of this size
/// for each call.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The highest value of `max_batch_keys`: a message cannot hold more keys, see
/// [`seenset_proto::codec::MAX_FIELDS`].
const MAX_BATCH_KEYS: usize = 1_000_000;
const _: () = assert!(MAX_BATCH_KEYS + 2 <= seenset_proto::codec::MAX_FIELDS);

/// The highest value of `max_connections`: one client does not have this many ports.
const MAX_CONNECTIONS: usize = 1_000_000;
/// The highest value of `max_filters`. Each new manifest lists all filters.
const MAX_FILTERS: usize = 1_000_000;

/// The settings of a server. Each field is a flag (`--data-dir`), an environment variable
/// (`SEENSET_DATA_DIR`) and a key of the configuration file (`data_dir = "..."`).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Addresses to listen on: an address and a port (`[::]:9090` is every address), a host name
    /// and a port (all addresses of the name), or unix:/PATH (a socket for the user and the group
    /// of the server). To give several, separate them with commas or repeat the flag. Port 0 takes
    /// a free port, which the server prints in its log
    #[arg(long, env = "SEENSET_LISTEN", value_name = "ADDRESS", value_delimiter = ',', default_values_t = Config::default().listen)]
    #[serde(with = "address")]
    pub listen: Vec<Address>,

    /// Addresses to serve metrics on, for Prometheus, at /metrics. The form is the same as for
    /// --listen [default: no metrics]
    #[arg(
        long,
        env = "SEENSET_METRICS_LISTEN",
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    #[serde(with = "address", skip_serializing_if = "Vec::is_empty")]
    pub metrics_listen: Vec<Address>,

    /// Directory of the snapshots and the write-ahead log (WAL). The server creates it if it does
    /// not exist. Only one server at a time can use it
    #[arg(
        long,
        env = "SEENSET_DATA_DIR",
        value_name = "DIR",
        default_value = "./seenset-data"
    )]
    pub data_dir: PathBuf,

    /// Number of distinct keys (n) that the default filter is made for. The first start creates
    /// this filter; later starts keep the existing one
    #[arg(long, env = "SEENSET_CAPACITY", value_name = "KEYS", value_parser = values::whole, default_value_t = Config::default().capacity)]
    pub capacity: u64,

    /// False-positive rate (p) of the default filter at capacity: the share of keys never added
    /// that it reports as seen [default: 0.001, or the rate that --bit-count gives]
    #[arg(long, env = "SEENSET_FALSE_POSITIVE_RATE", value_name = "RATE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub false_positive_rate: Option<f64>,

    /// Size of the default filter in bits (m) [default: the smallest size that keeps the rate]
    #[arg(long, env = "SEENSET_BIT_COUNT", value_name = "BITS", value_parser = values::whole)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bit_count: Option<u64>,

    /// Number of bits that each key sets in the default filter (k), 1 to 64 [default: the best
    /// number]
    #[arg(long, env = "SEENSET_HASH_COUNT", value_name = "BITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_count: Option<u32>,

    /// Layout of the default filter: blocked (fastest), classic (fewest bits), guava or
    /// guava-mitz-32 (the layouts of Guava's BloomFilter)
    #[arg(long, env = "SEENSET_LAYOUT", value_name = "LAYOUT", default_value_t = Layout::default())]
    #[serde(with = "values::text")]
    pub layout: Layout,

    /// Kind of the default filter: scaling (it grows when it is full, or does what --on-full says),
    /// plain (it does not grow, and takes somewhat less memory), counting (keys can be removed;
    /// four times the memory) or aging (keys are forgotten after --max-age; four times the memory)
    /// [default: scaling; plain with --bit-count, --hash-count or a --layout other than blocked]
    #[arg(long, env = "SEENSET_KIND", value_name = "KIND")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindName>,

    /// Time for which an aging default filter remembers a key: 12h, 30days. The filter forgets the
    /// key within one slice after this time
    #[arg(long, env = "SEENSET_MAX_AGE", value_name = "TIME")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Period>,

    /// Number of slices (equal parts of --max-age), 1 to 13 [default: 8]
    #[arg(long, env = "SEENSET_SLICES", value_name = "SLICES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,

    /// Restart the --max-age of a key each time that QueryAndAdd finds it, in an aging default
    /// filter
    #[arg(long, env = "SEENSET_REFRESH", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub refresh: bool,

    /// Behaviour of a scaling default filter when it is full and new keys come: scale (it adds a
    /// layer for them, and refuses them when it may have no more layers), reject (it refuses them)
    /// or degrade (it adds them, and the false-positive rate rises) [default: scale]
    #[arg(long, env = "SEENSET_ON_FULL", value_name = "WHAT")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub on_full: Option<OnFullName>,

    /// Growth factor of a scaling default filter: the size of each layer as a multiple of the layer
    /// before, 2 to 16. Only with --on-full scale [default: 2]
    #[arg(long, env = "SEENSET_GROWTH", value_name = "FACTOR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<u32>,

    /// Memory limit of all layers of a scaling default filter together: 12GiB, or a number of
    /// bytes. Only with --on-full scale [default: the memory that --max-memory has left]
    #[arg(long, env = "SEENSET_MAX_FILTER_MEMORY", value_name = "SIZE")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub max_filter_memory: Option<Size>,

    /// Hash function of the default filter: siphash-1-3-128 (for any keys) or xxh3-128 (for trusted
    /// keys only) [default: siphash-1-3-128, or the hash function of the layout]
    #[arg(long, env = "SEENSET_HASH_FUNCTION", value_name = "NAME")]
    #[serde(with = "values::optional", skip_serializing_if = "Option::is_none")]
    pub hash_function: Option<HashFunction>,

    /// Rules that bring the keys of the default filter into a canonical form before they are
    /// hashed: url-v1 [default: keys are hashed unchanged]
    #[arg(long, env = "SEENSET_KEY_PROFILE", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_profile: Option<String>,

    /// Sort the parameters of a URL's query by name. Needs --key-profile
    #[arg(long, env = "SEENSET_SORT_QUERY", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    pub sort_query: bool,

    /// Drop a parameter from a URL's query: sid, or utm_* for all names with this prefix. To give
    /// several, separate them with commas or repeat the flag. Needs --key-profile
    #[arg(
        long,
        env = "SEENSET_DROP_PARAMETER",
        value_name = "NAME",
        value_delimiter = ','
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop_parameter: Vec<String>,

    /// Time between two snapshots of the filters that have changed: 90 (seconds), 90s, 5m, 1h. 0
    /// turns these snapshots off: the write-ahead log then grows until a client calls Store
    #[arg(long, env = "SEENSET_STORE_INTERVAL", value_name = "TIME", default_value_t = Config::default().store_interval)]
    #[serde(with = "values::text")]
    pub store_interval: Period,

    /// Durability of a change when its call is answered: always (the change is fsynced), interval
    /// (it is in the page cache of the kernel, and is fsynced within --sync-interval) or snapshot
    /// (it is only in memory: a crash loses all changes since the last snapshot)
    #[arg(long, env = "SEENSET_DURABILITY", value_name = "MODE", default_value_t = DurabilityMode::default())]
    #[serde(with = "values::text")]
    pub durability: DurabilityMode,

    /// Maximum time from a change to its fsync, with --durability interval. A power cut loses at
    /// most the acknowledged changes of this time
    #[arg(long, env = "SEENSET_SYNC_INTERVAL", value_name = "TIME", default_value_t = Config::default().sync_interval)]
    #[serde(with = "values::text")]
    pub sync_interval: Period,

    /// Size of each segment file of the write-ahead log (WAL): 1MiB to 1GiB. A segment must have
    /// room for a batch of --max-batch-keys. The server always keeps one segment more than the one
    /// that it writes to
    #[arg(long, env = "SEENSET_LOG_SEGMENT_SIZE", value_name = "SIZE", default_value_t = Config::default().log_segment_size)]
    #[serde(with = "values::text")]
    pub log_segment_size: Size,

    /// Maximum number of keys that the server remembers for retries. A retry with the same
    /// request_id (idempotency key) then gets the first answer again. Each request counts as four
    /// more keys. 0 turns this off
    #[arg(long, env = "SEENSET_RETRY_KEYS", value_name = "KEYS", default_value_t = Config::default().retry_keys)]
    pub retry_keys: u64,

    /// Maximum time that the server remembers a request for retries. --retry-keys can make it
    /// shorter
    #[arg(long, env = "SEENSET_RETRY_AGE", value_name = "TIME", default_value_t = Config::default().retry_age)]
    #[serde(with = "values::text")]
    pub retry_age: Period,

    /// Maximum time that a stopping server waits for the calls in flight
    #[arg(long, env = "SEENSET_DRAIN_TIMEOUT", value_name = "TIME", default_value_t = Config::default().drain_timeout)]
    #[serde(with = "values::text")]
    pub drain_timeout: Period,

    /// Memory limit of all filters together: 80% (of the memory of the machine or the container),
    /// 12GiB, or a number of bytes
    #[arg(long, env = "SEENSET_MAX_MEMORY", value_name = "SIZE", default_value_t = Config::default().max_memory)]
    #[serde(with = "values::text")]
    pub max_memory: MemoryLimit,

    /// Limit of the memory that the server holds for all clients together, in addition to the
    /// filters: messages that arrive, calls, and answers that clients do not read. 10%, 1GiB, or a
    /// number of bytes; at least 32MiB
    #[arg(long, env = "SEENSET_MAX_CLIENT_MEMORY", value_name = "SIZE", default_value_t = Config::default().max_client_memory)]
    #[serde(with = "values::text")]
    pub max_client_memory: MemoryLimit,

    /// Maximum number of open connections. The server closes each further connection at once
    #[arg(long, env = "SEENSET_MAX_CONNECTIONS", value_name = "CONNECTIONS", default_value_t = Config::default().max_connections)]
    pub max_connections: usize,

    /// Maximum number of open connections from one address. Raise it if all clients come through
    /// one proxy
    #[arg(long, env = "SEENSET_MAX_CONNECTIONS_PER_ADDRESS", value_name = "CONNECTIONS", default_value_t = Config::default().max_connections_per_address)]
    pub max_connections_per_address: usize,

    /// Maximum number of filters
    #[arg(long, env = "SEENSET_MAX_FILTERS", value_name = "FILTERS", default_value_t = Config::default().max_filters)]
    pub max_filters: usize,

    /// Maximum length of a key, in bytes
    #[arg(long, env = "SEENSET_MAX_KEY_BYTES", value_name = "BYTES", default_value_t = Config::default().max_key_bytes)]
    pub max_key_bytes: usize,

    /// Maximum number of keys in a batch
    #[arg(long, env = "SEENSET_MAX_BATCH_KEYS", value_name = "KEYS", default_value_t = Config::default().max_batch_keys)]
    pub max_batch_keys: usize,

    /// Format of the server's log on standard error: text or json
    #[arg(long, env = "SEENSET_LOG_FORMAT", value_name = "FORMAT", default_value_t = LogFormat::default())]
    #[serde(with = "values::text")]
    pub log_format: LogFormat,

    /// Level of the server's log: error, warn, info, debug or trace. A part of the program can have
    /// its own level (info,seenset_server::grpc=debug)
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
    /// Returns the durability of a change at the time when its call is answered.
    pub fn durability(&self) -> Durability {
        match self.durability {
            DurabilityMode::Always => Durability::Always,
            DurabilityMode::Interval => Durability::Interval(self.sync_interval.get()),
            DurabilityMode::Snapshot => Durability::Snapshot,
        }
    }

    /// Returns the limits on the requests that the server remembers for retries.
    pub fn requests(&self) -> RequestLimits {
        RequestLimits {
            keys: self.retry_keys,
            age: self.retry_age.get(),
        }
    }

    /// Checks the limits that the types of the fields do not enforce.
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
        values::check_log_filter(&self.log_filter)
            .map_err(|error| format!("log_filter is {:?}: {error}", self.log_filter))
    }
}

#[cfg(test)]
mod tests;
