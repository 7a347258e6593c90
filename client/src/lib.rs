//! Client for seenset, the networked deduplication service. One call reports whether a key has been
//! seen, and marks it as seen.
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
//! A [`Client`] is cheap to clone, and clones can be used from many tasks. All clones share one
//! connection and can have any number of calls in flight on it.
//!
//! A call for many keys costs far less than one call for each key. See the batch forms,
//! [`Client::stream`] for several batches in flight, and [`Client::coalescing`], which gathers the
//! single calls of many workers into batches.
//!
//! # Retries
//!
//! The client repeats a call where that is safe. The pauses between the attempts grow. It stops at
//! the deadline of the call, and a budget limits the repeated attempts of all calls together (see
//! [`Options`]):
//!
//! - Queries, adds, `query_and_add` in all its forms, showing filters and health are repeated when
//!   the server was UNAVAILABLE, the connection broke, or no connection was made.
//! - Store, and making, changing and deleting filters, are repeated when the call was not sent, or
//!   the server was UNAVAILABLE and has changed nothing (it restores its filters, stops, or cannot
//!   write).
//!
//! The client never repeats an import or an export.
//!
//! A `query_and_add` that was sent may have marked its keys. A second one would return "seen" for
//! them, and nobody would crawl them. So each call, and each batch of a stream, carries an
//! idempotency key (`request_id`). If the server knows the id, it returns the answer of the first
//! attempt. It remembers ids as long as its `--retry-age` and `--retry-keys` say.
//!
//! A call that still fails with [`Error::Broken`] or [`Error::Deadline`] may have marked its keys,
//! if `may_be_applied` of the error is true. The caller decides what to do then. A caller that has
//! to get its answers again from another process gives its own ids:
//! [`Client::query_and_add_batch_as`] and [`BatchSender::send_as`].
//!
//! # Layers
//!
//! [`proto`] is the generated contract, for everything that this wrapper does not cover.
//! [`Error::from_status`] makes an [`Error`] of the status of a call of the generated client.

mod admin;
mod batch;
mod budget;
mod capacity;
mod client;
mod coalesce;
mod endpoint;
mod error;
mod exchange;
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
pub use endpoint::Address;
pub use error::Error;
pub use exchange::Export;
pub use options::Options;
pub use stream::{Answered, BatchReceiver, BatchSender, Broken};
