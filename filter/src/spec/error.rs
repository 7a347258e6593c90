//! The reasons why a spec was refused.

use std::time::Duration;

use thiserror::Error;

use super::{Aging, HashFunction, KindName, Layout};
use crate::{
    limits::{MAX_BIT_COUNT, MAX_HASH_COUNT},
    profile::ProfileError,
    scaling::ScalingError,
    stamps::MAX_SLICES,
};

/// The reason why a spec was refused. Field names are those of the contract's `FilterSpec`.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SpecError {
    /// No capacity was given.
    #[error("capacity is 0; it must be at least 1: the number of keys the filter is for")]
    Capacity,
    /// The rate is not a probability that a filter can have.
    #[error(
        "false_positive_rate is {value}; it must be above 0 and below 1 (or be left out \
         where bit_count is given)"
    )]
    FalsePositiveRate {
        /// The rate asked for.
        value: f64,
    },
    /// Too many bits for each key.
    #[error("hash_count is {value}; it must be 1 to {MAX_HASH_COUNT}, or be left out")]
    HashCount {
        /// The number of bits for each key asked for.
        value: u32,
    },
    /// No bits, or too many.
    #[error("bit_count is {value}; it must be 1 to {MAX_BIT_COUNT}, or be left out")]
    BitCount {
        /// The number of bits asked for.
        value: u64,
    },
    /// The bits given cannot keep the rate given.
    #[error(
        "bit_count {bit_count} gives a rate of {reached:.3e} at capacity, and \
         false_positive_rate is {asked:.3e}: give more bits, or leave one of the two out"
    )]
    RateOutOfReach {
        /// The bits asked for.
        bit_count: u64,
        /// The rate asked for.
        asked: f64,
        /// The rate that this number of bits gives at capacity.
        reached: f64,
    },
    /// The kind has no such layout.
    #[error(
        "layout is {layout}; a filter of the kind {kind} has the layout blocked, where all that \
         is known of a key lies together"
    )]
    LayoutOfKind {
        /// The kind asked for.
        kind: KindName,
        /// The layout asked for.
        layout: Layout,
    },
    /// The layout requires another hash function.
    #[error(
        "hash_function is {function}, and a filter of the layout {layout} has {}: leave \
         hash_function out",
        layout.hash_function()
    )]
    HashFunctionOfLayout {
        /// The hash function asked for.
        function: HashFunction,
        /// The layout asked for.
        layout: Layout,
    },
    /// A filter with this layout needs data that only a dump contains.
    #[error(
        "layout is redisbloom, which no new filter can have: import a dump of RedisBloom, or make \
         a filter of another layout"
    )]
    ImportedLayout,
    /// The other program can have no such filter.
    #[error("with the layout {layout}, {reason}")]
    Exchange {
        /// The layout asked for.
        layout: Layout,
        /// The error, with the field, its value and the limit.
        reason: String,
    },
    /// No age, or an age that is too short for its slices, or too long.
    #[error(
        "aging.max_age is {value:?}; it must be {least:?} (a second for each slice) to {most:?}: \
         for how long a key is remembered"
    )]
    MaxAge {
        /// The age asked for.
        value: Duration,
        /// The shortest age.
        least: Duration,
        /// The longest age.
        most: Duration,
    },
    /// Ages were given, but the kind has none.
    #[error(
        "max_age, slices and refresh say how keys age, and kind is {kind}: make it aging, or leave \
         them out"
    )]
    AgesOfKind {
        /// The kind asked for.
        kind: KindName,
    },
    /// Layers were given, but the kind has none.
    #[error(
        "growth, on_full and a bound on the memory of one filter say what becomes of a filter that \
         is full, and kind is {kind}: make it scaling, or leave them out"
    )]
    LayersOfKind {
        /// The kind asked for.
        kind: KindName,
    },
    /// No slices, or too many.
    #[error(
        "aging.slices is {value}; it must be 1 to {MAX_SLICES}, or be left out for {}",
        Aging::DEFAULT_SLICES
    )]
    Slices {
        /// The number of slices asked for.
        value: u32,
    },
    /// Bits were given, but they are computed for each layer.
    #[error(
        "bit_count and hash_count are those of each layer of a filter of the kind scaling, and \
         computed: leave them out, and give capacity and false_positive_rate"
    )]
    BitsOfLayers,
    /// The layers cannot be planned.
    #[error(transparent)]
    Scaling(#[from] ScalingError),
    /// The key profile is not valid.
    #[error("key_profile.{0}")]
    KeyProfile(#[from] ProfileError),
    /// No filter of a possible size keeps the rate.
    #[error(
        "capacity {capacity} with false_positive_rate {false_positive_rate:e} needs more \
         than {MAX_BIT_COUNT} bits: lower the capacity or raise the rate"
    )]
    Unreachable {
        /// The capacity asked for.
        capacity: u64,
        /// The rate asked for.
        false_positive_rate: f64,
    },
}
