//! Settings that are written as text: times, sizes and formats.

use std::{fmt, str::FromStr, time::Duration};

use seenset_proto::units;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Parses a number of keys or bits.
pub fn whole(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .map_err(|_| "write a whole number in digits, as 100000000")
}

/// A span of time, written as `90` (seconds), `90s`, `5m` or `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period(Duration);

impl Period {
    /// Returns a span of the given number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Returns the span; `None` if it is 0, which stands for "never".
    pub fn nonzero(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }

    /// Returns the span.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Period {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        units::duration(text).map(Self)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// The durability of a change at the time when its call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DurabilityMode {
    /// The change is on stable storage.
    Always,
    /// The change is in the page cache of the kernel, and reaches stable storage soon.
    #[default]
    Interval,
    /// The change can be lost until the next snapshot.
    Snapshot,
}

impl DurabilityMode {
    const ALL: [(Self, &str); 3] = [
        (Self::Always, "always"),
        (Self::Interval, "interval"),
        (Self::Snapshot, "snapshot"),
    ];
}

impl FromStr for DurabilityMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = Self::ALL.into_iter().find(|(_, name)| *name == text);
        mode.map(|(mode, _)| mode)
            .ok_or_else(|| "it must be always, interval or snapshot".to_owned())
    }
}

impl fmt::Display for DurabilityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(mode, _)| mode == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

/// An amount of memory: a share of the machine's, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// A percentage of the memory of the machine (or the container).
    Percent(u8),
    /// A number of bytes.
    Bytes(u64),
}

impl MemoryLimit {
    /// Returns the limit on a machine that has `machine_bytes`.
    pub fn bytes(self, machine_bytes: u64) -> u64 {
        match self {
            Self::Percent(percent) => machine_bytes / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err("a share must be 1% to 100%".to_owned()),
            };
        }
        units::nonzero_size(text)
            .map(Self::Bytes)
            .map_err(|error| format!("{error}, or a share as 80%"))
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

/// A number of bytes, written as `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// Returns a size of the given number of bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        units::size(text).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(MIB) => write!(f, "{}MiB", bytes / MIB),
            bytes => bytes.fmt(f),
        }
    }
}

/// The format of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("it must be text or json".to_owned()),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Serialises a setting that can be left out, as [`text`] does.
pub mod optional {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        value: &Option<impl Display>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err = String>,
    {
        super::text::deserialize(from).map(Some)
    }
}

/// Serialises a value as the text that its flag takes.
pub mod text {
    use std::{fmt::Display, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// The forms in a file: a number can stand without quotes.
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "text in quotes, or a whole number")]
    enum Written {
        Text(String),
        Number(u64),
    }

    pub fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err = String>,
    {
        let text = match Written::deserialize(from)? {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        };
        text.parse()
            .map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
    }
}

/// Checks a filter of log lines, such as `info` or `info,seenset_server::grpc=debug`.
///
/// # Errors
///
/// A message that says what is wrong with the filter.
pub fn check_log_filter(filter: &str) -> Result<(), String> {
    EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    // A misspelt level would be taken for the name of a part, and all other parts would be silent.
    for directive in filter.split(',') {
        let is_level = directive.trim().parse::<LevelFilter>().is_ok();
        if !is_level && !directive.contains('=') {
            return Err(format!(
                "{directive:?} is no level; use off, error, warn, info, debug or trace, or \
                 PART=LEVEL"
            ));
        }
    }
    Ok(())
}
