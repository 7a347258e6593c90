//! The configuration: defaults < file < environment < flags.
//!
//! [`Config`] is the one struct behind all four. This file and `main.rs` are the only ones
//! that read arguments and the environment.

mod default_filter;
mod values;

use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{
    ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use serde::{Deserialize, Serialize};

pub use self::values::{DurabilityMode, LogFormat, MemoryLimit, Period, Size};
use crate::engine::{Durability, RequestLimits, Settings};
use crate::filter::{
    hash::HashFunction,
    scaling::OnFullName,
    spec::{KindName, Layout, SpecError},
};

/// The largest message, in bytes: as much as a server must be ready to hold for each call.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The most keys that a batch can be allowed: what a message can hold, see
/// [`seenset_proto::codec::MAX_FIELDS`].
const MAX_BATCH_KEYS: usize = 1_000_000;
const _: () = assert!(MAX_BATCH_KEYS + 2 <= seenset_proto::codec::MAX_FIELDS);

/// The most connections that can be allowed: past the ports that one client has.
const MAX_CONNECTIONS: usize = 1_000_000;

/// What a server can be told. Each field is a flag (`--data-dir`), an environment variable
/// (`SEENSET_DATA_DIR`) and a key of the configuration file (`data_dir = "..."`).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port to listen on. Port 0 takes a free one, and the log says which
    #[arg(long, env = "SEENSET_LISTEN", value_name = "ADDRESS", value_parser = values::address, default_value_t = Config::default().listen)]
    pub listen: SocketAddr,

    /// Address and port to serve metrics on, for Prometheus, at /metrics [default: none are served]
    #[arg(long, env = "SEENSET_METRICS_LISTEN", value_name = "ADDRESS", value_parser = values::address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_listen: Option<SocketAddr>,

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

    /// Kind of the default filter: plain, counting (keys can be removed; four times the memory),
    /// aging (keys are forgotten after --max-age; four times the memory) or scaling (it knows when
    /// it is full, and grows then, or does what else --on-full says)
    #[arg(long, env = "SEENSET_KIND", value_name = "KIND", default_value_t = KindName::default())]
    #[serde(with = "values::text")]
    pub kind: KindName,

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

    /// Most connections at once. One more is closed as soon as it is made
    #[arg(long, env = "SEENSET_MAX_CONNECTIONS", value_name = "CONNECTIONS", default_value_t = Config::default().max_connections)]
    pub max_connections: usize,

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
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)),
            metrics_listen: None,
            data_dir: "./seenset-data".into(),
            capacity: 100_000_000,
            false_positive_rate: None,
            bit_count: None,
            hash_count: None,
            layout: Layout::default(),
            kind: KindName::default(),
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
            max_connections: 4096,
            max_key_bytes: 65_536,
            max_batch_keys: 100_000,
            log_format: LogFormat::default(),
            log_filter: "info".to_owned(),
        }
    }
}

/// seenset-server: a networked deduplication service.
///
/// Every setting can also stand in the environment (--data-dir as SEENSET_DATA_DIR) and in a
/// TOML file (data_dir); flags win over the environment, the environment over the file.
#[derive(Debug, Parser)]
#[command(name = "seenset-server", version, max_term_width = 100)]
struct Arguments {
    /// TOML file with settings
    #[arg(long, env = "SEENSET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the settings in effect, as a file that --config reads, and exit
    #[arg(long)]
    print_config: bool,

    #[command(flatten)]
    settings: Config,

    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    Verify(Verify),
}

/// Say what is wrong with the data directory of a server that does not run, and change nothing.
///
/// Reads all of it, as a start does, and tells all that is damaged, where a start ends with the
/// first. The exit code is 0 if a server starts on it.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Verify {
    /// Directory of the snapshots and the log
    #[arg(env = "SEENSET_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,

    /// Write anew what is damaged, without what cannot be read, so that a server starts on it. It
    /// forgets the keys that were there, which are new once more. Damaged files are kept under
    /// other names (.damaged)
    #[arg(long)]
    pub salvage: bool,
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Run a server.
    Run(Box<Config>),
    /// Look at the data directory of one that does not run.
    Verify(Verify),
    /// Print this text and exit: help, the version, the configuration.
    Print(String),
}

/// A usage error: one line that names the setting, its value and what it must be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl Config {
    /// Reads the configuration from arguments (the program's name first), the environment
    /// and the file that these name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a setting that is unknown, malformed or out of range.
    pub fn load(
        arguments: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = OsString>,
    ) -> Result<Command, ConfigError> {
        let matches = match Arguments::command().try_get_matches_from(arguments) {
            Ok(matches) => matches,
            Err(error) if !error.use_stderr() => return Ok(Command::Print(error.to_string())),
            Err(error) => return Err(ConfigError(one_line(&error))),
        };
        refuse_unknown(variables)?;
        let arguments =
            Arguments::from_arg_matches(&matches).map_err(|error| ConfigError(one_line(&error)))?;
        if let Some(Subcommand::Verify(verify)) = arguments.command {
            refuse_settings(&matches)?;
            return Ok(Command::Verify(verify));
        }
        arguments.settings.check().map_err(ConfigError)?;

        let mut config = match &arguments.config {
            Some(path) => overlay(path, &arguments.settings, &matches)?,
            None => arguments.settings,
        };
        config.check().map_err(ConfigError)?;
        if config.false_positive_rate.is_none() && config.bit_count.is_none() {
            config.false_positive_rate = Some(default_filter::FALSE_POSITIVE_RATE);
        }
        config
            .default_filter()
            .and_then(|request| match request.resolve() {
                // One that is there may have been made when fewer bits kept the rate; if there is
                // none, the start ends with this.
                Err(SpecError::RateOutOfReach { .. }) if request.kind.has_cells() => Ok(()),
                resolved => resolved.map(|_| ()),
            })
            .map_err(|error| ConfigError(format!("the default filter cannot be made: {error}")))?;
        if arguments.print_config {
            let text = toml::to_string(&config).map_err(|error| ConfigError(error.to_string()))?;
            return Ok(Command::Print(text));
        }
        Ok(Command::Run(Box::new(config)))
    }

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
        within("max_key_bytes", self.max_key_bytes, MAX_MESSAGE_BYTES / 2)?;
        within("max_batch_keys", self.max_batch_keys, MAX_BATCH_KEYS)?;
        within("max_connections", self.max_connections, MAX_CONNECTIONS)?;
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

/// Reads a configuration file and lays over it what flags and the environment give.
fn overlay(path: &Path, given: &Config, matches: &ArgMatches) -> Result<Config, ConfigError> {
    let in_file = |message: String| ConfigError(format!("{}: {message}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|error| in_file(format!("cannot read the configuration file: {error}")))?;
    let file: Config = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        in_file(format!(
            "line {line}: {}",
            error.message().replace('\n', " ")
        ))
    })?;
    file.check().map_err(in_file)?;

    // As maps from names to values, so that a field added to `Config` needs no line here.
    let impossible = |error: serde_json::Error| in_file(error.to_string());
    let is_given = |name: &str| {
        use ValueSource::{CommandLine, EnvVariable};
        matches!(matches.value_source(name), Some(CommandLine | EnvVariable))
    };
    // A path need not be text, as those values are.
    let mut textual = given.clone();
    textual.data_dir.clone_from(&file.data_dir);
    let mut settings = serde_json::to_value(&file).map_err(impossible)?;
    let textual = serde_json::to_value(textual).map_err(impossible)?;
    for (name, value) in textual.as_object().into_iter().flatten() {
        if is_given(name)
            && let Some(settings) = settings.as_object_mut()
        {
            settings.insert(name.clone(), value.clone());
        }
    }
    let mut config: Config = serde_json::from_value(settings).map_err(impossible)?;
    if is_given("data_dir") {
        config.data_dir.clone_from(&given.data_dir);
    }
    Ok(config)
}

/// A command has no use for the settings of a server; to pass over them would leave those who
/// give them in the dark.
fn refuse_settings(matches: &ArgMatches) -> Result<(), ConfigError> {
    let is_given = |id: &&clap::Id| {
        matches.value_source(id.as_str()) == Some(ValueSource::CommandLine)
            // The group of all settings counts as given with any of them.
            && matches.try_contains_id(id.as_str()).is_ok_and(|given| given)
    };
    match matches.ids().find(is_given) {
        None => Ok(()),
        Some(id) => Err(ConfigError(format!(
            "{id} is a setting of a server, which verify does not start; see verify --help"
        ))),
    }
}

/// A misspelt variable would leave its setting at the default without a word.
fn refuse_unknown(variables: impl IntoIterator<Item = OsString>) -> Result<(), ConfigError> {
    let command = Arguments::command();
    let known: Vec<&str> = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str())
        // What the command line program reads.
        .chain(["SEENSET_SERVER"])
        .collect();
    for name in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with("SEENSET_")) else {
            continue;
        };
        // Kubernetes sets these in every container beside a service named seenset.
        let of_kubernetes =
            name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT");
        if !of_kubernetes && !known.contains(&name) {
            return Err(ConfigError(format!(
                "the environment variable {name} is unknown; --help lists those there are"
            )));
        }
    }
    Ok(())
}

/// What clap has to say, without its usage lines.
fn one_line(error: &clap::Error) -> String {
    let mut text = error.to_string();
    // It repeats what was given, and what was given may be more than one line.
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
        if let Some(ContextValue::String(given)) = error.get(kind)
            && given.contains('\n')
        {
            text = text.replace(given, &given.escape_debug().to_string());
        }
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    // What is missing stands in lines of its own.
    let missing = lines.clone().next().filter(|_| first.ends_with(':'));
    let first = [Some(first), missing].into_iter().flatten();
    let first = first.collect::<Vec<_>>().join(" ");
    let tip = lines.find_map(|line| line.strip_prefix("tip: "));
    match tip {
        Some(tip) => format!("{first}: {tip}; --help lists all settings"),
        None => format!("{first}; --help lists all settings"),
    }
}

#[cfg(test)]
mod tests;
