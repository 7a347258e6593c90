//! The arguments for the spec of a filter.

use std::time::Duration;

use clap::{ValueEnum, value_parser};
use seenset_filter::{
    scaling::OnFullName,
    spec::{KindName, Layout},
};
use seenset_proto::units;

use crate::failure::Failure;

/// The spec of a new filter.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Spec {
    /// The number of distinct keys for which the false-positive rate holds (n). In a scaling
    /// filter, the capacity of its first layer.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) capacity: u64,
    /// The false-positive rate at capacity (p): the share of keys never added that the filter
    /// reports as seen [default: 0.001, or the rate that --bit-count gives].
    #[arg(short = 'p', long, value_name = "P")]
    pub(crate) false_positive_rate: Option<f64>,
    /// The size in bits (m) [default: the smallest size that keeps the rate].
    #[arg(short = 'm', long, value_name = "M")]
    pub(crate) bit_count: Option<u64>,
    /// The number of bits that each key sets (k), 1 to 64 [default: the best number].
    #[arg(short = 'k', long, value_name = "K")]
    pub(crate) hash_count: Option<u32>,
    /// The layout: the bits that a key can set [default: blocked; of `plan`: blocked and classic].
    #[arg(long, value_enum)]
    pub(crate) layout: Option<LayoutArg>,
    /// The hash function that turns a key into bits [default: siphash-1-3-128, or the hash function
    /// of the layout].
    #[arg(long, value_enum)]
    pub(crate) hash_function: Option<HashFunctionArg>,
    /// The kind of the filter [default: scaling; plain with --bit-count, --hash-count or a --layout
    /// other than blocked].
    #[arg(long, value_enum)]
    pub(crate) kind: Option<KindArg>,
    #[command(flatten)]
    pub(crate) aging: AgingArgs,
    #[command(flatten)]
    pub(crate) scaling: ScalingArgs,
}

/// The changes of a spec.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct SpecChange {
    /// The number of distinct keys for which the false-positive rate holds (n) [default:
    /// unchanged].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) capacity: Option<u64>,
    /// The false-positive rate at capacity (p): the share of keys never added that the filter
    /// reports as seen [default: unchanged].
    #[arg(short = 'p', long, value_name = "P")]
    pub(crate) false_positive_rate: Option<f64>,
    /// The kind of the filter [default: unchanged].
    #[arg(long, value_enum)]
    pub(crate) kind: Option<KindArg>,
    #[command(flatten)]
    pub(crate) aging: AgingArgs,
    #[command(flatten)]
    pub(crate) scaling: ScalingArgs,
}

/// The arguments of an aging filter.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct AgingArgs {
    /// The time for which an aging filter remembers a key: 12h, 30days. The filter forgets the key
    /// within one slice after this time.
    #[arg(long, value_name = "DURATION", value_parser = units::duration,
          required_if_eq("kind", "aging"))]
    pub(crate) max_age: Option<Duration>,
    /// The number of slices (equal parts of --max-age), 1 to 13 [default: 8].
    #[arg(long, value_name = "SLICES", requires = "max_age")]
    pub(crate) slices: Option<u32>,
    /// Restart the --max-age of a key each time that query-and-add finds it.
    #[arg(long, requires = "max_age")]
    pub(crate) refresh: bool,
}

/// The arguments of a scaling filter.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ScalingArgs {
    /// The growth factor of a scaling filter: the size of each layer as a multiple of the layer
    /// before, 2 to 16 [default: 2].
    #[arg(long, value_name = "FACTOR", value_parser = value_parser!(u32).range(2..=16))]
    pub(crate) growth: Option<u32>,
    /// The memory limit of all layers of a scaling filter together: 12GiB, or a number of bytes
    /// [default: the memory that the server has left].
    #[arg(long, value_name = "SIZE", value_parser = units::nonzero_size)]
    pub(crate) max_memory: Option<u64>,
    /// The behaviour of a scaling filter when it is full and new keys come [default: scale].
    #[arg(long, value_enum)]
    pub(crate) on_full: Option<OnFullArg>,
}

/// The rules that bring keys into a canonical form before they are hashed.
#[derive(Debug, clap::Args)]
pub(crate) struct Profile {
    /// The rules that bring URLs into a canonical form before they are hashed: url-v1 [default:
    /// keys are hashed unchanged].
    #[arg(long, value_name = "NAME")]
    pub(crate) key_profile: Option<String>,
    /// Sort the parameters of a URL's query by their names.
    #[arg(long, requires = "key_profile")]
    pub(crate) sort_query: bool,
    /// Drop a parameter from a URL's query: sid, or utm_* for all names with this prefix. To give
    /// several, separate them with commas or repeat the flag.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "key_profile"
    )]
    pub(crate) drop_parameter: Vec<String>,
}

impl Spec {
    /// Checks the combinations that the argument parser cannot check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.aging.max_age.is_some() && self.kind() != KindArg::Aging {
            let text = "--max-age, --slices and --refresh are for --kind aging";
            return Err(Failure::Usage(text.to_owned()));
        }
        self.check_layers()
    }

    fn check_layers(&self) -> Result<(), Failure> {
        let ScalingArgs {
            growth,
            max_memory,
            on_full,
        } = self.scaling;
        let is_bounded = growth.is_some() || max_memory.is_some();
        let text = match (self.kind() == KindArg::Scaling, on_full) {
            (false, on_full) if is_bounded || on_full.is_some() => {
                "--growth, --max-memory and --on-full are for --kind scaling"
            }
            (true, _) if self.bit_count.is_some() || self.hash_count.is_some() => {
                "--bit-count and --hash-count are not for --kind scaling: each layer has its own"
            }
            (true, Some(OnFullArg::Reject | OnFullArg::Degrade)) if is_bounded => {
                "--growth and --max-memory are for --on-full scale: with another there is one layer"
            }
            _ => return Ok(()),
        };
        Err(Failure::Usage(text.to_owned()))
    }

    /// Returns the kind that the arguments ask for, or the default.
    pub(crate) fn kind(&self) -> KindArg {
        let layout = self.layout.map_or(Layout::default(), Layout::from);
        let default = || match KindName::default_for(self.bit_count, self.hash_count, layout) {
            KindName::Scaling => KindArg::Scaling,
            _ => KindArg::Plain,
        };
        self.kind.unwrap_or_else(default)
    }

    /// Returns the false-positive rate that the arguments ask for, or the default; `None` if only a
    /// number of bits is given.
    pub(crate) fn rate(&self) -> Option<f64> {
        match (self.false_positive_rate, self.bit_count) {
            (None, None) => Some(0.001),
            (rate, _) => rate,
        }
    }
}

/// The layout of a filter: the bits that a key can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// All bits of a key are in one cache line: the fastest.
    Blocked,
    /// The bits of a key can be anywhere: the fewest bits for each key.
    Classic,
    /// The layout of Guava's BloomFilter: the filter can be exported to Java. Hashes keys without a
    /// secret.
    Guava,
    /// The layout of the first releases of Guava. Hashes keys without a secret.
    #[value(name = "guava-mitz-32")]
    GuavaMitz32,
}

impl From<LayoutArg> for Layout {
    fn from(layout: LayoutArg) -> Self {
        match layout {
            LayoutArg::Blocked => Self::Blocked,
            LayoutArg::Classic => Self::Classic,
            LayoutArg::Guava => Self::Guava,
            LayoutArg::GuavaMitz32 => Self::GuavaMitz32,
        }
    }
}

/// The hash function that turns a key into bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashFunctionArg {
    /// SipHash-1-3 with 128 bits: for any keys, also those that untrusted clients choose.
    #[value(name = "siphash-1-3-128")]
    SipHash,
    /// XXH3 with 128 bits: faster, for trusted keys only.
    #[value(name = "xxh3-128")]
    Xxh3,
}

/// The kind of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Does not grow. Past its capacity it reports more and more new keys as seen.
    Plain,
    /// Keys can be removed. Takes four times the memory.
    Counting,
    /// Keys are forgotten after --max-age. Takes four times the memory.
    Aging,
    /// Detects when it is full. Then it grows, or does what --on-full says. A query reads one cache
    /// line of each layer.
    Scaling,
}

impl From<KindArg> for KindName {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Plain => Self::Plain,
            KindArg::Counting => Self::Counting,
            KindArg::Aging => Self::Aging,
            KindArg::Scaling => Self::Scaling,
        }
    }
}

/// The behaviour of a scaling filter when it is full and new keys come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OnFullArg {
    /// Adds a layer for the new keys. The false-positive rate stays under the one asked for. When
    /// the filter may have no more layers, it refuses new keys.
    #[default]
    Scale,
    /// Refuses new keys.
    Reject,
    /// Adds new keys, and the false-positive rate rises.
    Degrade,
}

impl From<OnFullArg> for OnFullName {
    fn from(on_full: OnFullArg) -> Self {
        match on_full {
            OnFullArg::Scale => Self::Scale,
            OnFullArg::Reject => Self::Reject,
            OnFullArg::Degrade => Self::Degrade,
        }
    }
}
