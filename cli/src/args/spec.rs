//! The arguments that say what a filter is made for.

use std::time::Duration;

use clap::{ValueEnum, value_parser};
use seenset_filter::spec::{KindName, Layout};
use seenset_proto::units;

use crate::failure::Failure;

/// What a filter is made for.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Spec {
    /// The number of distinct keys for which the false-positive rate holds (n); of a scaling filter,
    /// those that its first layer is for.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) capacity: u64,
    /// The share of keys never added that are reported as seen, at capacity (p)
    /// [default: 0.001, or what --bit-count gives].
    #[arg(short = 'p', long, value_name = "P")]
    pub(crate) false_positive_rate: Option<f64>,
    /// The size in bits (m) [default: the smallest that keeps the rate].
    #[arg(short = 'm', long, value_name = "M")]
    pub(crate) bit_count: Option<u64>,
    /// The number of bits that each key sets (k), 1 to 64 [default: the best].
    #[arg(short = 'k', long, value_name = "K")]
    pub(crate) hash_count: Option<u32>,
    /// Which bits a key may set [default: blocked; of `plan`: blocked and classic].
    #[arg(long, value_enum)]
    pub(crate) layout: Option<LayoutArg>,
    /// What turns a key into bits [default: siphash-1-3-128, or that of the layout].
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

/// What is to be other than it is.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct SpecChange {
    /// The number of distinct keys for which the false-positive rate holds (n) [default: as it is].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) capacity: Option<u64>,
    /// The share of keys never added that are reported as seen, at capacity (p) [default: as it is].
    #[arg(short = 'p', long, value_name = "P")]
    pub(crate) false_positive_rate: Option<f64>,
    /// What the filter can do besides [default: as it is].
    #[arg(long, value_enum)]
    pub(crate) kind: Option<KindArg>,
    #[command(flatten)]
    pub(crate) aging: AgingArgs,
    #[command(flatten)]
    pub(crate) scaling: ScalingArgs,
}

/// How the keys of an aging filter age.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct AgingArgs {
    /// For how long an aging filter remembers a key: 12h, 30days. It is forgotten within one
    /// slice after that.
    #[arg(long, value_name = "DURATION", value_parser = units::duration,
          required_if_eq("kind", "aging"))]
    pub(crate) max_age: Option<Duration>,
    /// The number of equal parts of --max-age, 1 to 13 [default: 8].
    #[arg(long, value_name = "SLICES", requires = "max_age")]
    pub(crate) slices: Option<u32>,
    /// Have a key that is seen by query-and-add remembered from then on.
    #[arg(long, requires = "max_age")]
    pub(crate) refresh: bool,
}

/// What becomes of a scaling filter that is full.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ScalingArgs {
    /// How many times the size of the layer before a new one of a scaling filter has, 2 to 16
    /// [default: 2].
    #[arg(long, value_name = "FACTOR", value_parser = value_parser!(u32).range(2..=16))]
    pub(crate) growth: Option<u32>,
    /// The most memory that all layers of a scaling filter may take together: 12GiB, or a number of
    /// bytes [default: what the server has].
    #[arg(long, value_name = "SIZE", value_parser = units::nonzero_size)]
    pub(crate) max_memory: Option<u64>,
    /// What becomes of new keys when a scaling filter is full [default: scale].
    #[arg(long, value_enum)]
    pub(crate) on_full: Option<OnFullArg>,
}

/// What keys become before they are hashed.
#[derive(Debug, clap::Args)]
pub(crate) struct Profile {
    /// Bring URLs into a canonical form before they are hashed, by the rules of this name:
    /// url-v1 [default: keys are hashed as they come].
    #[arg(long, value_name = "NAME")]
    pub(crate) key_profile: Option<String>,
    /// Sort the parameters of a URL's query by their names.
    #[arg(long, requires = "key_profile")]
    pub(crate) sort_query: bool,
    /// Leave a parameter of a URL's query out: sid, or utm_* for all names that begin so.
    /// Several with commas, or one after the other.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "key_profile"
    )]
    pub(crate) drop_parameter: Vec<String>,
}

impl Spec {
    /// Checks what the parser cannot.
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

    /// The kind that is asked for, or else the default.
    pub(crate) fn kind(&self) -> KindArg {
        let layout = self.layout.map_or(Layout::default(), Layout::from);
        let default = || match KindName::default_for(self.bit_count, self.hash_count, layout) {
            KindName::Scaling => KindArg::Scaling,
            _ => KindArg::Plain,
        };
        self.kind.unwrap_or_else(default)
    }

    /// The rate that is asked for, the default included.
    pub(crate) fn rate(&self) -> Option<f64> {
        match (self.false_positive_rate, self.bit_count) {
            (None, None) => Some(0.001),
            (rate, _) => rate,
        }
    }
}

/// Which bits a key may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutArg {
    /// One cache line for each key: the fastest.
    Blocked,
    /// Anywhere: the fewest bits for each key.
    Classic,
    /// As Guava's BloomFilter: it can be exported to Java. Hashes keys without a secret.
    Guava,
    /// The same, for the first releases of Guava.
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

/// What turns a key into bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashFunctionArg {
    /// SipHash-1-3 with 128 bits: for keys that others choose.
    #[value(name = "siphash-1-3-128")]
    SipHash,
    /// XXH3 with 128 bits: faster, for keys that are trusted.
    #[value(name = "xxh3-128")]
    Xxh3,
}

/// What a filter can do besides to tell what it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Nothing. It does not grow, and past its capacity it calls more and more new keys seen.
    Plain,
    /// Keys can be removed; four times the memory.
    Counting,
    /// Keys are forgotten after --max-age; four times the memory.
    Aging,
    /// It knows when it is full, and grows then, or does what else --on-full says. A key waits for
    /// one cache line of each layer.
    Scaling,
}

/// What becomes of new keys when a scaling filter is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OnFullArg {
    /// They go to another layer, and the rate stays under the one asked for. When there may be no
    /// more of these, they are refused.
    #[default]
    Scale,
    /// They are refused.
    Reject,
    /// They are added, and the rate rises.
    Degrade,
}
