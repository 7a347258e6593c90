//! Snapshots of filters, and the start from them and from the log.

pub mod recovery;
pub mod storing;
