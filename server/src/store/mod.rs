//! Durable state in one data directory. Blocking code: it does not know about async tasks or gRPC
//! calls.
//!
//! ```text
//! DATA_DIR/LOCK                  held by the one server that works in the directory
//! DATA_DIR/MANIFEST              which files hold which filters
//! DATA_DIR/NAME.snapshot.NUMBER  shards of the filter NAME
//! ```
//!
//! A file counts only if the manifest names it. The manifest names a file only after the file is
//! complete and on stable storage. So a crash leaves the directory as it was before a change or as
//! it is after the change.
//!
//! `docs/format.md` describes the bytes. A file that is damaged or of a newer format is refused. It
//! is never skipped and never overwritten, because it can hold the only copy of somebody's keys.

mod directory;
mod disk;
mod error;
mod format;
#[cfg(fuzzing)]
pub mod fuzzing;
mod id;
mod inspection;
mod log;
mod manifest;
mod name;
mod names;
mod snapshot;

/// The greatest version, and the greatest number of a filter, file or segment. New numbers are
/// counted on from the numbers in the files, so a number in a file must leave room above it.
const MAX_NUMBER: u64 = 1 << 62;

pub use directory::{DataDirectory, Renamed, StartupWarnings};
#[cfg(test)]
pub use disk::simulated;
pub use disk::{Disk, DiskFile, SystemDisk};
pub use error::{OnDamage, StoreError};
pub use id::{FilterId, RequestId};
pub use inspection::{Damage, FilterFindings, Inspection, LogFindings, Salvaged};
pub use log::{
    Batch, Counted, Direction, FORMAT as LOG_FORMAT, FoundLog, LogEnd, LogReader, LogWriter,
    PendingSync, Record, RecordHead, RecordKind, Segment, Tail, Torn,
};
pub use manifest::FORMAT as MANIFEST_FORMAT;
pub use name::{FilterName, NameError};
pub use snapshot::{
    FORMAT as SNAPSHOT_FORMAT, FilterReader, ShardState, SnapshotFiles, SnapshotHeader, Written,
};
