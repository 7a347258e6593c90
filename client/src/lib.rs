//! Client for seenset, the networked deduplication service: has this key been seen, and
//! mark it seen in the same call.
//!
//! ```no_run
//! # async fn crawl() -> Result<(), seenset_client::Error> {
//! use seenset_client::Client;
//!
//! let client = Client::connect("http://127.0.0.1:9090").await?;
//! if !client.query_and_add("https://example.org/").await? {
//!     // Of all the workers that ask, this one is to fetch the page.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is cheap to clone and may be shared: all clones use one connection and
//! have any number of calls in flight on it. Calls for many keys cost far less than one
//! call for each: see the batch forms, [`Client::stream`] for several batches in flight,
//! and [`Client::coalescing`], which makes batches of the single calls of many workers.
//!
//! # Retries
//!
//! A call is repeated, with growing pauses, until its deadline is over and within a budget of all
//! calls (see [`Options`]), where that is safe:
//!
//! | calls | repeated when |
//! |---|---|
//! | queries, adds, `query_and_add` in all its forms, showing filters, health | the server was UNAVAILABLE, the connection broke, or none was made |
//! | store, making, changing and deleting filters | the call was not sent, or the server was UNAVAILABLE and has changed nothing (it restores its filters, stops, or cannot write) |
//!
//! An import and an export are never repeated.
//!
//! A `query_and_add` that was sent may have marked its keys, and a second one would say
//! "seen", and nobody would crawl them. So each carries an id (`request_id`), each batch of
//! a stream as well, and the server tells a call that it knows what it told the first time,
//! for as long as it remembers that (its `--retry-age` and `--retry-keys`). A call that still
//! ends with [`Error::Broken`] or [`Error::Deadline`] may have marked its keys, if the error says
//! `may_be_applied`: what to make of it is the caller's decision. A caller that has to find its
//! answers again in another process gives its own ids:
//! [`Client::query_and_add_batch_as`] and [`BatchSender::send_as`].
//!
//! # Layers
//!
//! [`proto`] is the generated contract, for whatever this wrapper does not cover.
//! The feature `cli` (on by default) adds the program `seenset` and what it needs;
//! `default-features = false` leaves the library alone.

mod admin;
mod batch;
mod budget;
mod capacity;
#[cfg(feature = "cli")]
pub mod cli;
mod client;
mod coalesce;
mod endpoint;
mod error;
mod exchange;
#[cfg(feature = "cli")]
pub mod load;
mod options;
mod retry;
mod sent;
mod stream;

pub use seenset_proto as proto;
pub use seenset_proto::v1;

pub use batch::{KeyBatch, MAX_MESSAGE_BYTES};
pub use capacity::CapacityWarning;
pub use client::Client;
pub use coalesce::Coalescing;
pub use error::Error;
pub use exchange::Export;
pub use options::Options;
pub use stream::{Answered, BatchReceiver, BatchSender, Broken};
