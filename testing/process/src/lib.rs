//! A seenset server as a process. Tests that send signals or kill the server need one.

use std::{
    io::{self, BufRead, BufReader, Lines},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    thread,
};

use rustix::process::kill_process;
pub use rustix::process::{Pid, Signal};

/// The lines that a server logs after it has begun to serve.
pub type Log = Lines<BufReader<ChildStderr>>;

/// The arguments of a server that listens on a free port of the loopback interface and logs its
/// address.
pub const ARGUMENTS: [&str; 2] = ["--listen=127.0.0.1:0", "--log-format=json"];

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    addresses: Vec<String>,
}

impl ServerProcess {
    /// Starts a server and waits until it serves. The command contains the program, [`ARGUMENTS`]
    /// and any others.
    ///
    /// # Errors
    ///
    /// The error of the process, or [`io::ErrorKind::UnexpectedEof`] with the server's log if it
    /// ends before it serves.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let (server, log) = Self::start_with_log(command)?;
        // The log is drained, so that the server never waits for room in the pipe.
        thread::spawn(move || log.for_each(drop));
        Ok(server)
    }

    /// Starts a server like [`Self::start`], and also returns the rest of the log.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::start`].
    pub fn start_with_log(command: &mut Command) -> io::Result<(Self, Log)> {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut server = Self {
            child,
            addresses: Vec::new(),
        };
        let mut log = BufReader::new(log).lines();
        let mut said = String::new();
        for line in &mut log {
            let line = line?;
            if let Some(addresses) = addresses(&line) {
                server.addresses = addresses;
                return Ok((server, log));
            }
            said = said + &line + "\n";
        }
        let message = format!("the server ended before it served:\n{said}");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }

    /// Returns the first address of the server.
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Returns all addresses of the server.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Returns the exit status, if the process has ended.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the addresses from the log line that contains them.
fn addresses(line: &str) -> Option<Vec<String>> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let addresses = line.get("address")?.as_str()?;
    Some(addresses.split(", ").map(str::to_owned).collect())
}
