//! What callers say of a call, and the keys that they bring.

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::Instant;

use super::{Action, EngineError};

/// Which filter a call is for, and what its caller calls it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The name of the filter; empty for the default one.
    pub filter: &'a str,
    /// What the caller calls it, so that it is recognised if it comes again; empty for nothing.
    pub request_id: &'a str,
    /// How old a key may be that counts as seen, of a filter whose keys age; as old as the filter
    /// remembers it if not given.
    pub max_age: Option<Duration>,
    /// When the caller stops waiting; a call that has not begun by then is dropped.
    pub deadline: Option<Instant>,
}

impl Call<'_> {
    /// Refuses a call whose deadline is over. Reads the clock only for a call that has one.
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
    /// A call without an id or a deadline.
    fn from(filter: &'a str) -> Self {
        Self {
            filter,
            request_id: "",
            max_age: None,
            deadline: None,
        }
    }
}

/// What a call does with its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Asks whether they have been seen.
    Query,
    /// Adds them.
    Add,
    /// Asks whether they have been seen, and adds them.
    QueryAndAdd,
    /// Takes them out.
    Remove,
}

impl Op {
    /// The change that it makes, if it makes one.
    pub(super) fn action(self) -> Option<Action> {
        match self {
            Self::Query => None,
            Self::Add => Some(Action::Add),
            Self::QueryAndAdd => Some(Action::QueryAndAdd),
            Self::Remove => Some(Action::Remove),
        }
    }
}

/// The keys of a batch.
pub trait Keys: Send + Sync + 'static {
    /// The keys in their order.
    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]>;

    /// The bytes of the shortest key and of the longest one; nothing if there is none.
    fn lengths(&self) -> Option<RangeInclusive<usize>> {
        let lengths = || self.iter().map(<[u8]>::len);
        let (shortest, longest) = lengths().min().zip(lengths().max())?;
        Some(shortest..=longest)
    }

    /// The field of the request that they came in.
    fn field(&self) -> &'static str {
        "keys"
    }

    /// The bytes of all keys, or some more.
    fn bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }
}

impl<K: AsRef<[u8]> + Send + Sync + 'static> Keys for Vec<K> {
    fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.as_slice().iter().map(AsRef::as_ref)
    }
}
