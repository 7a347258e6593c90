//! Work beside the calls: long operations, keys that are too old, the growth of filters.

pub mod clearing;
pub mod sampling;
