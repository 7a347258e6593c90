//! Which bits of a filter a key may set: layouts of our own, and those of other programs.

use std::{fmt, str::FromStr};

use crate::{exchange::guava::Strategy, hash::HashFunction};

/// Which bits of a filter a key may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// One cache line for each key: see [`crate::blocked`].
    #[default]
    Blocked,
    /// Anywhere in a shard: see [`crate::classic`].
    Classic,
    /// Anywhere in the filter, as Guava has it since release 13: see [`crate::exchange::guava`].
    Guava,
    /// The same, as the first releases of Guava had it.
    GuavaMitz32,
    /// Anywhere in a layer, as RedisBloom has it: see [`crate::exchange::redisbloom`]. Made by an
    /// import alone.
    RedisBloom,
}

impl Layout {
    /// Those of our own.
    pub const OWN: [Self; 2] = [Self::Blocked, Self::Classic];
    /// Every layout there is.
    pub const ALL: [Self; 5] = [
        Self::Blocked,
        Self::Classic,
        Self::Guava,
        Self::GuavaMitz32,
        Self::RedisBloom,
    ];

    /// The name that flags and logs use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Classic => "classic",
            Self::Guava => "guava",
            Self::GuavaMitz32 => "guava-mitz-32",
            Self::RedisBloom => "redisbloom",
        }
    }

    /// The hash function of a filter where none is asked for. Filters of other programs have no
    /// other.
    pub const fn hash_function(self) -> HashFunction {
        match self {
            Self::Blocked | Self::Classic => HashFunction::SipHash13_128,
            Self::Guava | Self::GuavaMitz32 => HashFunction::Murmur3X64_128,
            Self::RedisBloom => HashFunction::Murmur2_64A,
        }
    }

    /// Whether a filter of this layout can have a hash function.
    pub const fn takes(self, function: HashFunction) -> bool {
        use HashFunction::{Murmur2_64A, Murmur3X64_128, SipHash13_128, Xxh3_128};
        match self {
            Self::Blocked | Self::Classic => matches!(function, SipHash13_128 | Xxh3_128),
            Self::Guava | Self::GuavaMitz32 => matches!(function, Murmur3X64_128),
            Self::RedisBloom => matches!(function, Murmur2_64A),
        }
    }

    /// How Guava makes positions of a hash, where it is one of its layouts.
    pub const fn strategy(self) -> Option<Strategy> {
        match self {
            Self::Guava => Some(Strategy::Mitz64),
            Self::GuavaMitz32 => Some(Strategy::Mitz32),
            Self::Blocked | Self::Classic | Self::RedisBloom => None,
        }
    }
}

impl From<Strategy> for Layout {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Mitz64 => Self::Guava,
            Strategy::Mitz32 => Self::GuavaMitz32,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|layout| layout.name() == name)
            .ok_or_else(|| {
                format!(
                    "there is no layout named {name:?}: use blocked, classic, guava or guava-mitz-32"
                )
            })
    }
}
