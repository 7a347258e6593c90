//! The limits of every filter.

/// The most bits that a key can set.
pub const MAX_HASH_COUNT: u32 = 64;
/// The most bits that a filter can have: 128 TiB, more than any machine has, and far from where
/// arithmetic on bits could overflow.
pub const MAX_BIT_COUNT: u64 = 1 << 50;
