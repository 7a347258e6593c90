//! The server as a process: a server inside the test process cannot show the effect of a signal.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

pub use seenset_process::Signal;
use seenset_process::{ARGUMENTS, Log, ServerProcess};
use seenset_proto::v1::{
    dedup_service_client::DedupServiceClient, filter_service_client::FilterServiceClient,
};
use tonic::transport::Channel;

/// Returns the program without arguments, and without the variables of its prefix: they are
/// settings, or tests read them, and the program refuses variables that it does not know.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seenset-server"));
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"SEENSET_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A running server. It ends with the test.
pub struct Program(ServerProcess);

impl Program {
    /// Starts a server on a free port and waits until it serves.
    pub fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        Self(ServerProcess::start(&mut with_arguments(data_dir, arguments)).unwrap())
    }

    /// Starts a server like [`Self::start`], and also returns the rest of the log.
    pub fn start_with_log(data_dir: &Path, arguments: &[&str]) -> (Self, Log) {
        let started = ServerProcess::start_with_log(&mut with_arguments(data_dir, arguments));
        let (server, log) = started.unwrap();
        (Self(server), log)
    }

    /// Returns the first address of the server.
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Returns all addresses of the server.
    pub fn addresses(&self) -> &[String] {
        self.0.addresses()
    }

    /// Returns clients on a separate connection.
    pub async fn connect(&self) -> (DedupServiceClient<Channel>, FilterServiceClient<Channel>) {
        let channel = Channel::from_shared(format!("http://{}", self.address())).unwrap();
        let channel = channel.connect().await.unwrap();
        (
            DedupServiceClient::new(channel.clone()),
            FilterServiceClient::new(channel),
        )
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.0.signal(signal).unwrap();
    }

    /// Waits until the process ends. Returns no code after a signal that the program does not
    /// handle.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

fn with_arguments(data_dir: &Path, arguments: &[&str]) -> Command {
    let mut command = command();
    command
        .args(ARGUMENTS)
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments);
    command
}
