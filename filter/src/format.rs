//! The formats of a filter's memory, in which a shard holds all bits of a key.

use std::fmt;

use crate::{
    hash::KeyHash,
    shape::{Dimensions, Grain, Shape},
};

/// The expected rates of a filter. [`crate::sizing`] has them for all arguments.
pub trait Rates: fmt::Debug {
    /// Returns the expected false-positive rate after `keys` distinct keys were added.
    fn rate(&self, keys: f64) -> f64;

    /// Returns the expected number of distinct keys when the share `fill_ratio` of the bits is set.
    /// The share is above 0 and below 1, here and below.
    fn keys_at_fill(&self, fill_ratio: f64) -> f64;

    /// Returns the expected false-positive rate when the share `fill_ratio` of the bits is set.
    fn rate_at_fill(&self, fill_ratio: f64) -> f64 {
        self.rate(self.keys_at_fill(fill_ratio))
    }
}

/// A format of memory, with the sizes of a filter in it.
pub trait Format: Rates + Copy + From<Dimensions> + AsRef<Shape> {
    /// The smallest parts of the memory.
    const GRAIN: Grain;
    /// The part of a shard in which the bits of a key lie.
    const KEY_AREA: KeyArea;

    /// Returns the format with the sizes of a filter of at least `bit_count` bits, which must be at
    /// least 1 and at most [`crate::limits::MAX_BIT_COUNT`].
    fn new(bit_count: u64, hash_count: u32) -> Self {
        let shape = Shape::new(Self::GRAIN, bit_count, hash_count);
        shape.dimensions().into()
    }

    /// Returns the sizes.
    #[inline]
    fn shape(&self) -> &Shape {
        self.as_ref()
    }

    /// Returns the number of cache lines that are visited for a key.
    fn key_lines(&self) -> usize;

    /// Calls `visit` with the index of a word in each cache line that a key's bits lie in, so that
    /// the caller can prefetch them.
    fn visit_lines(&self, hash: KeyHash, visit: impl FnMut(usize));

    /// Returns the indices of a key's bits in its shard, in ascending order. If two of its values
    /// choose the same bit, the index comes once. In filters of cells, the indices are those of the
    /// cells.
    fn bits(&self, hash: KeyHash) -> Vec<u64>;
}

/// Declares a type that has the sizes of a filter, for a format.
macro_rules! declare_format {
    ($(#[$attribute:meta])* $format:ident) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $format($crate::shape::Shape);

        impl From<$crate::shape::Dimensions> for $format {
            fn from(dimensions: $crate::shape::Dimensions) -> Self {
                let grain = <Self as $crate::format::Format>::GRAIN;
                Self($crate::shape::Shape::of(grain, dimensions))
            }
        }

        impl AsRef<$crate::shape::Shape> for $format {
            #[inline]
            fn as_ref(&self) -> &$crate::shape::Shape {
                &self.0
            }
        }
    };
}
pub(crate) use declare_format;

/// The part of a shard in which the bits of a key lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyArea {
    /// One block, to whose lanes the bits are dealt.
    Block,
    /// Two lines of cells near each other, to whose lanes the cells are dealt.
    Lines,
    /// The whole shard.
    Shard,
}

#[cfg(test)]
pub(crate) mod tests;
