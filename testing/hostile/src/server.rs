//! The server under attack: a process on cores of its own.

use std::{cell::RefCell, fs, process::Command};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use seenset_process::{ARGUMENTS, ServerProcess};
use tempfile::TempDir;

use crate::{Arguments, memory_limit::MemoryLimit};

/// The core of the clients. The server runs on the other core, or on both.
const CLIENTS_CORE: usize = 1;

/// The server's memory limit for all of its clients.
pub const CLIENT_MEMORY_BYTES: u64 = 64 << 20;

/// Pins this thread, and the threads that it starts, to one core.
pub fn pin_to_clients_core() -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(CLIENTS_CORE);
    sched_setaffinity(None, &cores).context("this takes two cores")
}

/// A server, killed on drop.
pub struct Server {
    process: RefCell<ServerProcess>,
    pub address: String,
    _directory: TempDir,
    // Dropped after the process: the group cannot be removed while the process is in it.
    _limit: Option<MemoryLimit>,
}

impl Server {
    /// Starts a server on the first core, or on both.
    pub fn start(arguments: &Arguments) -> Result<Self> {
        let program = &arguments.server;
        let directory = TempDir::new()?;
        let cores = match arguments.cores {
            1 => "0",
            _ => "0,1",
        };
        let limit = arguments
            .memory_limit_mib
            .map(|mib| MemoryLimit::new(mib << 20));
        let limit = limit.transpose()?;
        let mut command = limit
            .as_ref()
            .map_or_else(|| Command::new("env"), MemoryLimit::command);
        command
            .args(["taskset", "-c", cores])
            .arg(program)
            .args(ARGUMENTS)
            .args(["--capacity=1000000", "--max-memory=256MiB"])
            .arg("--data-dir")
            .arg(directory.path());
        if !arguments.unlimited {
            command.arg(format!("--max-client-memory={CLIENT_MEMORY_BYTES}"));
        }
        let process = ServerProcess::start(&mut command)
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self {
            address: process.address().to_owned(),
            process: RefCell::new(process),
            _directory: directory,
            _limit: limit,
        })
    }

    /// Returns the memory that the server uses now. `peak_bytes` returns the highest value so far.
    pub fn memory_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    pub fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.borrow().id());
        let status = fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.unwrap_or(0) << 10
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.process.borrow_mut().exit_status(), Ok(None))
    }
}
