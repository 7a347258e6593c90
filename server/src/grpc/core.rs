//! The state that the calls of one core share.

use super::wire::calls::CoreCalls;
use crate::engine::Engine;

/// The state that the calls of one core share.
#[derive(Debug)]
pub struct Core {
    pub engine: Engine,
    /// The longest message of `DedupService`.
    pub max_message_bytes: usize,
    pub core_calls: CoreCalls,
}
