//! The program as a process: its settings, exit codes and signals, and its answers when it is killed.
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
