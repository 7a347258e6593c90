//! The code under test.

#[path = "../../../server/src/engine/barrier.rs"]
pub mod barrier;
#[path = "../../../server/src/engine/guarded/layered/bit_budget.rs"]
pub mod bit_budget;
#[path = "../../../server/src/engine/guarded/one_or_many.rs"]
pub mod one_or_many;
#[path = "../../../server/src/engine/journal/parker.rs"]
pub mod parker;
#[path = "../../../server/src/engine/per_thread.rs"]
pub mod per_thread;
#[path = "../../../server/src/engine/journal/queues.rs"]
pub mod queues;
#[path = "../../../server/src/engine/requests.rs"]
pub mod requests;
#[path = "../../../server/src/engine/guarded/shards.rs"]
pub mod shards;
#[path = "../../../server/src/engine/journal/trackers.rs"]
pub mod trackers;
#[path = "../../../server/src/engine/versions.rs"]
pub mod versions;
#[path = "../../../server/src/engine/journal/watermark.rs"]
pub mod watermark;

#[derive(Debug)]
pub enum EngineError {
    Stopping,
    RequestReused { keys: usize, limit: usize },
}

pub mod mapping {
    use std::ops::{Deref, DerefMut};

    /// The words of a shard, without a memory mapping.
    #[derive(Debug)]
    pub struct ShardWords(pub Vec<u64>);

    impl Deref for ShardWords {
        type Target = [u64];

        fn deref(&self) -> &[u64] {
            &self.0
        }
    }

    impl DerefMut for ShardWords {
        fn deref_mut(&mut self) -> &mut [u64] {
            &mut self.0
        }
    }
}
