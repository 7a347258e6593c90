//! Tells whether a history of calls is one that a correct service can have: the tests that kill
//! the server, cut its power or race for its keys record what they asked and what they were
//! told, and all of them are held against the same rules.
//!
//! A history is a set of [`Call`]s with the times at which they began and ended. A call whose
//! answer never came ends at infinity: it may take effect at any time, or never. A [`Checker`]
//! takes calls in any order, in constant time for each, and keeps some words for each key.
//!
//! # The rules
//!
//! A key is marked once and stays marked. So there is one moment of each key that divides its
//! calls, and it lies within a call that can have marked the key: a `query_and_add` that was
//! told "new", an add, or a `query_and_add` that was told nothing. From this follow three rules:
//!
//! 1. At most one `query_and_add` is told "new", restarts or not.
//! 2. No call that was told "seen" ended before every call that can have marked the key began.
//! 3. No call that is told "not seen" begins after a call has ended that was told "new" or
//!    "seen", or an add that was acknowledged. A query that was told "not seen" binds nobody,
//!    and neither does a call that was told nothing.
//!
//! Together they are exact and not only necessary: a history that keeps them has an order that
//! explains it, and one that breaks them has none. The tests hold them against a search through
//! all orders. Times that are equal count as "at the same time", which refuses nothing.
//!
//! Calls of one key, one operation and one request id are the tries of one call: it began when
//! the first of them did, and ended with the first answer, and all answers must be equal. A
//! batch that names a key twice makes two calls of it; if it has a request id, the ids of the
//! two have to differ.
//!
//! # What is assumed
//!
//! The rules are those of a set, and a Bloom filter is one only as far as it has no false
//! positives: a false "seen" breaks rule 2. Tests use filters so large that none is to be
//! expected among their keys. All times are of one clock: [`now`] is the same for all processes
//! of a machine, and a counter that all callers share will do as well.
//!
//! # Why it is a package
//!
//! The unit tests of the engine and several integration tests use it. As a module that each of
//! them includes by its path, it would be compiled and tested in each of them, and warn of what
//! that one does not use. Nothing that is delivered depends on it.

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
