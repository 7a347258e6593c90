//! What the fuzz targets share.
//!
//! A fuzzer that changes bytes at random never gets past a checksum, and what is behind it is
//! believed to be what was written. So the targets for files begin with a directory that the
//! ordinary writers have made, [edit](edit) it, [repair](repair) as many of its checksums as the
//! input asks for, and [read](start) it as a starting server does.
//!
//! A finding is a panic: of the code under test, or of an assertion here.

pub mod edit;
pub mod files;
pub mod filter;
pub mod inspection;
pub mod log;
pub mod repair;
pub mod start;
pub mod written;
