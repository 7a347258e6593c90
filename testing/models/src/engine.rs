//! The code under test.

#[path = "../../../server/src/engine/barrier.rs"]
pub mod barrier;
#[path = "../../../server/src/engine/journal/lanes.rs"]
pub mod lanes;
#[path = "../../../server/src/engine/guarded/one_or_many.rs"]
pub mod one_or_many;
#[path = "../../../server/src/engine/journal/progress.rs"]
pub mod progress;
#[path = "../../../server/src/engine/requests.rs"]
pub mod requests;
#[path = "../../../server/src/engine/guarded/layered/room.rs"]
pub mod room;
#[path = "../../../server/src/engine/guarded/shards.rs"]
pub mod shards;
#[path = "../../../server/src/engine/journal/sleeper.rs"]
pub mod sleeper;
#[path = "../../../server/src/engine/striped.rs"]
pub mod striped;
#[path = "../../../server/src/engine/journal/trackers.rs"]
pub mod trackers;
#[path = "../../../server/src/engine/versions.rs"]
pub mod versions;

#[derive(Debug)]
pub enum EngineError {
    Stopping,
    RequestReused { keys: usize, limit: usize },
}

pub mod region {
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
