//! What the memory of a filter holds.

use crate::{
    blocked::BLOCK_BITS,
    cells::{self, CellLines},
    spec::{Kind, Layout},
};

/// What the memory of a filter holds, and where in it a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Bits, those of a key in one block.
    Blocked,
    /// Bits, those of a key anywhere in a shard.
    Classic,
    /// A counter in the place of each bit, those of a key in some lines.
    Counting(CellLines),
    /// A stamp in the place of each bit, those of a key in some lines.
    Aging(CellLines),
    /// Bits, those of a key anywhere in all shards: where, [`Parts`](crate::exchange::Parts) tells.
    Array,
}

impl From<Layout> for Form {
    fn from(layout: Layout) -> Self {
        match layout {
            Layout::Blocked => Self::Blocked,
            Layout::Classic => Self::Classic,
            Layout::Guava | Layout::GuavaMitz32 | Layout::RedisBloom => Self::Array,
        }
    }
}

impl Form {
    /// The form of a kind, which has it in this layout or in no other.
    pub fn of(kind: Kind, layout: Layout, lines: CellLines) -> Self {
        match kind {
            Kind::Plain | Kind::Scaling(_) => layout.into(),
            Kind::Counting => Self::Counting(lines),
            Kind::Aging(_) => Self::Aging(lines),
        }
    }

    /// Whether all bits of a key lie in one block.
    pub(crate) fn has_blocks(self) -> bool {
        match self {
            Self::Blocked | Self::Counting(CellLines::Four) | Self::Aging(CellLines::Four) => true,
            Self::Classic
            | Self::Array
            | Self::Counting(CellLines::Two)
            | Self::Aging(CellLines::Two) => false,
        }
    }

    /// Whether the bits of a key are dealt to lanes.
    pub(crate) fn has_lanes(self) -> bool {
        match self {
            Self::Blocked | Self::Counting(_) | Self::Aging(_) => true,
            Self::Classic | Self::Array => false,
        }
    }

    /// The bits of memory for each bit of the filter.
    pub(crate) fn cell_bits(self) -> u64 {
        match self {
            Self::Blocked | Self::Classic | Self::Array => 1,
            Self::Counting(_) | Self::Aging(_) => cells::CELL_BITS,
        }
    }

    /// The number of bits comes in multiples of this.
    pub(crate) fn unit(self) -> u64 {
        match self.has_lanes() {
            true => BLOCK_BITS,
            false => 64,
        }
    }
}
