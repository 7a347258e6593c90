//! The contents of a filter's memory.

use crate::{blocked::BLOCK_BITS, cells};

/// The contents of a filter's memory, and the place of a key in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellFormat {
    /// Bits. The bits of a key lie in one block.
    Blocked,
    /// Bits. The bits of a key lie anywhere in a shard.
    Classic,
    /// A counter in the place of each bit. The counters of a key lie in two lines.
    Counting,
    /// A stamp in the place of each bit. The stamps of a key lie in two lines.
    Aging,
    /// Bits. The bits of a key lie anywhere in all shards:
    /// [`ForeignBits`](crate::exchange::ForeignBits) finds them.
    Foreign,
}

impl CellFormat {
    /// Whether the bits of a key are dealt to lanes.
    pub(crate) fn has_lanes(self) -> bool {
        match self {
            Self::Blocked | Self::Counting | Self::Aging => true,
            Self::Classic | Self::Foreign => false,
        }
    }

    /// Returns the number of bits of memory for each bit of the filter.
    pub(crate) fn cell_bits(self) -> u64 {
        match self {
            Self::Blocked | Self::Classic | Self::Foreign => 1,
            Self::Counting | Self::Aging => cells::CELL_BITS,
        }
    }

    /// Returns the unit of the number of bits: it is always a multiple of this.
    pub(crate) fn unit(self) -> u64 {
        match self.has_lanes() {
            true => BLOCK_BITS,
            false => 64,
        }
    }
}
