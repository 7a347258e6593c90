//! The commands of operators for whole filters, against the real server.

use std::fs;

use tempfile::TempDir;

use crate::real::{json, seenset, start};

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_copied_merged_reset_and_renamed() {
    let directory = TempDir::new().unwrap();
    let server = start(directory.path()).await;
    json(&server, &["filter", "create", "a", "-n1000", "-p1e-9"]);
    json(&server, &["add", "--filter", "a", "one"]);
    let copy = json(&server, &["filter", "copy", "a", "b"]);
    assert_eq!(
        (&copy["name"], &copy["keys_added"]),
        (&"b".into(), &1.into())
    );
    json(&server, &["add", "--filter", "b", "two"]);
    let merged = json(&server, &["filter", "merge", "b", "a"]);
    assert_eq!(
        (&merged["name"], &merged["keys_added"]),
        (&"a".into(), &2.into())
    );
    let reset = json(&server, &["filter", "reset", "b"]);
    assert_eq!(
        (&reset["name"], &reset["keys_added"]),
        (&"b".into(), &0.into())
    );
    assert_eq!(json(&server, &["filter", "rename", "a", "c"])["name"], "c");
    assert_eq!(
        json(&server, &["query", "--filter", "c", "two"])["seen"],
        true
    );
    let refused = seenset(&server, &["filter", "rename", "c", "b"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("\"b\" exists"));
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_merged_filters_add_up() {
    let directory = TempDir::new().unwrap();
    let server = start(directory.path()).await;
    let create = ["filter", "create", "a", "-n1000", "-p1e-9"];
    json(&server, &[&create[..], &["--kind", "counting"]].concat());
    json(&server, &["add", "--filter", "a", "one"]);
    json(&server, &["filter", "copy", "a", "b"]);
    json(&server, &["add", "--filter", "b", "two"]);
    json(&server, &["filter", "merge", "b", "a"]);
    for (key, count) in [("one", 2), ("two", 1), ("three", 0)] {
        for time in 0..3 {
            let removed = json(&server, &["remove", "--filter", "a", key]);
            assert_eq!(removed["removed"], time < count, "{key}, {time}");
        }
    }
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_rebuilt_from_files() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory.path().join("data")).await;
    let file = |name: &str, lines: &str| {
        let path = directory.path().join(name);
        fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good, bad) = (
        file("good", "one\ntwo\n"),
        file("bad", &format!("three\n{}\n", "x".repeat(70_000))),
    );
    json(&server, &["filter", "create", "pages", "-n1000", "-p1e-9"]);
    json(&server, &["add", "--filter=pages", "old"]);
    let seen = |filter: &str, key: &str| {
        let filter = format!("--filter={filter}");
        json(&server, &["query", &filter, key])["seen"].as_bool()
    };

    // It does not come to its end, and can go on.
    let failed = |arguments: &[&str], words: &[&str]| {
        let output = seenset(
            &server,
            &[&["filter", "rebuild", "pages"], arguments].concat(),
        );
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
    };
    let hint = "seenset filter delete pages.rebuild";
    failed(&["-n5000", &bad], &["1 bad", "bad lines are no keys", hint]);
    failed(&["-n5000", "nowhere"], &["cannot open nowhere"]);
    let shown = json(&server, &["filter", "get", "pages"]);
    assert_eq!(
        (&shown["rebuilt_as"], &shown["capacity"]),
        (&"pages.rebuild".into(), &1000.into())
    );
    let text = seenset(&server, &["filter", "get", "pages.rebuild"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("to take the place of pages\n"), "{text}");
    json(&server, &["add", "--filter=pages", "meanwhile"]);
    assert_eq!(seen("pages.rebuild", "meanwhile"), Some(true));

    let output = seenset(&server, &["filter", "rebuild", "pages", "-n5000", &good]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("2 lines: 2 added"), "{text}");
    assert!(
        text.contains("\npages\n") && text.contains("\n  for 5000 keys"),
        "{text}"
    );
    for (key, expected) in [
        ("one", true),
        ("three", true),
        ("meanwhile", true),
        ("old", false),
    ] {
        assert_eq!(seen("pages", key), Some(expected), "{key}");
    }
    let gone = seenset(&server, &["filter", "get", "pages.rebuild"]);
    assert_eq!(gone.status.code(), Some(1));

    // Rebuilt as another kind, and unchanged.
    let scaling = &[
        "filter",
        "rebuild",
        "pages",
        "--as=next",
        "--kind=scaling",
        &good,
    ];
    assert!(seenset(&server, scaling).status.success());
    let shown = json(&server, &["filter", "get", "pages"]);
    assert_eq!(
        (&shown["kind"], &shown["capacity"]),
        (&"scaling".into(), &5000.into())
    );
    let again = &["filter", "rebuild", "pages", &good];
    assert!(seenset(&server, again).status.success());
    assert_eq!(
        json(&server, &["filter", "get", "pages"])["scaling"],
        shown["scaling"]
    );
    // In a counting filter each key is there once, whether it was loaded before or came meanwhile.
    json(
        &server,
        &[
            "filter",
            "create",
            "counted",
            "-n1000",
            "-p1e-9",
            "--kind=counting",
        ],
    );
    let whole = file("whole", "one\ntwo\n");
    let broken = &["filter", "rebuild", "counted", &whole, &bad];
    assert_eq!(seenset(&server, broken).status.code(), Some(1));
    json(&server, &["query-and-add", "--filter=counted", "four"]);
    let all = file("all", "one\ntwo\nthree\nfour\n");
    let done = &["filter", "rebuild", "counted", &all];
    assert!(seenset(&server, done).status.success());
    for key in ["one", "two", "three", "four"] {
        json(&server, &["remove", "--filter=counted", key]);
        assert_eq!(seen("counted", key), Some(false), "{key}");
    }
    let wrong = seenset(
        &server,
        &["filter", "rebuild", "pages", "--max-age=1h", &good],
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--kind aging"));
    server.shutdown(std::future::pending()).await.unwrap();
}
