//! Keys of any bytes: as arguments, in files of each format, and through the client crate.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    process::{Command, Output, Stdio},
};

use seenset_client::{Client, KeyBatch};
use seenset_server::server::Server;
use serde_json::{Value, json};

use crate::real::{json, seenset, start};

/// Runs the program with arguments and input of any bytes.
fn run(server: &Server, args: &[&[u8]], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_seenset"))
        .args(["--server", &server.local_addr().to_string()])
        .args(args.iter().map(|&arg| OsStr::from_bytes(arg)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Returns the output of a run that succeeds.
#[track_caller]
fn written(server: &Server, args: &[&[u8]], input: &[u8]) -> Vec<u8> {
    let output = run(server, args, input);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_keys_of_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path()).await;
    let add: [&[u8]; 3] = [b"query-and-add", b"\xff\xfe", b"text"];
    assert_eq!(written(&server, &add, b""), b"new\t\xff\xfe\nnew\ttext\n");
    let query: [&[u8]; 4] = [b"query", b"\xff\xfe", b"\xfd\xfc", b"text"];
    let answers = b"seen\t\xff\xfe\nnew\t\xfd\xfc\nseen\ttext\n";
    assert_eq!(written(&server, &query, b""), answers);

    // The same keys in digits, and as JSON.
    let answer = seenset(&server, &["query", "--hex", "FFFE", "fdfc", "74657874"]);
    assert_eq!(answer.stdout, b"seen\tfffe\nnew\tfdfc\nseen\t74657874\n");
    let answer = json(&server, &["query", "--hex", "fffe"]);
    assert_eq!(answer, json!({"key_hex": "fffe", "seen": true}));
    let args: [&[u8]; 3] = [b"--output=json", b"query", b"\xff\xfe"];
    let answer: Value = serde_json::from_slice(&written(&server, &args, b"")).unwrap();
    assert_eq!(answer, json!({"key_hex": "fffe", "seen": true}));
    let refused = seenset(&server, &["query", "--hex", "abc"]);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(
        stderr.contains("--hex \"abc\": 3 hexadecimal digits"),
        "{stderr}"
    );

    let explain: [&[u8]; 2] = [b"explain", b"\xff\xfe"];
    assert!(written(&server, &explain, b"").starts_with(b"seen\t\xff\xfe\n  hash "));
    let explained = json(&server, &["explain", "--hex", "fdfc"]);
    assert_eq!(explained["key_hex"], "fdfc");
    assert_eq!(explained["canonical_key_hex"], "fdfc");
    assert_eq!(explained["seen"], false);

    let create = [
        "filter",
        "create",
        "counts",
        "--capacity=1000",
        "--kind=counting",
    ];
    assert!(seenset(&server, &create).status.success());
    let counts: &[u8] = b"--filter=counts";
    let added = written(&server, &[counts, b"add", b"\xff"], b"");
    assert_eq!(added, b"added\t\xff\n");
    let removed = written(&server, &[counts, b"remove", b"\xff", b"\xfe"], b"");
    assert_eq!(removed, b"removed\t\xff\nabsent\t\xfe\n");
}

/// A key that was added in one format is seen in the others, and by the client crate.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_each_format_have_the_same_keys() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path()).await;
    // This key is not first: at the start its bytes would be the mark of UTF-16.
    let lines = b"b\n\xff\xfe\r\n\xff\xfe\n";
    assert_eq!(written(&server, &[b"dedup"], lines), b"b\n\xff\xfe\r\n");
    let null = b"\xff\xfe\0a\nb\0b";
    let args: [&[u8]; 2] = [b"dedup", b"--null"];
    assert_eq!(written(&server, &args, null), b"a\nb\0");
    let binary = b"\0\0\0\x02\xff\xfe\0\0\0\x03a\nb\0\0\0\x02\0\0";
    let args: [&[u8]; 2] = [b"dedup", b"--binary"];
    assert_eq!(written(&server, &args, binary), b"\0\0\0\x02\0\0");
    let args: [&[u8]; 2] = [b"dedup", b"--hex"];
    assert_eq!(written(&server, &args, b"FFFE\n0000\n01"), b"01\n");
    let args: [&[u8]; 3] = [b"load", b"--hex", b"-"];
    written(&server, &args, b"c0ffee\n");

    let client = Client::connect(&server.local_addr().to_string())
        .await
        .unwrap();
    let keys: [&[u8]; 6] = [
        b"\xff\xfe",
        b"a\nb",
        b"\0\0",
        b"\x01",
        b"\xc0\xff\xee",
        b"new",
    ];
    let seen = client.query_batch(keys).await.unwrap();
    assert_eq!(seen, [true, true, true, true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_ends_within_a_key_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path()).await;
    let args: [&[u8]; 2] = [b"dedup", b"--binary"];
    let output = run(&server, &args, b"\0\0\0\x01a\0\0\0\x14short");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"\0\0\0\x01a");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let says = "cannot read on after stdin:1: the key at byte 5 has 20 bytes after its length, and \
                the file ends after 5 of them";
    assert!(stderr.contains(says), "{stderr}");
    let refused = seenset(&server, &["dedup", "--binary", "--null"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// Single calls, batches, streams and coalesced calls, with text and with bytes.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_crate_takes_keys_of_any_type() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path()).await;
    let client = Client::connect(&server.local_addr().to_string())
        .await
        .unwrap();
    let digest = [0xff_u8; 20];
    assert!(!client.query_and_add(digest).await.unwrap());
    assert!(client.query_and_add(&digest).await.unwrap());
    assert!(!client.query("text").await.unwrap());
    client.add(String::from("text")).await.unwrap();
    assert!(client.query(b"text").await.unwrap());
    let mut batch = KeyBatch::from(vec![vec![255, 254], vec![253, 252]]);
    batch.push("text");
    let seen = client.query_and_add_batch(batch).await.unwrap();
    assert_eq!(seen, [false, false, true]);
    let (mut sender, mut receiver) = client.stream(2);
    sender.send([[255, 254], [251, 250]], ()).await.unwrap();
    let answered = receiver.recv().await.unwrap().unwrap();
    assert_eq!(answered.seen, [true, false]);
    let coalescing = client.coalescing();
    assert!(coalescing.query_and_add([251, 250]).await.unwrap());
    assert!(!coalescing.query_and_add([249, 248]).await.unwrap());
    assert!(client.explain([249, 248]).await.unwrap().seen());
}
