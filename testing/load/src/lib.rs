//! The load generator of `seenset bench` and of the benchmarks of the server. It sends calls as
//! bytes over the `h2` crate, so that the client takes as little of the time as possible.
//!
//! A program that needs the answers uses [`Client`](seenset_client::Client).

mod answer;
mod connection;
mod generator;
mod numbers;
mod outcome;
mod rpc;
mod run;
mod template;

pub use generator::Generator;
pub use outcome::Outcome;
pub use template::MIN_KEY_BYTES;

/// The form of the calls, and the number of connections and callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The form of the calls.
    pub calls: Calls,
    /// The number of connections that the callers share.
    pub connections: usize,
    /// The number of callers. Each one makes one call after the other.
    pub callers: usize,
}

/// The form of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// `QueryAndAdd`, with one key in each call.
    Single,
    /// `QueryAndAdd` of the client crate, which sends calls together: see
    /// [`Client::coalescing`](seenset_client::Client::coalescing).
    Coalesced,
    /// `QueryAndAddBatch`.
    Batch {
        /// The number of keys in each batch.
        keys: usize,
    },
    /// `QueryAndAddStream`. Each caller keeps one stream open.
    Stream {
        /// The number of keys in each batch.
        keys: usize,
        /// The number of batches in flight on each stream.
        window: usize,
    },
}

impl Calls {
    /// Returns the number of keys in each call, or in each batch of a stream: at least one.
    fn keys(self) -> usize {
        match self {
            Self::Single | Self::Coalesced => 1,
            Self::Batch { keys } | Self::Stream { keys, .. } => keys.max(1),
        }
    }
}
