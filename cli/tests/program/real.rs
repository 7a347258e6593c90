//! The real server, and the program that sends queries to it.

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use seenset_server::{
    config::Config,
    server::{Server, ServerError, bind},
    store::StoreError,
};
use serde_json::Value;

pub async fn start(data_dir: &Path) -> Server {
    let config = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        data_dir: data_dir.to_owned(),
        capacity: 1_000_000,
        false_positive_rate: Some(1e-9),
        ..Config::default()
    };
    let begun = Instant::now();
    let mut server = loop {
        match bind(config.clone()).await {
            // A program that another test starts has the lock as well, from when it is a process
            // until it is a program.
            Err(ServerError::Store(StoreError::Locked { .. }))
                if begun.elapsed() < Duration::from_secs(5) =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            bound => break bound.unwrap(),
        }
    };
    server.recover().await.unwrap();
    server
}

pub fn seenset(server: &Server, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seenset"))
        .args(["--server", &server.local_addr().to_string()])
        .args(args)
        .output()
        .unwrap()
}

/// The result of a command that succeeds, as its one JSON object.
#[track_caller]
pub fn json(server: &Server, args: &[&str]) -> Value {
    let output = seenset(server, &[args, &["--output=json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}
