//! Variables, durations and formats of results that all commands share.

use std::{ffi::OsString, fs, process::Command};

use seenset_server::config::Config;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    real::{seenset, start},
    run::{command, run, run_with_input},
};
use seenset_fake::Service;

/// The options of all commands, as the help names them, and their variables.
fn options() -> Vec<(String, Option<String>)> {
    let help = Command::new(env!("CARGO_BIN_EXE_seenset"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, options) = help.split_once("\nOptions of all commands:\n").unwrap();
    let options = options.split("\n      --").map(|option| {
        let name = option.trim_start().trim_start_matches("--").split(' ');
        let variable = option.split_once("[env: ").map(|(_, rest)| rest);
        let variable = variable.and_then(|rest| rest.split(['=', ']']).next());
        (
            name.into_iter().next().unwrap().to_owned(),
            variable.map(str::to_owned),
        )
    });
    options.collect()
}

#[test]
fn each_option_of_all_commands_has_a_variable_and_the_server_knows_it() {
    let options = options();
    assert!(options.len() >= 4, "{options:?}");
    for (name, variable) in &options {
        let expected = format!("SEENSET_{}", name.to_uppercase());
        assert_eq!(variable.as_deref(), Some(&*expected), "--{name}");
    }
    // One environment of both programs, as in a container.
    let variables = options.into_iter().filter_map(|(_, variable)| variable);
    let variables = variables.map(OsString::from);
    Config::load(["seenset-server".into()], variables).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_stand_for_flags_and_flags_win() {
    let service = Service::start().await;
    let run = |args: &[&str]| {
        let output = command(&service, args)
            .envs([
                ("SEENSET_FILTER", "pages"),
                ("SEENSET_OUTPUT", "json"),
                ("SEENSET_TIMEOUT", "5"),
                // Of the server, of no concern here.
                ("SEENSET_LISTEN", "0.0.0.0:9090"),
                ("SEENSET_MAX_KEY_BYTES", "none"),
            ])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["add", "a"]), "{\"added\":true,\"key\":\"a\"}\n");
    assert!(service.state.contains("pages", "a"));
    let text = run(&[
        "query",
        "a",
        "--filter=",
        "--output=text",
        "--timeout=500ms",
    ]);
    assert_eq!(text, "new\ta\n");
    // Which would fill it with millions of keys.
    let bench = run(&["bench", "--duration=100ms", "--warmup=0", "--mode=single"]);
    let bench: Value = serde_json::from_str(&bench).unwrap();
    assert!(
        bench["filter"].as_str().unwrap().starts_with("bench-"),
        "{bench}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duration_without_a_unit_is_in_seconds() {
    let service = Service::start().await;
    for time in ["5", "5s", "500ms", "1h 30m", "2min", "36500days"] {
        let query = run(&service, &["query", "a", "--timeout", time]);
        assert_eq!(
            (query.code, &*query.stdout),
            (Some(0), "new\ta\n"),
            "{time}"
        );
    }
    for (flag, value, expected) in [
        ("--timeout", "0", "it must be above 0"),
        ("--timeout", "0s", "it must be above 0"),
        (
            "--timeout",
            "soon",
            "write a duration as 90 (seconds), 500ms, 5min or 12h",
        ),
        ("--timeout", "99999999999999999999", "write a duration as"),
        (
            "--max-age",
            "18446744073709551615",
            "it must be at most 36500days",
        ),
    ] {
        let refused = run(&service, &["query", "a", flag, value]);
        assert_eq!(refused.code, Some(2), "{value}");
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_prints_json_if_that_is_asked_for() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory.path().join("data")).await;
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("words"), "spam\nham\n").unwrap();
    let (words, file) = (path("words"), path("java.bloom"));
    for (args, key) in [
        (
            &["filter", "create", "c", "-n100", "--kind=counting"][..],
            "name",
        ),
        (
            &["filter", "create", "g", "-n100", "--layout=guava"],
            "name",
        ),
        (&["query", "a"], "seen"),
        (&["add", "a"], "added"),
        (&["query-and-add", "a"], "seen"),
        (&["--filter=c", "remove", "a"], "removed"),
        (&["load", &words], "added"),
        (&["match", "--count", &words], "count"),
        (&["store"], "version"),
        (&["explain", "a"], "hash"),
        (&["plan", "-n100"], "bit_count"),
        (&["health"], "serving"),
        (
            &["bench", "--duration=100ms", "--warmup=0", "-n1000"],
            "keys_per_second",
        ),
        (&["filter", "get"], "name"),
        (&["filter", "list"], "name"),
        (&["filter", "copy", "c", "d"], "name"),
        (&["filter", "merge", "d", "c"], "name"),
        (&["filter", "rename", "d", "e"], "name"),
        (&["filter", "reset", "e"], "name"),
        (&["filter", "rebuild", "e", &words], "version"),
        (&["filter", "export", "g", &file], "bytes"),
        (&["filter", "import", "h", &file, "--format=guava"], "name"),
        (&["filter", "delete", "e"], "deleted"),
    ] {
        let output = seenset(&server, &[args, &["--output=json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        if args[0] != "match" {
            assert_eq!(stderr, "", "{args:?}");
        }
        let stdout = String::from_utf8(output.stdout).unwrap();
        let objects: Vec<Value> = stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = objects.last().expect("nothing was printed");
        assert!(last.get(key).is_some(), "{args:?}: {last}");
    }
    // Where standard output has lines or a file as they came, the summary goes to the other.
    for args in [
        &["dedup", &words][..],
        &["match", &words],
        &["filter", "export", "g", "-"],
    ] {
        let output = seenset(&server, &[args, &["--output=json"]].concat());
        assert!(output.status.success(), "{args:?}");
        let summary: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(summary.is_object(), "{args:?}");
    }
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn load_reads_standard_input_as_dedup_does() {
    let service = Service::start().await;
    let load = run_with_input(&service, &["load"], "a\nb\n");
    assert_eq!(load.code, Some(0), "{}", load.stderr);
    assert!(
        load.stdout.starts_with("2 lines: 2 added"),
        "{}",
        load.stdout
    );
    assert_eq!((load.stderr.as_str(), service.state.key_count()), ("", 2));
    // Without files, a filter would forget all keys.
    let rebuild = run(&service, &["filter", "rebuild", "pages"]);
    assert_eq!(rebuild.code, Some(2));
    assert!(rebuild.stderr.contains("<FILE>"), "{}", rebuild.stderr);
}
