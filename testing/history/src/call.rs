//! One call for one key, as its caller saw it. A batch is recorded as one call for each of its
//! keys, at the same time.

use std::fmt::{self, Display, Formatter};

/// The operation that a call requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks whether the key has been seen.
    Query,
    /// Asks whether the key has been seen, and marks it.
    QueryAndAdd,
    /// Marks the key.
    Add,
}

/// The answer that the caller received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// `seen = false`.
    New,
    /// `seen = true`.
    Seen,
    /// The key is marked: the answer of an add.
    Added,
    /// No answer: the connection broke, the time was up, or an error left open whether the call was
    /// carried out.
    Unknown,
}

/// The begin, the end and the outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Course {
    pub operation: Operation,
    pub begin: u64,
    pub end: u64,
    pub outcome: Outcome,
}

/// The end of a call without an answer.
pub(crate) const NEVER: u64 = u64::MAX;

/// A call for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<K> {
    pub(crate) key: K,
    pub(crate) course: Course,
    pub(crate) request_id: Option<String>,
}

impl<K> Call<K> {
    /// Returns a query that was answered with `seen`.
    pub fn query(key: K, begin: u64, end: u64, seen: bool) -> Self {
        Self::told(Operation::Query, key, begin, end, seen)
    }

    /// Returns a `query_and_add` that was answered with `seen`.
    pub fn query_and_add(key: K, begin: u64, end: u64, seen: bool) -> Self {
        Self::told(Operation::QueryAndAdd, key, begin, end, seen)
    }

    /// Returns an add that was acknowledged.
    pub fn add(key: K, begin: u64, end: u64) -> Self {
        Self::new(Operation::Add, key, begin, end, Outcome::Added)
    }

    /// Returns a call without an answer.
    pub fn unknown(operation: Operation, key: K, begin: u64) -> Self {
        Self::new(operation, key, begin, NEVER, Outcome::Unknown)
    }

    /// Returns the same call as one try of the call with this request id.
    #[must_use]
    pub fn with_request_id(mut self, id: &str) -> Self {
        self.request_id = Some(id.to_owned());
        self
    }

    /// Returns whether the caller received an answer.
    pub fn is_answered(&self) -> bool {
        self.course.outcome != Outcome::Unknown
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    fn told(operation: Operation, key: K, begin: u64, end: u64, seen: bool) -> Self {
        let outcome = if seen { Outcome::Seen } else { Outcome::New };
        Self::new(operation, key, begin, end, outcome)
    }

    pub(crate) fn new(
        operation: Operation,
        key: K,
        begin: u64,
        end: u64,
        outcome: Outcome,
    ) -> Self {
        let course = Course {
            operation,
            begin,
            end,
            outcome,
        };
        Self::of(key, course)
    }

    pub(crate) fn of(key: K, course: Course) -> Self {
        Self {
            key,
            course,
            request_id: None,
        }
    }
}

impl Course {
    /// Returns whether this is a `query_and_add` that was answered "new".
    pub fn wins(self) -> bool {
        self.operation == Operation::QueryAndAdd && self.outcome == Outcome::New
    }

    /// Returns whether this can be the call that marked the key. A call that was answered "seen"
    /// cannot: the key was marked before.
    pub fn can_mark(self) -> bool {
        self.operation != Operation::Query && self.outcome != Outcome::Seen
    }

    /// Returns whether the key is marked when this call has ended.
    pub fn shows_marked(self) -> bool {
        matches!(self.outcome, Outcome::Seen | Outcome::Added) || self.wins()
    }
}

impl<K: Display> Display for Call<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Course {
            operation,
            begin,
            end,
            outcome,
        } = self.course;
        write!(f, "{operation}({}) from {begin} ", self.key)?;
        match outcome {
            Outcome::Unknown => write!(f, "on, never answered")?,
            _ => write!(f, "to {end}, told {outcome}")?,
        }
        match &self.request_id {
            Some(id) => write!(f, ", request id {id}"),
            None => Ok(()),
        }
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Query => "query",
            Self::QueryAndAdd => "query_and_add",
            Self::Add => "add",
        })
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Seen => "seen",
            Self::Added => "added",
            Self::Unknown => "unknown",
        })
    }
}
