//! `seenset match`, run as a user runs it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::Command,
    sync::{atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::run::{Run, command, run, run_with_input};
use seenset_fake::Service;

const LIST: &str = "spam\neggs\nviagra\n";

/// A service that has the list in its own filter.
async fn with_list() -> Service {
    let service = Service::start().await;
    let load = run_with_input(&service, &["--filter=words", "load", "-"], LIST);
    assert_eq!(load.code, Some(0), "{}", load.stderr);
    service
}

fn matching(service: &Service, args: &[&str], input: impl Into<Vec<u8>>) -> Run {
    let all = [&["match", "--filter=words"], args].concat();
    run_with_input(service, &all, input)
}

const TEXT: &str = "Some spam, and spam.\r\n\nNothing\nSPAM\neggs-and-ham\nspammer\nno end: viagra";

#[tokio::test(flavor = "multi_thread")]
async fn lines_with_a_word_are_written_as_they_came() {
    let service = with_list().await;
    let found = matching(&service, &[], TEXT);
    let expected = "Some spam, and spam.\r\neggs-and-ham\nno end: viagra\n";
    assert_eq!((found.code, found.stdout.as_str()), (Some(0), expected));
    let summary = "7 lines: 3 matching, 4 other, 0 bad, 0 long words; ";
    assert!(found.stderr.starts_with(summary), "{}", found.stderr);
    assert_eq!(service.state.key_count(), 3, "a word was marked");

    let found = matching(&service, &["--ignore-case", "--output=json"], TEXT);
    let expected = "Some spam, and spam.\r\nSPAM\neggs-and-ham\nno end: viagra\n";
    assert_eq!(found.stdout, expected);
    let summary: Value = serde_json::from_str(&found.stderr).unwrap();
    assert_eq!(
        (&summary["matching"], &summary["other"]),
        (&4.into(), &3.into())
    );
    assert_eq!((&summary["lines"], &summary["bad"]), (&7.into(), &0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_chosen_as_with_grep() {
    let service = with_list().await;
    for (args, expected) in [
        (&["-v"][..], "\nNothing\nSPAM\nspammer\n"),
        (&["-c"], "3\n"),
        (&["-c", "-v"], "4\n"),
        (&["-c", "--output=json"], "{\"count\":3}\n"),
        (&["-o"], "spam\nspam\neggs\nviagra\n"),
        (&["-oi"], "spam\nspam\nSPAM\neggs\nviagra\n"),
    ] {
        let found = matching(&service, args, TEXT);
        assert_eq!(
            (found.code, found.stdout.as_str()),
            (Some(0), expected),
            "{args:?}"
        );
    }
    // It is no failure if nothing matches.
    let none = matching(&service, &[], "a\n");
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    for args in [["-o", "-v"], ["-o", "-c"]] {
        assert_eq!(matching(&service, &args, TEXT).code, Some(2), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_and_long_words_are_told() {
    let service = with_list().await;
    let input = b"spam\nspam \xff\nspam spam spam spam\nspammers ham\nspam\xc3\xa4 spam\n";
    let args = ["-v", "--max-line-bytes=18", "--max-key-bytes=5"];
    let found = matching(&service, &args, input);
    assert_eq!(
        (found.code, found.stdout.as_str()),
        (Some(1), "spammers ham\n")
    );
    let stderr: Vec<_> = found.stderr.lines().collect();
    assert_eq!(stderr[0], "stdin:2: not UTF-8 from byte 6 on; left out");
    assert_eq!(
        stderr[1],
        "stdin:3: longer than 18 bytes (--max-line-bytes); left out"
    );
    let summary = "5 lines: 2 matching, 1 other, 2 bad, 2 long words; ";
    assert!(stderr[2].starts_with(summary), "{stderr:?}");
    assert_eq!(stderr.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_lines_stay_in_order() {
    let service = with_list().await;
    // Lost answers, and a server that is away for a while, do no harm.
    service.state.unavailable.store(2, SeqCst);
    service.state.lose_reply.store(1, SeqCst);
    let line = |line: usize| match line % 7 {
        0 => format!("{line} spam\n"),
        _ => format!("{line} ham\n"),
    };
    let text: String = (0..50_000).map(line).collect();
    let expected: String = (0..50_000).step_by(7).map(line).collect();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("text");
    fs::write(&file, zstd::encode_all(text.as_bytes(), 0).unwrap()).unwrap();
    let file = file.to_str().unwrap();
    let args = [
        "--filter=words",
        "match",
        "--batch-keys=100",
        "--window=4",
        file,
    ];
    let found = run(&service, &args);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(found.stdout == expected, "other lines than expected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_and_a_file_cut_short_name_the_lines_before() {
    let service = with_list().await;
    service.state.hang_from_call.store(4, SeqCst);
    let text = "spam\n".repeat(5_000);
    let args = ["--window=1", "--timeout=500ms"];
    let found = matching(&service, &args, text.clone());
    assert_eq!(found.code, Some(1));
    let written = found.stdout.lines().count();
    assert_eq!(written, 2_000);
    let expected = format!(
        "This was for the lines up to stdin:3000.\nEvery line up to stdin:{written} is done.\n"
    );
    assert!(found.stderr.ends_with(&expected), "{}", found.stderr);

    service.state.hang_from_call.store(0, SeqCst);
    let whole = zstd::encode_all(text.as_bytes(), 0).unwrap();
    let found = matching(&service, &["--count"], &whole[..whole.len() - 1]);
    assert_eq!((found.code, found.stdout.as_str()), (Some(1), ""));
    let expected = "cannot read on after stdin:";
    assert!(found.stderr.contains(expected), "{}", found.stderr);
    assert!(
        found.stderr.contains("the zstd data end too early\n"),
        "{}",
        found.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_slow_pipe_come_at_once_and_a_signal_ends_the_run() {
    let service = with_list().await;
    let mut child = command(&service, &["match", "--filter=words"])
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        stdout
            .lines()
            .try_for_each(|line| sender.send(line.unwrap()))
    });
    for line in ["spam", "more spam"] {
        writeln!(stdin, "{line}").unwrap();
        let answer = answers.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer.as_deref(), Ok(line), "a line was held back");
    }
    let kill = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.ends_with("interrupted. Every line up to stdin:2 is done.\n"),
        "{stderr}"
    );
    drop(stdin);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_enough_ends_the_run_quietly() {
    let service = with_list().await;
    let mut child = command(&service, &["match", "--filter=words"])
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writing = thread::spawn(move || (0..1_000_000).all(|_| stdin.write_all(b"spam\n").is_ok()));
    let mut first = [0; 5];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    // Nothing was marked, so nothing is lost.
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(
        !writing.join().unwrap(),
        "the program read all of its input"
    );
}
