//! The server as a process: what a signal does to it, no server in this process can show.

use std::{
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
};

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
pub struct Program {
    child: Child,
    /// Where it serves: the first of its addresses.
    pub address: String,
    /// All of them.
    pub addresses: Vec<String>,
}

impl Program {
    /// Starts a server on a free port, and waits for the log to say which.
    pub fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        let (program, log) = Self::start_with_log(data_dir, arguments);
        // Read on, or the server would wait for room in the pipe.
        std::thread::spawn(move || log.for_each(drop));
        program
    }

    /// The same, with the rest of the log.
    pub fn start_with_log(
        data_dir: &Path,
        arguments: &[&str],
    ) -> (Self, Lines<BufReader<ChildStderr>>) {
        let mut child = command()
            .args([
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--data-dir",
            ])
            .arg(data_dir)
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(|line| line.unwrap())
            .find_map(|line| {
                let line: serde_json::Value = serde_json::from_str(&line).expect(&line);
                Some(line.get("address")?.as_str()?.to_owned())
            })
            .expect("the server ended before it served");
        let addresses: Vec<String> = address.split(", ").map(str::to_owned).collect();
        let program = Self {
            child,
            address: addresses.first().unwrap().clone(),
            addresses,
        };
        (program, lines)
    }

    /// Clients on a connection of their own.
    pub async fn connect(&self) -> (DedupServiceClient<Channel>, FilterServiceClient<Channel>) {
        let channel = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        let channel = channel.connect().await.unwrap();
        (
            DedupServiceClient::new(channel.clone()),
            FilterServiceClient::new(channel),
        )
    }

    /// Sends a signal, by the name that `kill` has for it.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the end; there is no code after a signal that the program did not handle.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
