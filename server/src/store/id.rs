//! The ids of filters and requests.

/// The id of a filter. No two filters of a data directory ever have the same id, not even two that
/// had the same name one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId(pub u64);

/// The hash of the request id (idempotency key) that a caller gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub [u8; 16]);
