//! The write-ahead log: what has changed since the snapshots, of format 1 (see `docs/format.md`).
//!
//! ```text
//! segments   files with room kept for them: a header, and batches one after the other
//! batches    what is written at once: a header with a chained checksum, and records
//! records    the hashes that one call added to one filter, and the version that it led to
//! ```
//!
//! The header of a segment says where the one before it ends, so a segment is closed by the
//! next one being opened. The last one ends with its last whole batch: what a crash left behind
//! that is cut off by the segment that the next start opens.
//!
//! # What may be torn
//!
//! A crash may keep any of the bytes that were not synced, so a whole batch may stand behind
//! one that is not. Each batch therefore says up to which place its segment was synced when it
//! was written. A broken batch before such a place was whole once: the disk has damaged it, and
//! reading is refused. One behind all such places was never relied on.

mod batch;
mod reader;
mod record;
mod segment;
mod writer;

pub(super) use self::segment::{file_name as segment_file, sequence as segment_of};
pub use self::{
    reader::{LogEnd, LogReader, Torn},
    record::{FilterId, Record, RequestId},
    writer::{Batch, LogWriter},
};

#[cfg(test)]
mod tests;
