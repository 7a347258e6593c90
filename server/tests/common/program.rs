//! The server as a process: what a signal does to it, no server in this process can show.

use std::{
    path::Path,
    process::{Command, Stdio},
};

pub use seenset_process::Signal;
use seenset_process::{ARGUMENTS, Log, ServerProcess};
use seenset_proto::v1::{
    dedup_service_client::DedupServiceClient, filter_service_client::FilterServiceClient,
};
use tonic::transport::Channel;

/// The program, without arguments, and without what the tests read from the environment: it
/// refuses variables that look like its own and that it does not know.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seenset-server"));
    for variable in [
        "SEENSET_LISTEN",
        "SEENSET_KILLS",
        "SEENSET_CUTS",
        "SEENSET_SEED",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// A running server, ended with the test.
pub struct Program(ServerProcess);

impl Program {
    /// Starts a server on a free port, and waits until it serves.
    pub fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        Self(ServerProcess::start(&mut with_arguments(data_dir, arguments)).unwrap())
    }

    /// The same, with the rest of the log.
    pub fn start_with_log(data_dir: &Path, arguments: &[&str]) -> (Self, Log) {
        let started = ServerProcess::start_with_log(&mut with_arguments(data_dir, arguments));
        let (server, log) = started.unwrap();
        (Self(server), log)
    }

    /// The first address that it serves at.
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// All addresses that it serves at.
    pub fn addresses(&self) -> &[String] {
        self.0.addresses()
    }

    /// Clients on a connection of their own.
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

    /// Waits for the end; there is no code after a signal that the program did not handle.
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
