//! The write-ahead log: what has changed since the snapshots (see `docs/format.md`).
//!
//! ```text
//! segments   files with room kept for them: a header, and batches one after the other
//! batches    what is written at once: a header with a chained checksum, and records
//! records    the hashes that one call added to one filter, and the version that it led to
//! tail       a copy of the last batches, for those that have not been written to a segment
//! ```
//!
//! The first batch of a segment says where the log ends before it, so a segment is closed when
//! the next one is begun. The last one ends with its last whole batch: what a crash left behind
//! that is cut off by the segment that the next start begins. Behind the last one there may be
//! segments without batches: they are made ahead, so that there is room on the disk for what is
//! added while no more can be had.
//!
//! # What may be torn
//!
//! A crash may keep any of the bytes that were not synced, so a whole batch may stand behind
//! one that is not. Each batch therefore says up to which place its segment was synced when it
//! was written. A broken batch before such a place was whole once: the disk has damaged it, and
//! reading is refused. One behind all such places was never relied on.

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
    record::{Counted, Direction, FilterId, Record, RecordHead, RequestId},
    tail::Tail,
    writer::{LogWriter, PendingSync, Segment},
};

#[cfg(test)]
mod tests;
