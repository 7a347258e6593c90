//! The server in the test's own process: each rpc over TCP, with its answers, errors and timing;
//! promises 1 and 2 at full size; data directories of earlier formats.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod aging;
mod bad_input;
mod binary_keys;
mod cancelling;
#[path = "../common/mod.rs"]
mod common;
mod counting;
mod exchange;
mod filters;
mod formats;
mod keys;
mod lifecycle;
mod metrics;
mod not_grpc;
mod operations;
mod profiles;
mod promises;
mod retries;
mod scaling;
mod stopping;

fn key(text: &str) -> String {
    text.to_owned()
}

fn keys(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| key(text)).collect()
}

fn request<T: Default>(fill: impl FnOnce(&mut T)) -> T {
    let mut request = T::default();
    fill(&mut request);
    request
}
