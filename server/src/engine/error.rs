//! Why the engine refuses a call or fails it. The edge turns each into a status.

use thiserror::Error;

use super::budget::OverBudget;
use crate::{
    filter::spec::{FilterSpec, SpecError},
    store::{FilterName, NameError, StoreError},
};

/// What came of a call instead of an answer. Names of fields are those of the contract.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Filters are still being restored.
    #[error("the server is restoring its filters; try again when its health says SERVING")]
    Recovering,
    /// The server has stored what there was for the last time.
    #[error("the server is stopping and takes no more keys")]
    Stopping,
    /// No filter has the name.
    #[error("there is no filter named \"{name}\": create it, or correct the name")]
    UnknownFilter {
        /// The name asked for.
        name: FilterName,
    },
    /// A filter of another spec has the name.
    #[error(
        "a filter named \"{name}\" exists with another spec: {}",
        shown(existing)
    )]
    FilterExists {
        /// The name asked for.
        name: FilterName,
        /// The spec of the filter that has it.
        existing: Box<FilterSpec>,
    },
    /// A name that no filter can have.
    #[error("{field}: {source}")]
    Name {
        /// The field that holds the name.
        field: &'static str,
        /// What is wrong with it.
        source: NameError,
    },
    /// A spec that no filter can have.
    #[error("spec.{0}")]
    Spec(#[from] SpecError),
    /// A key that is empty or too long.
    #[error("{} has {bytes} bytes; a key must have 1 to {limit} (--max-key-bytes)", field(*index))]
    KeyLength {
        /// Its place in the batch; `None` for the key of a single call.
        index: Option<usize>,
        /// Its length.
        bytes: usize,
        /// The longest that it may be.
        limit: usize,
    },
    /// Too many keys at once.
    #[error(
        "keys has {keys} keys; a batch may have at most {limit} (--max-batch-keys): send \
         several"
    )]
    BatchLength {
        /// Their number.
        keys: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A page size below 0.
    #[error(
        "page_size is {value}; it must be at least 0 (0 means {})",
        super::DEFAULT_PAGE_SIZE
    )]
    PageSize {
        /// What was asked for.
        value: i32,
    },
    /// A filter that does not fit beside those there are.
    #[error(
        "the filter needs {} bytes of memory, and of the budget of {} (--max-memory) {} are \
         left: ask for fewer bits, or delete a filter",
        .0.needed_bytes, .0.limit_bytes, .0.left_bytes
    )]
    OverBudget(OverBudget),
    /// The disk failed, or is full.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused what a server must have.
    #[error("{what}: {detail}")]
    Internal {
        /// What was tried.
        what: &'static str,
        /// What the system said; for the log, not for callers.
        detail: String,
    },
}

impl EngineError {
    pub(super) fn internal(what: &'static str, detail: impl ToString) -> Self {
        Self::Internal {
            what,
            detail: detail.to_string(),
        }
    }
}

fn field(index: Option<usize>) -> String {
    index.map_or_else(|| "key".to_owned(), |index| format!("keys[{index}]"))
}

fn shown(spec: &FilterSpec) -> String {
    format!(
        "capacity {}, false_positive_rate {}, bit_count {}, hash_count {}, layout {}, \
         hash_function {}",
        spec.capacity,
        spec.false_positive_rate,
        spec.bit_count,
        spec.hash_count,
        spec.layout,
        spec.hash_function
    )
}
