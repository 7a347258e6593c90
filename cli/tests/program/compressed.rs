//! The program `seenset` with compressed files.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use tempfile::TempDir;

use crate::run::{command, run, run_with_input};
use seenset_fake::Service;

fn gzip(content: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &str) -> Vec<u8> {
    zstd::encode_all(content.as_bytes(), 0).unwrap()
}

/// Different lines, hardly compressible.
fn lines(range: std::ops::Range<u64>) -> String {
    let line = |line: u64| format!("{:x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    range.map(line).collect()
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A file of this name, as an argument.
    fn with(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path: PathBuf = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dedup_writes_what_was_compressed_as_plain_lines() {
    let service = Service::start().await;
    let files = Files::new();
    // Names say nothing.
    let one = files.with("one.txt", gzip(&lines(0..20_000)));
    let two = files.with("two", zstd(&lines(10_000..30_000)));
    let plain = files.with("plain.gz", lines(25_000..35_000));
    let several = [
        gzip(&lines(35_000..36_000)),
        zstd("last"),
        gzip(" line\r\n"),
        gzip("one more"),
    ];
    let args = ["dedup", &one, &two, &plain, "-"];
    let dedup = run_with_input(&service, &args, several.concat());
    assert_eq!(dedup.code, Some(0), "{}", dedup.stderr);
    let expected = lines(0..36_000) + "last line\r\none more\n";
    assert!(dedup.stdout == expected, "other lines than expected");
    let summary = "51002 lines: 36002 new, 15000 seen, 0 empty, 0 bad; ";
    assert!(dedup.stderr.starts_with(summary), "{}", dedup.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn load_adds_what_was_compressed() {
    let service = Service::start().await;
    let files = Files::new();
    let one = files.with("one", gzip(&lines(0..10_000)));
    let two = zstd(&lines(5_000..12_000));
    let load = run_with_input(&service, &["load", "--output=json", &one, "-"], two);
    assert_eq!(load.code, Some(0), "{}", load.stderr);
    let summary: Value = serde_json::from_str(&load.stdout).unwrap();
    assert_eq!(summary["added"], 17_000);
    assert_eq!(service.state.key_count(), 12_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_counted_as_they_were_before_compression() {
    let service = Service::start().await;
    let input = [gzip("a\n\n123456789\nb"), gzip("c\n123456789\n")].concat();
    let outcome = run_with_input(&service, &["dedup", "--max-key-bytes=8"], input);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(1), "a\nbc\n")
    );
    let bad = "longer than 8 bytes (--max-key-bytes); left out";
    let expected = format!("stdin:3: {bad}\nstdin:5: {bad}\n5 lines: 2 new");
    assert!(outcome.stderr.starts_with(&expected), "{}", outcome.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_cut_short_names_the_line_up_to_which_all_is_done() {
    let all = lines(0..50_000);
    for (format, whole) in [("gzip", gzip(&all)), ("zstd", zstd(&all))] {
        let service = Service::start().await;
        let files = Files::new();
        let file = files.with("cut", &whole[..whole.len() / 2]);
        let dedup = run(&service, &["dedup", &file]);
        assert_eq!(dedup.code, Some(1));
        let count = dedup.stdout.lines().count();
        assert!(count > 15_000, "{format}: {count} lines");
        // Whole lines, and none that was cut.
        assert!(dedup.stdout == lines(0..count as u64), "{format}");
        let expected = format!(
            "seenset: cannot read on after {file}:{count}: the {format} data end too early\n\
             Every line up to {file}:{count} is answered, and written if new; no line after it \
             is marked.\n"
        );
        assert!(dedup.stderr.ends_with(&expected), "{}", dedup.stderr);
        assert_eq!(service.state.key_count(), count);

        let load = run(&service, &["load", &file]);
        assert_eq!((load.code, load.stdout.as_str()), (Some(1), ""));
        let expected = format!(
            "seenset: cannot read on after {file}:{count}: the {format} data end too early\n\
             Before that, every line up to {file}:{count} is added."
        );
        assert!(load.stderr.starts_with(&expected), "{}", load.stderr);
        assert_eq!(service.state.key_count(), count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_ends_the_run_and_what_comes_before_it_is_done() {
    let service = Service::start().await;
    let files = Files::new();
    let mut damaged = gzip(&lines(0..10));
    *damaged.last_mut().unwrap() ^= 1;
    let file = files.with("damaged", damaged);
    let after = files.with("after", lines(10..20));
    let outcome = run(&service, &["dedup", &file, &after]);
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stdout, lines(0..10));
    let expected = format!("cannot read on after {file}:10: the gzip data are damaged (");
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    let expected = format!("\nEvery line up to {file}:10 is answered");
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_adds_nothing() {
    let service = Service::start().await;
    let files = Files::new();
    for (name, content, reason) in [
        (
            "window",
            // Two gigabytes, for one line.
            &b"\x28\xb5\x2f\xfd\0\xa8\x11\0\0a\n"[..],
            "a zstd frame asks for a window of 2147483648 bytes, and the limit is 134217728",
        ),
        (
            "xz",
            b"\xfd7zXZ\0\0\x04",
            "xz is not supported: decompress it first",
        ),
        (
            "bzip2",
            b"BZh91AY&SYa\n",
            "bzip2 is not supported: decompress it first",
        ),
    ] {
        let file = files.with(name, content);
        let outcome = run(&service, &["load", &file]);
        assert_eq!(outcome.code, Some(1), "{name}");
        let expected = format!("cannot read on after {file}:0: {reason}");
        assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
        let expected = "no line is known to be added";
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    assert_eq!(service.state.key_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_slow_compressed_pipe_come_at_once() {
    let service = Service::start().await;
    let mut child = command(&service, &["dedup"]).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while stdout.read_line(&mut line).unwrap() > 0 {
            sender.send(std::mem::take(&mut line)).unwrap();
        }
    });
    let mut encoder = GzEncoder::new(stdin, Compression::default());
    for line in ["a\n", "b\n"] {
        encoder.write_all(line.as_bytes()).unwrap();
        encoder.flush().unwrap();
        let answer = answers.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer.as_deref(), Ok(line), "a line was held back");
    }
    drop(encoder.finish().unwrap());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
}
