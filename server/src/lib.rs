//! The seenset server.
//!
//! Layers, from the bottom up; each may use those above it in this list, and no other:
//!
//! * [`filter`]: the algorithms on plain memory (the crate `seenset-filter`)
//! * [`store`]: durable state in one data directory
//! * [`engine`]: the lock-protected filters, in memory and on disk; one face to the rpcs
//! * [`grpc`]: the rpcs; uses `engine` alone
//!
//! Beside them stand [`config`] (the one place that reads arguments, the environment and the
//! configuration file), [`telemetry`] (logs and metrics), [`signals`], [`listeners`] (the sockets),
//! [`connections`], [`cores`] (the threads that serve connections), `net` (HTTP/2 on each
//! connection) and [`server`], which puts it all together. `planted` has bugs that tests switch on.
//! [`verify`] checks the data directory of a server that does not run.

// The package of the models has no unit tests.
#![cfg(not(all(loom, test)))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("seenset-server needs a 64-bit target: a filter may be larger than 4 GiB");

pub use seenset_filter as filter;

#[cfg(not(loom))]
mod cgroup;
#[cfg(not(loom))]
pub mod config;
#[cfg(not(loom))]
pub mod connections;
#[cfg(not(loom))]
pub mod cores;
pub mod engine;
#[cfg(not(loom))]
pub mod exit;
#[cfg(not(loom))]
pub mod grpc;
#[cfg(not(loom))]
pub mod listeners;
#[cfg(not(loom))]
mod net;
mod planted;
#[cfg(not(loom))]
pub mod server;
#[cfg(not(loom))]
pub mod signals;
pub mod store;
mod sync;
#[cfg(not(loom))]
pub mod telemetry;
#[cfg(not(loom))]
pub mod verify;
