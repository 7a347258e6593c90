//! The formats of a filter's memory, in which a shard holds all bits of a key.

use std::fmt;

use crate::{
    hash::KeyHash,
    shape::{Dimensions, Grain, Shape},
};

/// A format of memory, with the sizes of a filter in it.
pub trait Format: Copy + fmt::Debug + From<Dimensions> + AsRef<Shape> {
    /// The smallest parts of the memory.
    const GRAIN: Grain;
    /// Whether the bits of a key are dealt to lanes.
    const HAS_LANES: bool;

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

    /// Returns the part of the filter that a key uses.
    fn key_space(&self) -> KeySpace;

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

/// The part of a filter that a key uses, in a filter of some sizes. The false-positive rate depends
/// on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySpace {
    /// One block.
    Blocks(Shape),
    /// Two lines of cells, near each other.
    Lines(Shape),
    /// A whole shard.
    Shards(Shape),
}

#[cfg(test)]
pub(crate) mod tests;
