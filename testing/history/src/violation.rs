//! Violations of a rule: calls whose answers contradict each other.

use std::fmt::{self, Debug, Display, Formatter};

use crate::call::Call;

/// Calls of one key that fit no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation<K: Display> {
    /// Two calls were answered "new" for the key.
    #[error("two winners: {first}; {second}")]
    TwoWinners {
        /// The one that began first.
        first: Call<K>,
        /// The other.
        second: Call<K>,
    },
    /// The key was answered "seen", but no call can have marked it.
    #[error("seen and never marked: {seen}; nobody has tried to mark it")]
    NeverMarked {
        /// The call that was answered "seen".
        seen: Call<K>,
    },
    /// The key was answered "seen" before any call can have marked it.
    #[error("seen before it was marked: {seen}; the first that can have marked it: {mark}")]
    SeenBeforeMarked {
        /// The call that was answered "seen".
        seen: Call<K>,
        /// The first to begin of the calls that can have marked the key.
        mark: Call<K>,
    },
    /// The key was known to be marked, and later it was not.
    #[error("forgotten: {told}; and after that {not_seen}")]
    Forgotten {
        /// The first to end of the calls after which the key is marked.
        told: Call<K>,
        /// A call that began later and was answered "not seen".
        not_seen: Call<K>,
    },
    /// Two tries of one call got different answers.
    #[error("one call with two answers: {first}; {second}")]
    AnswersDiffer {
        /// The one that was recorded first.
        first: Call<K>,
        /// The other.
        second: Call<K>,
    },
}

impl<K: Display> Violation<K> {
    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Self::TwoWinners { first: call, .. }
            | Self::NeverMarked { seen: call }
            | Self::SeenBeforeMarked { seen: call, .. }
            | Self::Forgotten { told: call, .. }
            | Self::AnswersDiffer { first: call, .. } => call.key(),
        }
    }

    /// Returns the time of the wrong answer: the begin or the end of that call.
    pub(crate) fn time(&self) -> u64 {
        match self {
            Self::TwoWinners { second, .. } | Self::AnswersDiffer { second, .. } => {
                second.course.end
            }
            Self::NeverMarked { seen } | Self::SeenBeforeMarked { seen, .. } => seen.course.end,
            Self::Forgotten { not_seen, .. } => not_seen.course.begin,
        }
    }
}

/// All violations in a history, in the order of time. There is at least one.
///
/// `{:?}` prints the same as the message, because a test that unwraps a result shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Violations<K: Display>(pub Vec<Violation<K>>);

impl<K: Display> Display for Violations<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        write!(f, "violations: {}", self.0.len())?;
        for violation in self.0.iter().take(SHOWN) {
            write!(f, "\n  {violation}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

impl<K: Display> Debug for Violations<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl<K: Display> std::error::Error for Violations<K> {}
