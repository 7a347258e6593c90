//! The batches of the log, and the state of a shard.

#[path = "../../../server/src/store/log/batch.rs"]
mod batch;
#[path = "../../../server/src/store/id.rs"]
mod id;
#[path = "../../../server/src/store/log/record.rs"]
mod record;

pub use self::{
    batch::Batch,
    id::{FilterId, RequestId},
    record::{Record, RecordHead},
};

#[derive(Debug, Clone, Copy, Default)]
pub struct ShardState {
    pub version: u64,
    pub keys_added: u64,
    pub bits_set: u64,
    pub cleared: u64,
}

const MAX_NUMBER: u64 = 1 << 62;
