//! Code that the fuzz targets share.
//!
//! A fuzzer that changes bytes at random never gets past a checksum, and the code after the check
//! assumes that the bytes are correct. So the targets for files begin with a directory that the
//! server's own writers have made. They [edit](edit) it, [repair](repair) those checksums that the
//! input names, and [read](start) it like a starting server.
//!
//! A finding is a panic, in the code under test or in an assertion here.

pub mod edit;
pub mod files;
pub mod filter;
pub mod inspection;
pub mod log;
mod memory;
pub mod repair;
pub mod start;
pub mod written;
