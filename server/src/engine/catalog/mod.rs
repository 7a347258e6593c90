//! The filters of a server by name, and the operations on whole filters: one file for each, from the
//! call of the operator to the bits and the files.

mod copy;
mod exchange;
mod filters;
mod merge;
mod names;
mod rebuild;
mod rename;
mod reset;

use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};

use self::names::{Creating, Promised};
pub use self::{
    exchange::{Export, FileFormat, Import},
    filters::{Creation, Page},
};
use super::{
    Settings, background::Queue, budget::MemoryBudget, call::limits::Limits, clock::Clock,
    data_path::DataPath,
};
use crate::store::DataDirectory;

/// Everything that operations on whole filters need besides.
#[derive(Debug)]
pub struct Catalog {
    pub(super) data: Arc<DataPath>,
    pub(super) directory: DataDirectory,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) clock: Clock,
    pub(super) segment_bytes: u64,
    /// The queue for the work of operators' calls that needs no disk.
    pub(super) queue: Queue,
    /// See [`names::Naming`].
    pub(super) naming: Arc<Mutex<()>>,
    /// Serialises the removal of old segments of the log.
    pub(super) shortening: parking_lot::Mutex<()>,
    pub(super) promised: Promised,
    pub(super) creating: Creating,
    /// One permit for each import that can be in progress.
    pub(super) imports: Arc<Semaphore>,
}

impl Catalog {
    /// Returns the catalog of an engine without filters.
    pub fn new(
        data: Arc<DataPath>,
        directory: DataDirectory,
        settings: &Settings,
        clock: Clock,
    ) -> Self {
        Self {
            data,
            directory,
            budget: MemoryBudget::new(settings.max_memory_bytes),
            clock,
            segment_bytes: settings.segment_bytes,
            queue: Queue::new(),
            naming: Arc::default(),
            shortening: parking_lot::Mutex::default(),
            promised: Promised::default(),
            creating: Creating::default(),
            imports: Semaphore::new(Limits::MAX_IMPORTS).into(),
        }
    }
}
