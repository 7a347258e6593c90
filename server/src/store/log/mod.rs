//! The write-ahead log (WAL): the changes since the snapshots (see `docs/format.md`).
//!
//! ```text
//! segments   files with room kept for them: a header, and batches one after the other
//! batches    units of one write: a header with a chained checksum, and records
//! records    the hashes that one call added to one filter, and the version that it led to
//! tail       a copy of the last batches, for those that have not been written to a segment
//! ```
//!
//! The first batch of a segment says where the segment before ends, so a segment is closed when the
//! next one is begun. The last segment ends with its last whole batch. A crash can leave bytes
//! after that batch: the segment that the next start begins cuts them off. After the last segment
//! there can be segments without batches. They are made ahead, so that the disk has room for new
//! keys when no more room can be had.
//!
//! # Torn writes
//!
//! A crash can keep any of the bytes that were not synced, so a whole batch can follow a torn one.
//! Each batch therefore holds the offset up to which its segment was synced when the batch was
//! written. A broken batch before such an offset was whole once: the disk has damaged it, and
//! reading fails. A broken batch after all such offsets was never relied on.

mod batch;
mod found;
mod piece;
mod reader;
mod record;
mod segment;
mod segment_reader;
mod tail;
mod writer;

pub use self::segment::FORMAT;
pub(super) use self::segment::{file_name as segment_file, sequence as segment_of};
pub use self::{
    batch::Batch,
    found::{FoundLog, LogEnd, Torn},
    reader::LogReader,
    record::{Counted, Direction, Record, RecordHead, RecordKind},
    tail::Tail,
    writer::{LogWriter, PendingSync, Segment},
};

#[cfg(test)]
mod tests;
