//! Durable state in one data directory. Blocking code that knows nothing of tasks or calls.
//!
//! ```text
//! DATA_DIR/LOCK                  held by the one server that works in the directory
//! DATA_DIR/MANIFEST              which files hold which filters
//! DATA_DIR/NAME.snapshot.NUMBER  shards of the filter NAME
//! ```
//!
//! A file counts once the manifest names it, which it does when the file is complete and on
//! stable storage; so whatever happens the directory holds what it held or what it was to hold.
//! `docs/format.md` describes the bytes. A file that is damaged or of a newer format is
//! refused, never skipped and never overwritten: what it holds may be all that is left of
//! somebody's keys.

mod directory;
mod disk;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod inspection;
mod log;
mod manifest;
mod name;
mod names;
mod snapshot;

/// The greatest version, and the greatest number of a filter, file or segment: those that follow
/// are counted on from those in the files, whatever they say.
const MAX_NUMBER: u64 = 1 << 62;

pub use directory::{DataDirectory, Oddities, Renamed};
#[cfg(test)]
pub use disk::simulated;
pub use disk::{Disk, DiskFile, SystemDisk};
pub use error::{OnDamage, StoreError};
pub use inspection::{Damage, FilterFindings, Inspection, LogFindings, Salvaged};
pub use log::{
    Batch, Counted, Direction, FORMAT as LOG_FORMAT, FilterId, FoundLog, LogEnd, LogReader,
    LogWriter, PendingSync, Record, RecordHead, RequestId, Segment, Tail, Torn,
};
pub use manifest::FORMAT as MANIFEST_FORMAT;
pub use name::{FilterName, NameError};
pub use snapshot::{
    FORMAT as SNAPSHOT_FORMAT, FilterReader, ShardState, SnapshotFiles, SnapshotHeader, Written,
};
