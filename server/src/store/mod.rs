//! Durable state in one data directory. Blocking code that knows nothing of tasks or calls.
//!
//! ```text
//! DATA_DIR/LOCK               held by the one server that works in the directory
//! DATA_DIR/NAME.snapshot      the last snapshot of the filter NAME
//! DATA_DIR/NAME.snapshot.tmp  one that is being written, or that a crash left behind
//! ```
//!
//! A snapshot appears under its name only when it is complete and on stable storage, so
//! whatever happens the directory holds the old one or the new one. `docs/format.md`
//! describes its bytes. A file that is damaged or of a newer format is refused, never
//! skipped and never overwritten: what it holds may be all that is left of somebody's keys.

mod directory;
mod disk;
mod error;
mod log;
mod name;
mod snapshot;

pub use directory::DataDirectory;
pub use disk::{Disk, DiskFile, SystemDisk};
pub use error::StoreError;
pub use log::{Batch, FilterId, LogEnd, LogReader, LogWriter, Record, RequestId, Torn};
pub use name::{FilterName, NameError};
pub use snapshot::{ShardState, SnapshotHeader, SnapshotReader, Written};
