//! What is tried.

#[path = "../../src/engine/barrier.rs"]
pub mod barrier;
#[path = "../../src/engine/journal/lanes.rs"]
pub mod lanes;
#[path = "../../src/engine/guarded/one_or_many.rs"]
pub mod one_or_many;
#[path = "../../src/engine/journal/progress.rs"]
pub mod progress;
#[path = "../../src/engine/requests.rs"]
pub mod requests;
#[path = "../../src/engine/guarded/layered/room.rs"]
pub mod room;
#[path = "../../src/engine/guarded/shards.rs"]
pub mod shards;
#[path = "../../src/engine/journal/sleeper.rs"]
pub mod sleeper;
#[path = "../../src/engine/striped.rs"]
pub mod striped;
#[path = "../../src/engine/journal/trackers.rs"]
pub mod trackers;
#[path = "../../src/engine/versions.rs"]
pub mod versions;

#[derive(Debug)]
pub enum EngineError {
    Stopping,
    RequestReused { keys: usize, limit: usize },
}

pub mod region {
    use std::ops::{Deref, DerefMut};

    /// Not of a mapping.
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
