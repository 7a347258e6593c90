//! The server as a process of its own: settings, exit codes, signals and kills.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod operator;
