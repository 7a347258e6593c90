//! The parameters of a call, and its keys.

pub mod barrier;
pub mod limits;
pub mod requests;
pub mod workers;

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::Instant;

use super::error::EngineError;
use crate::store::{Direction, FilterName};

/// The parameters of a call: its filter, idempotency key, age limit and deadline.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The name of the filter; empty for the default one.
    pub filter: &'a str,
    /// The idempotency key of the call: the engine recognises a repeated call by it. Empty for
    /// none.
    pub request_id: &'a str,
    /// The greatest age of a key that counts as seen, in a filter whose keys age. `None`: every key
    /// that the filter remembers counts.
    pub max_age: Option<Duration>,
    /// The time at which the caller stops waiting. A call that has not begun by then is dropped.
    pub deadline: Option<Instant>,
}

impl Call<'_> {
    /// Fails if the deadline of the call is over. Reads the clock only if the call has a deadline.
    ///
    /// # Errors
    ///
    /// [`EngineError::DeadlineOver`].
    #[inline]
    pub(super) fn check_deadline(&self) -> Result<(), EngineError> {
        check_deadline(self.deadline)
    }
}

/// As [`Call::check_deadline`].
#[inline]
pub(super) fn check_deadline(deadline: Option<Instant>) -> Result<(), EngineError> {
    match deadline {
        Some(deadline) if Instant::now() >= deadline => Err(EngineError::DeadlineOver),
        _ => Ok(()),
    }
}

impl<'a> From<&'a str> for Call<'a> {
    /// Returns a call without an id or a deadline.
    fn from(filter: &'a str) -> Self {
        Self {
            filter,
            request_id: "",
            max_age: None,
            deadline: None,
        }
    }
}

/// The operation of a call on its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Asks whether they have been seen.
    Query,
    /// Changes the filter.
    Write(Action),
}

/// The change that a call makes. A counting filter counts up for each key that is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Adds the keys that are not there, and returns which were.
    QueryAndAdd,
    /// Adds the keys.
    Add,
    /// Removes the keys that are there, and returns which were.
    Remove,
}

impl Action {
    /// Returns the direction in which a counting filter counts the keys.
    pub(super) fn direction(self) -> Direction {
        match self {
            Self::QueryAndAdd | Self::Add => Direction::Up,
            Self::Remove => Direction::Down,
        }
    }
}

/// The keys of a batch.
pub trait Keys: Send + Sync + 'static {
    /// Returns the keys in their order.
    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]>;

    /// Returns the lengths of the shortest and the longest key in bytes; `None` if the batch is
    /// empty.
    fn lengths(&self) -> Option<RangeInclusive<usize>> {
        let lengths = || self.iter().map(<[u8]>::len);
        let (shortest, longest) = lengths().min().zip(lengths().max())?;
        Some(shortest..=longest)
    }

    /// Returns the field of the request that holds the keys.
    fn field(&self) -> &'static str {
        "keys"
    }

    /// Returns the sum of the lengths of all keys in bytes, or somewhat more.
    fn bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }
}

impl<K: AsRef<[u8]> + Send + Sync + 'static> Keys for Vec<K> {
    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.as_slice().iter().map(AsRef::as_ref)
    }
}

/// Parses the name in a request. An empty name is the default filter.
pub(super) fn filter_name(field: &'static str, name: &str) -> Result<FilterName, EngineError> {
    or_default(name)
        .parse()
        .map_err(|source| EngineError::Name { field, source })
}

/// Returns the name of the filter that a request means.
pub(super) fn or_default(name: &str) -> &str {
    if name.is_empty() {
        FilterName::DEFAULT
    } else {
        name
    }
}
