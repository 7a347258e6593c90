//! The client crate against a service that fails on demand.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cancelling;
mod coalescing;
mod retries;
mod stream;
#[path = "../support/mod.rs"]
mod support;
