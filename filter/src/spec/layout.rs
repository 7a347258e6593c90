//! The bits of a filter that a key can set: layouts of our own, and layouts of other programs.

use crate::{exchange::guava::Strategy, hash::HashFunction, names::by_name};

/// The bits of a filter that a key can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// One cache line for each key: see [`crate::blocked`].
    #[default]
    Blocked,
    /// Anywhere in a shard: see [`crate::classic`].
    Classic,
    /// Anywhere in the filter, as in Guava since release 13: see [`crate::exchange::guava`].
    Guava,
    /// Anywhere in the filter, as in the first releases of Guava.
    GuavaMitz32,
    /// Anywhere in a layer, as in RedisBloom: see [`crate::exchange::redisbloom`]. Created only by
    /// an import.
    RedisBloom,
}

impl Layout {
    /// The layouts of our own.
    pub const OWN: [Self; 2] = [Self::Blocked, Self::Classic];
    /// Every layout.
    pub const ALL: [Self; 5] = [
        Self::Blocked,
        Self::Classic,
        Self::Guava,
        Self::GuavaMitz32,
        Self::RedisBloom,
    ];

    /// Returns the name that flags and logs use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Classic => "classic",
            Self::Guava => "guava",
            Self::GuavaMitz32 => "guava-mitz-32",
            Self::RedisBloom => "redisbloom",
        }
    }

    /// Returns the hash function of a filter whose request names none. Filters of other programs
    /// have no other.
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
}

impl From<Strategy> for Layout {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Mitz64 => Self::Guava,
            Strategy::Mitz32 => Self::GuavaMitz32,
        }
    }
}

by_name!(
    Layout,
    name,
    "layout",
    [Self::Blocked, Self::Classic, Self::Guava, Self::GuavaMitz32]
);
