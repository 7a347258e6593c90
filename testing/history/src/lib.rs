//! Checks whether a correct service can have produced a history of calls. The tests that kill the
//! server, cut its power or race for its keys record their requests and the answers. All of them
//! use the same rules.
//!
//! A history is a set of [`Call`]s with the times of their begin and end. A call without an answer
//! ends at infinity: it may take effect at any time, or never. A [`Checker`] takes calls in any
//! order. Each call takes constant time, and each key a few words of memory.
//!
//! # The rules
//!
//! A key is marked once and stays marked. So one moment of each key divides its calls. It lies
//! within a call that can have marked the key: a `query_and_add` that was answered "new", an add,
//! or a `query_and_add` without an answer. Three rules follow:
//!
//! 1. At most one `query_and_add` is answered "new", with or without restarts.
//! 2. No call that was answered "seen" ended before every call that can have marked the key began.
//! 3. No call that is answered "not seen" begins after the end of a call that was answered "new" or
//!    "seen", or of an acknowledged add. A query that was answered "not seen" implies nothing, and
//!    neither does a call without an answer.
//!
//! The rules are exact, not only necessary: a history that follows them has an order that explains
//! it, and a history that violates them has none. The tests compare them with a search through all
//! orders. Equal times count as "at the same time", which refuses nothing.
//!
//! Calls of one key, one operation and one request id are the tries of one call. The call began
//! with the first try and ended with the first answer, and all answers must be equal. A batch that
//! names a key twice makes two calls for it. If the batch has a request id, the ids of the two must
//! differ.
//!
//! # Assumptions
//!
//! The rules are those of a set. A Bloom filter acts as a set only without false positives: a false
//! "seen" breaks rule 2. The tests use filters so large that none is expected among their keys.
//!
//! All times come from one clock. [`now`] is the same for all processes of a machine. A counter
//! that all callers share works too.
//!
//! # Why it is a package
//!
//! The unit tests of the engine and several integration tests use this package. As a module that
//! each of them includes by path, it would be compiled and tested in each of them, and it would
//! cause warnings about unused code. Nothing that is delivered depends on this package.

mod call;
mod checker;
mod clock;
mod line;
mod summary;
#[cfg(test)]
mod tests;
mod violation;

pub use call::{Call, Operation, Outcome};
pub use checker::{Checked, Checker};
pub use clock::now;
pub use line::NotACall;
pub use violation::{Violation, Violations};
