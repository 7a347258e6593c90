//! What comes to the log.

#[path = "../../src/store/log/batch.rs"]
mod batch;
#[path = "../../src/store/log/record.rs"]
mod record;

pub use self::{
    batch::Batch,
    record::{FilterId, RequestId},
};

const MAX_NUMBER: u64 = 1 << 62;
