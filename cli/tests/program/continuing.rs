//! `seenset dedup --continue`, against a service that loses answers and forgets on demand.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::Ordering::SeqCst,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use tempfile::TempDir;

use crate::run::command;
use seenset_fake::Service;

/// The files of a run.
struct Files {
    directory: TempDir,
    inputs: Vec<PathBuf>,
}

/// The result of a run.
struct Run {
    code: Option<i32>,
    stderr: String,
}

fn lines(range: std::ops::Range<u32>) -> String {
    range
        .map(|line| format!("https://example.com/{}\n", line % 7_000))
        .collect()
}

impl Files {
    /// Three files of 3,000 lines, of which the last 2,000 have come before; a bad line and empty
    /// ones among them.
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let paths = ["plain", "gzip", "zstd"].map(|name| directory.path().join(name));
        let [plain, gzip, zstd] = &paths;
        fs::write(plain, lines(0..3_000)).unwrap();
        let mut encoder = GzEncoder::new(File::create(gzip).unwrap(), Compression::default());
        encoder.write_all(b"\n\n").unwrap();
        encoder.write_all(lines(3_000..6_000).as_bytes()).unwrap();
        encoder.finish().unwrap();
        // Without its last line feed.
        let last = lines(6_000..9_000);
        fs::write(
            zstd,
            zstd::encode_all(last.trim_end().as_bytes(), 0).unwrap(),
        )
        .unwrap();
        Self {
            inputs: paths.into(),
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap()
    }

    fn expected() -> String {
        lines(0..7_000)
    }

    /// Runs `dedup` of all files, appending to the output.
    fn dedup(&self, service: &Service, args: &[&str]) -> Run {
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("output"));
        self.dedup_to(service, args, output.unwrap().into())
    }

    fn dedup_to(&self, service: &Service, args: &[&str], output: Stdio) -> Run {
        let ended = command(service, &["dedup", "--timeout=800ms", "--window=3"])
            .args(args)
            .args(&self.inputs)
            .stdin(Stdio::null())
            .stdout(output)
            .output()
            .unwrap();
        Run {
            code: ended.status.code(),
            stderr: String::from_utf8(ended.stderr).unwrap(),
        }
    }

    fn continued(&self, service: &Service) -> Run {
        let state = self.state();
        self.dedup(service, &["--continue", state.to_str().unwrap()])
    }
}

async fn service() -> Service {
    let service = Service::start().await;
    let mut filters = service.state.filters.lock().unwrap();
    filters.insert("default".to_owned());
    filters.insert("other".to_owned());
    drop(filters);
    service
}

/// Answers some calls, and loses the answers of all others though they are applied.
fn lose_replies_after(service: &Service, calls: usize) {
    service.state.lose_reply_from_call.store(calls + 1, SeqCst);
}

fn lose_no_more(service: &Service) {
    service.state.lose_reply_from_call.store(0, SeqCst);
}

fn state(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ended_early_goes_on_with_the_first_answers() {
    let service = service().await;
    let files = Files::new();
    // Fewer than it would take to come to the end, of nine batches and a question before them.
    for calls in [2, 3, 2, 4] {
        lose_replies_after(&service, calls);
        service.state.calls.store(0, SeqCst);
        let ended = files.continued(&service);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let expected = "To continue, run the same command again.";
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("were sent as the requests"),
            "{}",
            ended.stderr
        );
        let output = files.output();
        assert!(
            Files::expected().starts_with(&output),
            "not the first lines"
        );
        // Lines that no run has written are marked; all that come later have come before.
        let written = output.lines().count();
        assert!(service.state.key_count() > written || written == 7_000);
        let state = state(&files.state());
        assert_eq!(state["output_bytes"], output.len());
    }
    lose_no_more(&service);
    let ended = files.continued(&service);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(files.output() == Files::expected(), "other lines");
    assert_eq!(service.state.key_count(), 7_000);
    assert!(!files.state().exists());
    // Then it begins anew.
    assert_eq!(files.continued(&service).code, Some(0));
    assert!(files.output() == Files::expected(), "other lines");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_says_at_its_end_is_enough_to_continue_it() {
    let service = service().await;
    let files = Files::new();
    lose_replies_after(&service, 3);
    let ended = files.dedup(&service, &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let checkpoint = ended.stderr.lines().last().unwrap();
    fs::write(files.state(), checkpoint).unwrap();
    lose_no_more(&service);
    let ended = files.continued(&service);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(files.output() == Files::expected(), "other lines");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_checkpoint_is_refused_and_changes_nothing() {
    let service = service().await;
    let files = Files::new();
    lose_replies_after(&service, 4);
    assert_eq!(files.continued(&service).code, Some(1));
    lose_no_more(&service);
    let (state, output) = (files.state(), files.output());
    let saved = fs::read_to_string(&state).unwrap();
    let marked = service.state.key_count();
    let state = state.to_str().unwrap();
    let refused = |args: &[&str], expected: &str| {
        let ended = files.dedup(&service, args);
        assert_ne!(ended.code, Some(0), "{expected}");
        assert!(
            ended.stderr.contains(expected),
            "{expected}: {}",
            ended.stderr
        );
        assert!(files.output() == output, "{expected}");
        assert_eq!(service.state.key_count(), marked, "{expected}");
    };
    let with = ["--continue", state];
    refused(
        &[&with[..], &["--filter=other"]].concat(),
        "the filter \"other\" is not the one",
    );
    let expected = "--batch-keys was 1000, and is 999: give what it was";
    refused(&[&with[..], &["--batch-keys=999"]].concat(), expected);
    refused(
        &[&with[..], &["--max-age=1h"]].concat(),
        "--max-age was not given, and is 1h",
    );
    refused(
        &[&with[..], &["-"]].concat(),
        "--continue needs regular files",
    );

    // The same size and time, and other lines.
    let plain = &files.inputs[0];
    let content = fs::read_to_string(plain).unwrap();
    let modified = fs::metadata(plain).unwrap().modified().unwrap();
    let replace = |content: &str, modified| {
        fs::write(plain, content).unwrap();
        let file = OpenOptions::new().write(true).open(plain).unwrap();
        file.set_modified(modified).unwrap();
    };
    replace(&content.replace("com/17\n", "com/71\n"), modified);
    refused(
        &with,
        "are not those that were read before; nothing was sent",
    );
    fs::write(plain, format!("{content}x\n")).unwrap();
    refused(&with, "plain had 73890; name the same files");
    fs::write(plain, &content).unwrap();
    refused(&with, "was changed at ");
    replace(&content, modified);

    fs::write(state, "no checkpoint").unwrap();
    refused(&with, "it is no checkpoint of dedup");
    fs::write(state, &saved).unwrap();
    let held = File::open(state).unwrap();
    held.lock().unwrap();
    refused(&with, "another run is using it");
    drop(held);

    let emptied = files.path("emptied");
    let emptied = OpenOptions::new()
        .create(true)
        .append(true)
        .open(emptied)
        .unwrap();
    let ended = files.dedup_to(&service, &with, emptied.into());
    assert!(
        ended.stderr.contains("the output has 0 bytes"),
        "{}",
        ended.stderr
    );
    let overwritten = File::create(files.path("overwritten")).unwrap();
    let ended = files.dedup_to(&service, &with, overwritten.into());
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains(">> in place of >"),
        "{}",
        ended.stderr
    );

    // All of that did no harm.
    assert_eq!(files.continued(&service).code, Some(0));
    assert!(files.output() == Files::expected(), "other lines");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_forgotten_is_found_out() {
    let service = service().await;
    let files = Files::new();
    lose_replies_after(&service, 4);
    assert_eq!(files.continued(&service).code, Some(1));
    lose_no_more(&service);
    let (output, marked) = (files.output(), service.state.key_count());
    service.state.forget_requests();
    let ended = files.continued(&service);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("may have forgotten the requests"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("In doubt are those after "),
        "{}",
        ended.stderr
    );
    assert!(files.output() == output);
    assert_eq!(service.state.key_count(), marked);
}

/// All that was sent is answered: the server need not remember anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_left_nothing_in_doubt_can_always_be_continued() {
    let service = service().await;
    let files = Files::new();
    let refusing = files.path("refusing");
    let mut content = lines(0..3_000);
    content.push_str("refuse me\n");
    fs::write(&refusing, &content).unwrap();
    let files = Files {
        inputs: vec![refusing.clone()],
        ..files
    };
    let ended = files.continued(&service);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("no line after it is marked"),
        "{}",
        ended.stderr
    );
    assert_eq!(files.output(), lines(0..3_000));
    service.state.forget_requests();
    let ended = files.continued(&service);
    assert!(ended.stderr.contains("keys: refuse me"), "{}", ended.stderr);
    assert!(ended.stderr.contains("continues after"), "{}", ended.stderr);
    assert_eq!(files.output(), lines(0..3_000));
}
