//! The load of `seenset bench`, and of the benchmark of the server: calls as bytes over the
//! `h2` crate, so that the client takes as little of the time as can be.
//!
//! It is public for that benchmark, behind the feature `cli`. Whoever wants to be answered
//! uses [`Client`](crate::Client).

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

/// What is asked, and by how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The form of the calls.
    pub calls: Calls,
    /// The connections that the callers share.
    pub connections: usize,
    /// Those that call, each one call after the other.
    pub callers: usize,
}

/// The form of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// `QueryAndAdd`: one key each.
    Single,
    /// The same, of the client crate, which sends them together: see
    /// [`Client::coalescing`](crate::Client::coalescing).
    Coalesced,
    /// `QueryAndAddBatch`.
    Batch {
        /// The keys of each batch.
        keys: usize,
    },
    /// `QueryAndAddStream`: each caller keeps one open.
    Stream {
        /// The keys of each batch.
        keys: usize,
        /// The batches in flight on each stream.
        window: usize,
    },
}

impl Calls {
    /// The keys of each call, or of each batch of a stream: at least one.
    fn keys(self) -> usize {
        match self {
            Self::Single | Self::Coalesced => 1,
            Self::Batch { keys } | Self::Stream { keys, .. } => keys.max(1),
        }
    }
}
