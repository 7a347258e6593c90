//! The server that is attacked: a process on cores of its own.

use std::{
    cell::RefCell,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

/// The core of the clients. The server has the other one, or both.
const CLIENTS_CORE: usize = 1;

/// What the server has for all of its clients.
pub const CLIENT_MEMORY_BYTES: u64 = 64 << 20;

/// Keeps this thread, and those that it starts, on one core.
pub fn pin_to_clients_core() -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(CLIENTS_CORE);
    sched_setaffinity(None, &cores).context("this takes two cores")
}

/// A server, killed when dropped.
pub struct Server {
    child: RefCell<Child>,
    pub address: String,
    _directory: TempDir,
}

impl Server {
    /// Starts a server on the first core, or on two.
    pub fn start(program: &Path, cores: usize, is_unlimited: bool) -> Result<Self> {
        let directory = TempDir::new()?;
        let cores = match cores {
            1 => "0",
            _ => "0,1",
        };
        let mut command = Command::new("taskset");
        command
            .args(["-c", cores])
            .arg(program)
            .args(["--listen=127.0.0.1:0", "--log-format=json"])
            .args(["--capacity=1000000", "--max-memory=256MiB"])
            .arg("--data-dir")
            .arg(directory.path());
        if !is_unlimited {
            command.arg(format!("--max-client-memory={CLIENT_MEMORY_BYTES}"));
        }
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let log = child.stderr.take().context("no log")?;
        let mut lines = BufReader::new(log).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let line: serde_json::Value = serde_json::from_str(&line).ok()?;
                Some(line.get("address")?.as_str()?.to_owned())
            })
            .context("the server ended before it served")?;
        // Read on, or the server would wait for room in the pipe.
        thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Self {
            child: RefCell::new(child),
            address,
            _directory: directory,
        })
    }

    /// The memory that the server has now, and the most that it has had.
    pub fn memory_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    pub fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.borrow().id());
        let status = fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.unwrap_or(0) << 10
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.child.borrow_mut().try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}
