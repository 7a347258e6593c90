//! The program from the view of its operator: settings, exit codes, signals, files on the disk. The
//! answers to callers when it is killed are tested in `crashes/`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Output},
    time::{Duration, Instant},
};

use seenset_proto::v1::{
    AddBatchRequest, AddRequest, GetFilterRequest, QueryAndAddStreamRequest, QueryBatchRequest,
    StoreRequest,
};
use seenset_server::store::SNAPSHOT_FORMAT;
use tokio_stream::StreamExt;

use crate::common::program::{Program, Signal, command};

fn run(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

/// Asserts the exit code, and that standard error is one line that contains `expected`.
fn assert_refused(output: &Output, code: i32, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("seenset-server: "), "{stderr}");
    assert!(
        stderr.contains(expected),
        "{stderr:?} does not say {expected:?}"
    );
}

/// Down to the fewest with which a program can load its libraries.
#[test]
fn too_few_files_that_can_be_open_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for limit in [4, 6, 8, 12, 63] {
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let output = process::Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_seenset-server")])
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path())
            .output()
            .unwrap();
        assert_refused(&output, 1, &format!("the limit of open files is {limit}"));
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for argument in ["--help", "--version", "--print-config"] {
        let output = command().arg(argument).stdout(full()).output().unwrap();
        assert_refused(&output, 1, "cannot write the output: No space left");
    }
    let mut server = Program::start(dir.path(), &[]);
    server.signal(Signal::TERM);
    assert_eq!(server.exit_code(), Some(0));
    let verify = || {
        let mut verify = command();
        verify.arg("verify").arg(dir.path());
        verify
    };
    let output = verify().stdout(full()).output().unwrap();
    assert_refused(&output, 1, "cannot write the output: No space left");
    let output = verify().output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty());
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seenset.toml");
    fs::write(
        &file,
        "capacity = 1\nmax_key_bytes = 1\nmax_batch_keys = 1\n",
    )
    .unwrap();
    let output = command()
        .args(["--print-config", "--capacity", "3", "--config"])
        .arg(&file)
        .env("SEENSET_CAPACITY", "2")
        .env("SEENSET_MAX_KEY_BYTES", "2")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "capacity = 3",
        "max_key_bytes = 2",
        "max_batch_keys = 1",
        "layout = \"blocked\"",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{text} has no {line:?}"
        );
    }
    // The file can also be named in the environment.
    let output = command()
        .arg("--print-config")
        .env("SEENSET_CONFIG", &file)
        .output()
        .unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("capacity = 1\n")
    );
}

#[test]
fn bad_usage_exits_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("seenset.toml");
    fs::write(&file, "data_dri = \"x\"\n").unwrap();
    assert_refused(
        &run(&["--capacity", "0"]),
        2,
        "capacity is 0; it must be at least 1",
    );
    assert_refused(
        &run(&["--no-such-flag"]),
        2,
        "unexpected argument '--no-such-flag'",
    );
    assert_refused(
        &run(&["--config", file.to_str().unwrap()]),
        2,
        "unknown field `data_dri`",
    );
    let output = command().env("SEENSET_LAYOUT", "round").output().unwrap();
    assert_refused(&output, 2, "'round' for '--layout");
    let output = command().env("SEENSET_LAYUOT", "classic").output().unwrap();
    assert_refused(&output, 2, "SEENSET_LAYUOT is unknown");
    assert!(run(&["--help"]).status.success() && run(&["--version"]).status.success());
}

#[test]
fn what_is_in_the_way_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let first = Program::start(dir.path(), &[]);
    let path = dir.path().to_str().unwrap();
    let quiet = ["--log-filter", "off", "--listen"];
    let second = run(&[&quiet[..], &["127.0.0.1:0", "--data-dir", path]].concat());
    assert_refused(
        &second,
        1,
        &format!("{path} is in use by another seenset-server"),
    );
    let other = dir.path().join("other");
    let other = other.to_str().unwrap();
    let second = run(&[&quiet[..], &[first.address(), "--data-dir", other]].concat());
    assert_refused(&second, 1, &format!("cannot listen on {}", first.address()));
    let metrics = [
        "127.0.0.1:0",
        "--data-dir",
        other,
        "--metrics-listen",
        first.address(),
    ];
    let metrics = run(&[&quiet[..], &metrics].concat());
    assert_refused(&metrics, 1, "or choose another --metrics-listen");
    let nowhere = run(&[&quiet[..], &["127.0.0.1:0", "--data-dir", "/proc/nowhere"]].concat());
    assert_refused(&nowhere, 1, "/proc/nowhere");
    let over = ["127.0.0.1:0", "--data-dir", other, "--max-memory", "1MiB"];
    assert_refused(
        &run(&[&quiet[..], &over].concat()),
        1,
        "the budget of 1048576 (--max-memory)",
    );
}

// On several threads: a client that does not answer the server's GOAWAY makes the server wait.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_stores_what_was_added_and_exits_with_0() {
    let dir = tempfile::tempdir().unwrap();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let mut program =
            Program::start(dir.path(), &["--capacity", "1000", "--store-interval", "0"]);
        let (mut dedup, _) = program.connect().await;
        let request = AddRequest {
            key: format!("key {round}"),
            ..Default::default()
        };
        dedup.add(request).await.unwrap();
        program.signal(signal);
        assert_eq!(program.exit_code(), Some(0));
    }
    let program = Program::start(dir.path(), &[]);
    let (mut dedup, _) = program.connect().await;
    let keys = vec!["key 0".to_owned(), "key 1".to_owned(), "key 2".to_owned()];
    let request = QueryBatchRequest {
        keys,
        ..Default::default()
    };
    assert_eq!(
        dedup.query_batch(request).await.unwrap().into_inner().seen,
        [true, true, false]
    );
}

/// A closed terminal, `systemctl reload` and log rotation do not end the server.
#[tokio::test(flavor = "multi_thread")]
async fn other_signals_are_ignored_and_sigquit_stops_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--capacity", "1000", "--durability", "snapshot"];
    let (mut program, mut log) = Program::start_with_log(dir.path(), &settings);
    let (mut dedup, _) = program.connect().await;
    let key = || "key".to_owned();
    let add = AddRequest {
        key: key(),
        ..Default::default()
    };
    dedup.add(add).await.unwrap();
    for (signal, named) in [
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
    ] {
        program.signal(signal);
        assert!(log.any(|line| line.unwrap().contains(named)), "{named}");
    }
    program.signal(Signal::XFSZ);
    program.signal(Signal::QUIT);
    log.for_each(drop);
    assert_eq!(program.exit_code(), Some(0));

    let program = Program::start(dir.path(), &settings);
    let (mut dedup, _) = program.connect().await;
    let batch = QueryBatchRequest {
        keys: vec![key()],
        ..Default::default()
    };
    let seen = dedup.query_batch(batch).await.unwrap().into_inner().seen;
    assert_eq!(seen, [true]);
}

/// Clients of all addresses reach the same server. No socket file remains.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_listens_on_several_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let unix = format!("unix:{}", socket.display());
    let data_dir = dir.path().join("data");
    let listen = [
        "--capacity",
        "1000",
        "--listen",
        "localhost:0",
        "--listen",
        &unix,
    ];
    let connect = |address: String| async move {
        let endpoint = tonic::transport::Endpoint::from_shared(address).unwrap();
        let channel = endpoint.connect().await.unwrap();
        seenset_proto::v1::dedup_service_client::DedupServiceClient::new(channel)
    };
    for (round, ends_with) in [Signal::KILL, Signal::TERM].into_iter().enumerate() {
        let mut program = Program::start(&data_dir, &listen);
        let addresses = program.addresses().to_vec();
        assert!(addresses.len() >= 3, "{addresses:?}");
        assert_eq!(addresses.last(), Some(&unix));
        for (number, address) in addresses.iter().enumerate() {
            let uri = match address.starts_with("unix:") {
                true => address.clone(),
                false => format!("http://{address}"),
            };
            let batch = AddBatchRequest {
                keys: vec![format!("{round} {number}")],
                ..Default::default()
            };
            connect(uri).await.add_batch(batch).await.unwrap();
        }
        let mut client = connect(unix.clone()).await;
        let keys = (0..addresses.len()).map(|number| format!("{round} {number}"));
        let batch = QueryBatchRequest {
            keys: keys.collect(),
            ..Default::default()
        };
        let seen = client.query_batch(batch).await.unwrap().into_inner().seen;
        assert!(seen.iter().all(|&seen| seen), "{seen:?}");
        drop(client);
        program.signal(ends_with);
        let code = program.exit_code();
        match ends_with {
            // The next server replaces it.
            Signal::KILL => assert!(socket.exists()),
            _ => assert_eq!((code, socket.exists()), (Some(0), false)),
        }
    }
    let first = Program::start(&data_dir, &listen);
    let other = dir.path().join("other");
    let other = other.to_str().unwrap();
    let refused = run(&[
        "--log-filter",
        "off",
        "--listen",
        &unix,
        "--data-dir",
        other,
    ]);
    assert_refused(&refused, 1, &format!("cannot listen on {unix}"));
    assert!(socket.exists());
    drop(first);
}

/// The reader of the log may go away. Calls that log a line are still answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_harms_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let (mut program, log) = Program::start_with_log(dir.path(), &["--log-filter", "trace"]);
    drop(log);
    let (mut dedup, _) = program.connect().await;
    for _ in 0..3 {
        dedup.store(StoreRequest::default()).await.unwrap();
    }
    program.signal(Signal::TERM);
    assert_eq!(program.exit_code(), Some(0));
}

#[test]
fn a_damaged_snapshot_stops_the_start_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(dir.path(), &["--capacity", "1000"]);
    program.signal(Signal::TERM);
    assert_eq!(program.exit_code(), Some(0));
    let path = file_of(dir.path(), "default.snapshot.");
    let good = fs::read(&path).unwrap();
    let mut flipped = good.clone();
    flipped[100] ^= 1;
    let mut newer = good.clone();
    let (format, known) = (SNAPSHOT_FORMAT + 1, SNAPSHOT_FORMAT);
    newer[8] = format as u8;
    let told = format!("has format {format}, and this seenset-server reads format {known}");
    for (bytes, expected) in [
        (flipped, "checksum of the header: expected"),
        (
            good[..good.len() - 1].to_vec(),
            "length of the file: expected",
        ),
        (newer, &*told),
    ] {
        fs::write(&path, &bytes).unwrap();
        let data_dir = dir.path().to_str().unwrap();
        let output = run(&[
            "--listen",
            "127.0.0.1:0",
            "--log-filter",
            "off",
            "--data-dir",
            data_dir,
        ]);
        assert_refused(&output, 1, expected);
        assert_refused(&output, 1, path.to_str().unwrap());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

/// Returns the one file in a directory whose name begins with `name`.
fn file_of(dir: &Path, name: &str) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files = files.filter(|entry| entry.file_name().to_string_lossy().starts_with(name));
    let file = files.next().expect(name).path();
    assert!(files.next().is_none(), "two files {name}");
    file
}

/// Promise 5 against the worst case: the server is killed at any moment while snapshots follow each
/// other and keys come in. After each start the keys are there that a `Store` has acknowledged, and
/// the snapshot is complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_during_store_leaves_a_whole_snapshot() {
    const ROUNDS: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let key = |i: u64| format!("https://example.com/{i}");
    let (mut stored_keys, mut stored_version) = (0, 0);
    for round in 0..ROUNDS {
        let mut program = Program::start(
            dir.path(),
            &[
                "--capacity",
                "10000000",
                "--store-interval",
                "0",
                "--durability",
                "snapshot",
            ],
        );
        let (mut dedup, mut admin) = program.connect().await;
        let filter = admin
            .get_filter(GetFilterRequest::default())
            .await
            .unwrap()
            .into_inner();
        let version = filter.filter.unwrap().version;
        assert!(
            version >= stored_version,
            "round {round}: {version} after {stored_version}"
        );
        for first in (0..stored_keys).step_by(10_000) {
            let keys = (first..first + 10_000).map(key).collect();
            let request = QueryBatchRequest {
                keys,
                ..Default::default()
            };
            let seen = dedup.query_batch(request).await.unwrap().into_inner().seen;
            assert!(
                seen.iter().all(|&seen| seen),
                "round {round}: forgotten from {first} on"
            );
        }

        // The keys that were added after the last store are lost with the process.
        let mut acknowledged = stored_keys;
        let (mut storing, _) = program.connect().await;
        // The time varies from a fraction of a snapshot's time to several times it, so each kill
        // hits another point.
        let deadline = Instant::now() + Duration::from_millis(15 + 11 * round);
        while Instant::now() < deadline {
            let before = acknowledged;
            let adding = async {
                let keys = (before..before + 10_000).map(key).collect();
                dedup
                    .add_batch(AddBatchRequest {
                        keys,
                        ..Default::default()
                    })
                    .await
                    .unwrap();
            };
            let store =
                tokio::time::timeout_at(deadline.into(), storing.store(StoreRequest::default()));
            let (stored, ()) = tokio::join!(store, adding);
            acknowledged = before + 10_000;
            if let Ok(stored) = stored {
                stored_keys = before;
                stored_version = stored.unwrap().into_inner().filters[0].version;
            }
        }
        program.signal(Signal::KILL);
        assert_eq!(program.exit_code(), None);
    }
    assert!(
        stored_keys > 0,
        "no store was ever acknowledged: nothing was tested"
    );
}

/// A stream that never pauses is cut off by the drain timeout. All batches that were answered
/// before that are in the last snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_while_stopping_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(
        dir.path(),
        &["--capacity", "10000000", "--drain-timeout", "1s"],
    );
    let (mut dedup, _) = program.connect().await;
    let keys = |batch: u64| {
        (batch * 100..(batch + 1) * 100)
            .map(|i| format!("key {i}"))
            .collect()
    };
    let requests = tokio_stream::iter(0..).map(move |batch| QueryAndAddStreamRequest {
        keys: keys(batch),
        ..Default::default()
    });
    let mut answers = dedup
        .query_and_add_stream(requests)
        .await
        .unwrap()
        .into_inner();
    answers.message().await.unwrap().unwrap();
    program.signal(Signal::TERM);
    let mut acknowledged = 1;
    while let Ok(Some(_)) = answers.message().await {
        acknowledged += 1;
    }
    assert_eq!(program.exit_code(), Some(0));

    let program = Program::start(dir.path(), &[]);
    let (mut dedup, _) = program.connect().await;
    for batch in 0..acknowledged {
        let request = QueryBatchRequest {
            keys: keys(batch),
            ..Default::default()
        };
        let seen = dedup.query_batch(request).await.unwrap().into_inner().seen;
        assert!(
            seen.iter().all(|&seen| seen),
            "batch {batch} of {acknowledged} was forgotten"
        );
    }
}
