//! The program `seenset`, run as a user runs it, against a service that answers exactly.

use std::{
    collections::HashSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::Command,
    sync::{atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{command, run, run_with_input};
use seenset_fake::Service;

/// Lines of which every third is a duplicate of an earlier one.
fn lines(count: usize) -> Vec<String> {
    (0..count)
        .map(|line| {
            let key = if line % 3 == 2 { line / 2 } else { line };
            format!("https://example.org/{key}\n")
        })
        .collect()
}

fn first_occurrences(lines: &[String]) -> String {
    let mut seen = HashSet::new();
    lines
        .iter()
        .filter(|line| seen.insert(line.as_str()))
        .map(String::as_str)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_as_arguments() {
    let service = Service::start().await;
    let first = run(&service, &["query-and-add", "a", "b", "a"]);
    assert_eq!(first.stdout, "new\ta\nnew\tb\nseen\ta\n");
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));

    assert_eq!(run(&service, &["add", "c"]).stdout, "added\tc\n");
    let query = run(&service, &["query", "c", "d", "--output", "json"]);
    assert_eq!(
        query.stdout,
        "{\"key\":\"c\",\"seen\":true}\n{\"key\":\"d\",\"seen\":false}\n"
    );
    let other = run(&service, &["--filter", "other", "query", "c"]);
    assert_eq!(other.stdout, "new\tc\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn dedup_is_the_first_occurrence_filter() {
    let service = Service::start().await;
    let lines = lines(30_000);
    let expected = first_occurrences(&lines);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lines");
    let (in_file, in_stdin) = lines.split_at(17_123);
    fs::write(&file, in_file.concat()).unwrap();

    let args = [
        "dedup",
        "--batch-keys=100",
        "--window=8",
        file.to_str().unwrap(),
        "-",
    ];
    let first = run_with_input(&service, &args, in_stdin.concat());
    assert!(first.stdout == expected, "other lines than expected");
    assert_eq!(first.code, Some(0));
    let new = expected.lines().count();
    let summary = format!(
        "30000 lines: {new} new, {} seen, 0 empty, 0 bad; ",
        30_000 - new
    );
    assert!(first.stderr.starts_with(&summary), "{}", first.stderr);

    let again = run_with_input(&service, &["dedup", "--output=json"], lines.concat());
    assert_eq!(again.stdout, "");
    let summary: Value = serde_json::from_str(&again.stderr).unwrap();
    assert_eq!(summary["lines"], 30_000);
    assert_eq!(summary["seen"], 30_000);
    assert_eq!(summary["new"], 0);
    assert!(summary["seconds"].as_f64().unwrap() > 0.0);
    assert!(summary["lines_per_second"].as_f64().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_line_has_its_outcome() {
    let service = Service::start().await;
    let input = b"a\r\n\na\nb\0b\n\r\n123456789\nc\na";
    let outcome = run_with_input(&service, &["dedup", "--max-key-bytes=8"], input);
    assert_eq!(outcome.stdout, "a\r\nc\n");
    assert_eq!(outcome.code, Some(1));
    let stderr: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(
        stderr[0],
        "stdin:4: NUL at byte 2: binary, or UTF-16 without a mark; left out"
    );
    assert_eq!(
        stderr[1],
        "stdin:6: longer than 8 bytes (--max-key-bytes); left out"
    );
    assert!(
        stderr[2].starts_with("8 lines: 2 new, 2 seen, 2 empty, 2 bad; "),
        "{stderr:?}"
    );
    assert_eq!(stderr.len(), 3);

    let outcome = run_with_input(&service, &["dedup"], "no end");
    assert_eq!(
        (outcome.stdout.as_str(), outcome.code),
        ("no end\n", Some(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_bad_lines_are_counted_and_few_are_named() {
    let service = Service::start().await;
    let outcome = run_with_input(&service, &["dedup"], b"a\0b\n".repeat(15));
    let named = outcome
        .stderr
        .lines()
        .filter(|line| line.ends_with("left out"));
    assert_eq!(named.count(), 10);
    assert!(
        outcome
            .stderr
            .contains("… and 5 more bad lines\n15 lines: "),
        "{}",
        outcome.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn load_adds_every_line() {
    let service = Service::start().await;
    let lines = lines(10_000);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lines");
    fs::write(&file, lines.concat()).unwrap();
    // Adding is repeated, so trouble on the way does no harm.
    service.state.unavailable.store(2, SeqCst);
    service.state.lose_reply.store(1, SeqCst);

    let outcome = run(&service, &["load", file.to_str().unwrap(), "--output=json"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let summary: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(summary["added"], 10_000);
    assert_eq!(
        service.state.key_count(),
        lines.iter().collect::<HashSet<_>>().len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn load_says_how_far_it_came() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lines");
    let mut lines = lines(5_000);
    lines[2_500] = "refuse me\n".to_owned();
    fs::write(&file, lines.concat()).unwrap();
    let file = file.to_str().unwrap();
    let outcome = run(&service, &["load", file]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    let expected = format!("lines up to {file}:3000; every line up to {file}:2000 is added.");
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_is_no_matter() {
    let service = Service::start().await;
    service.state.lose_reply_of_call.store(4, SeqCst);
    let lines = lines(20_000);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lines");
    fs::write(&file, lines.concat()).unwrap();
    let outcome = run(&service, &["dedup", "--window=3", file.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let mut seen = HashSet::new();
    let first: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|&line| seen.insert(line))
        .collect();
    assert_eq!(outcome.stdout, first.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_names_the_lines_concerned() {
    let service = Service::start().await;
    service.state.hang_from_call.store(4, SeqCst);
    let lines: Vec<_> = (0..20_000).map(|line| format!("{line}\n")).collect();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lines");
    fs::write(&file, lines.concat()).unwrap();
    let file = file.to_str().unwrap();

    let outcome = run(&service, &["dedup", "--window=3", "--timeout=500ms", file]);
    assert_eq!(outcome.code, Some(1));
    let written = outcome.stdout.lines().count();
    assert_eq!(written, 3000);
    assert_eq!(outcome.stdout, lines[..written].concat());
    let done =
        format!("\nEvery line up to {file}:{written} is answered, and written if new; lines");
    let in_flight = (1..=3).any(|batches| {
        let last = written + batches * 1000;
        let lines = format!(
            "{done} after it, up to {file}:{last}, were in flight and may be marked as seen \
             without having been written: they were sent as the requests "
        );
        outcome.stderr.contains(&lines)
    });
    assert!(in_flight, "{}", outcome.stderr);
    assert!(
        outcome
            .stderr
            .contains("\nTo continue, save the next line as a file"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("no answer to QueryAndAddStream"),
        "{}",
        outcome.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_batch_names_the_line_before_it() {
    let service = Service::start().await;
    let mut lines: Vec<_> = (0..5_000).map(|line| format!("{line}\n")).collect();
    lines[2_500] = "refuse me\n".to_owned();
    let outcome = run_with_input(&service, &["dedup"], lines.concat());
    assert_eq!(outcome.code, Some(1));
    let written = outcome.stdout.lines().count();
    assert_eq!(outcome.stdout, lines[..written].concat());
    let expected = format!(
        "Every line up to stdin:{written} is answered, and written if new; no line after it \
         is marked."
    );
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("keys: refuse me (InvalidArgument)"),
        "{}",
        outcome.stderr
    );
    assert_eq!(service.state.key_count(), written);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_pipe_ends_quietly() {
    let service = Service::start().await;
    let mut child = command(&service, &["dedup"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writing = thread::spawn(move || {
        (0..1_000_000).all(|line| stdin.write_all(format!("{line}\n").as_bytes()).is_ok())
    });
    let mut first = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"0\n1\n");
    let output = child.wait_with_output().unwrap();
    // Lines were marked that nobody has read: whoever looks at the code is told.
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(
        !writing.join().unwrap(),
        "the program read all of its input"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_slow_pipe_come_at_once_and_a_signal_ends_the_run_cleanly() {
    let service = Service::start().await;
    let mut child = command(&service, &["dedup"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        stdout
            .lines()
            .try_for_each(|line| sender.send(line.unwrap()))
    });
    for line in ["a", "b"] {
        writeln!(stdin, "{line}").unwrap();
        let answer = answers.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer.as_deref(), Ok(line), "a line was held back");
    }
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("2 lines: 2 new"), "{stderr}");
    assert!(
        stderr.contains("Every line up to stdin:2 is answered"),
        "{stderr}"
    );
    drop(stdin);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_load_with_what_is_done() {
    let service = Service::start().await;
    let mut child = command(&service, &["load", "--batch-keys=1", "--window=1", "-"])
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\nb\n").unwrap();
    while service.state.key_count() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &id]).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("interrupted: every line up to stdin:"),
        "{stderr}"
    );
    drop(stdin);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_names_the_line_before_it() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let good = directory.path().join("lines");
    fs::write(&good, "a\nb\n").unwrap();
    let good = good.to_str().unwrap();
    // Its first page is nobody's, so reading it fails.
    let bad = "/proc/self/mem";
    let reason = format!("seenset: cannot read on after {bad}:0: Input/output error (os error 5)");

    let dedup = run(&service, &["dedup", good, bad]);
    assert_eq!((dedup.code, dedup.stdout.as_str()), (Some(1), "a\nb\n"));
    let done = format!(
        "{reason}\nEvery line up to {good}:2 is answered, and written if new; no line after it \
         is marked.\n"
    );
    assert!(dedup.stderr.ends_with(&done), "{}", dedup.stderr);

    let load = run(&service, &["load", good, bad]);
    assert_eq!((load.code, load.stdout.as_str()), (Some(1), ""));
    let done = format!("{reason}\nBefore that, every line up to {good}:2 is added.");
    assert!(load.stderr.starts_with(&done), "{}", load.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_names_the_lines_that_are_lost() {
    let service = Service::start().await;
    let mut child = command(&service, &["dedup"])
        .stdout(fs::File::create("/dev/full").unwrap())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "No line is written; lines after it that were sent are marked as seen";
    assert!(stderr.contains("No space left on device"), "{stderr}");
    assert!(stderr.contains(expected), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_usage_from_failure() {
    let mut service = Service::start().await;
    for (args, code, expected) in [
        (&["query"][..], 2, "KEY"),
        (&["no-such-command"], 2, "no-such-command"),
        (
            &["query", "a", "--server=https://a"],
            2,
            "https is not supported",
        ),
        (&["dedup", "--batch-keys=0"], 2, "--batch-keys"),
        (&["query", "refuse me"], 1, "keys: refuse me"),
        (
            &["dedup", "/no/such/file"],
            1,
            "cannot open /no/such/file: No such file",
        ),
        (&["dedup", "/"], 1, "cannot open /: is a directory"),
        (&["health", "--service=no.such.Service"], 1, "NotFound"),
        (&["plan", "--capacity=0"], 2, "capacity is 0"),
        (&["plan", "-n=10", "-p=2"], 2, "false_positive_rate is 2"),
    ] {
        let outcome = run(&service, args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(expected),
            "{args:?}: {}",
            outcome.stderr
        );
        assert_eq!(outcome.stdout, "", "{args:?}");
    }
    assert_eq!(run(&service, &["health", "--service="]).stdout, "serving\n");
    assert_eq!(run(&service, &["--help"]).code, Some(0));
    service.close().await;
    let outcome = run(&service, &["health"]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome
            .stderr
            .contains("cannot connect to http://127.0.0.1:"),
        "{}",
        outcome.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_computes_both_layouts_without_a_server() {
    let service = Service::start().await;
    let line = "plan -n1000000 -p0.01 --kind=plain --output=json";
    let plan = run(&service, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(plan.code, Some(0));
    let plans: Vec<Value> = plan
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (plan, (layout, most)) in plans.iter().zip([("blocked", 10.2), ("classic", 9.7)]) {
        assert_eq!(plan["layout"], layout);
        let bits = plan["bit_count"].as_u64().unwrap();
        assert_eq!(plan["memory_bytes"], bits / 8);
        assert_eq!(plan["bits_per_key"].as_f64().unwrap(), bits as f64 / 1e6);
        assert!((9.5..=most).contains(&(bits as f64 / 1e6)), "{plan}");
        assert!(
            (5..=8).contains(&plan["hash_count"].as_u64().unwrap()),
            "{plan}"
        );
    }
    assert_eq!(plans.len(), 2);
    assert_eq!(service.calls(), 0);
    let small = ["plan", "-n", "100", "-p", "0.0001", "--layout", "guava"];
    let text = run(&service, &small);
    assert!(
        text.stdout
            .ends_with("k = 13, 19.20 bits per key, p at capacity = 2.98e-4\n"),
        "{}",
        text.stdout
    );
    let text = run(&service, &["plan", "-n", "1000000", "--layout", "classic"]);
    assert!(
        text.stdout
            .starts_with("classic: n = 1000000, p = 0.001: m = "),
        "{}",
        text.stdout
    );
}
