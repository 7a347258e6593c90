//! A server that listens on a Unix socket, and the program that speaks to it.

use std::process::Command;

use seenset_server::{
    config::{Address, Config},
    server,
};

/// Every command reaches it, and so do the connections of the generator of `bench`.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_reached_by_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let config = Config {
        listen: vec![Address::Unix(socket.clone())],
        data_dir: dir.path().join("data"),
        capacity: 100_000,
        ..Config::default()
    };
    let mut server = server::bind(config).await.unwrap();
    server.recover().await.unwrap();
    let bench = [
        "bench",
        "--duration=200ms",
        "--warmup=0s",
        "--capacity=100000",
    ];
    for address in [
        format!("unix:{}", socket.display()),
        format!("unix://{}", socket.display()),
    ] {
        for arguments in [
            vec!["health"],
            vec!["add", "a"],
            vec!["query", "a"],
            vec!["filter", "list"],
            [&bench[..], &["--mode=batch"]].concat(),
            [&bench[..], &["--mode=coalesced"]].concat(),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_seenset"));
            command.args(["--server", &address]).args(&arguments);
            let run = tokio::task::spawn_blocking(move || command.output().unwrap());
            let run = run.await.unwrap();
            let error = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{arguments:?}: {error}");
        }
    }
    server.shutdown(std::future::ready(())).await.unwrap();
    assert!(!socket.exists());

    // Nobody listens there any more.
    let mut command = Command::new(env!("CARGO_BIN_EXE_seenset"));
    let address = format!("unix:{}", socket.display());
    let run = command
        .args(["--server", &address, "--timeout=1s", "health"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{error}");
    assert!(error.contains(&address), "{error}");
}
