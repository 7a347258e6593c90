//! Memory limits of the parts of the server.

use std::path::Path;

use super::ServerError;
use crate::{cgroup, config::Config};

/// The memory limits.
pub(super) struct Memory {
    /// For filters.
    pub filter_bytes: u64,
    /// For clients.
    pub client_bytes: usize,
}

impl Memory {
    /// Returns the limits of the configuration, resolved against the memory that the process may
    /// have: the memory of the machine, or the smaller limit of its cgroup.
    pub fn of(config: &Config) -> Result<Self, ServerError> {
        let process_bytes = process_memory()?;
        let filter_bytes = config.max_memory.bytes(process_bytes);
        let client_bytes = config.max_client_memory.bytes(process_bytes);
        if filter_bytes.saturating_add(client_bytes) > process_bytes {
            tracing::warn!(
                max_memory = filter_bytes,
                max_client_memory = client_bytes,
                limit = process_bytes,
                "--max-memory and --max-client-memory together are above the memory limit of the \
                 process: the kernel will kill the server before it has as much"
            );
        }
        Ok(Self {
            filter_bytes,
            client_bytes: usize::try_from(client_bytes).unwrap_or(usize::MAX),
        })
    }
}

/// Returns the memory that the process may have.
fn process_memory() -> Result<u64, ServerError> {
    let cgroup = cgroup::memory_limit(Path::new("/"));
    let mut system = sysinfo::System::new()?;
    system.refresh_memory();
    let machine = system.total_memory();
    Ok(cgroup.map_or(machine, |cgroup| cgroup.min(machine)))
}
