//! The client crate and its example crawler, against a service that fails on demand.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cancelling;
mod coalescing;
mod crawler;
mod retries;
mod stream;
