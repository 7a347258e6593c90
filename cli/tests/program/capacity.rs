//! Filters that are nearly at their capacity, or past it: the commands that add keys warn.

use std::{fs, process::Output};

use seenset_client::{CapacityWarning, Client};
use seenset_server::server::Server;
use serde_json::Value;

use crate::real::{seenset, start};

/// Writes a file with the given number of lines.
fn lines(dir: &tempfile::TempDir, name: &str, range: std::ops::Range<u32>) -> String {
    let text: String = range.map(|line| format!("{name}/{line}\n")).collect();
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn done(output: Output) -> (String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{stderr}");
    (stdout, stderr)
}

fn create(server: &Server, name: &str, kind: &str) {
    let args = ["filter", "create", name, "--capacity=1000"];
    let kind = [kind, "--false-positive-rate=0.01"];
    done(seenset(server, &[&args[..], &kind].concat()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_summaries_of_load_and_dedup_say_how_full_the_filter_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data")).await;
    let run = |args: &[&str]| done(seenset(&server, args));
    for kind in ["plain", "counting", "aging"] {
        let flags: &[&str] = match kind {
            "aging" => &["--max-age=30days"],
            _ => &[],
        };
        let args = ["filter", "create", kind, "-n1000", "-p0.01", "--kind", kind];
        run(&[&args[..], flags].concat());
        let few = lines(&dir, "few", 0..700);
        let (summary, _) = run(&["--filter", kind, "load", &few]);
        assert!(!summary.contains("warning"), "{kind}: {summary}");
        let more = lines(&dir, "more", 0..200);
        let (summary, _) = run(&["--filter", kind, "load", &more]);
        let says = format!("warning: the filter {kind} is at ");
        assert!(summary.contains(&says), "{kind}: {summary}");
        assert!(!summary.contains("rebuild"), "{kind}: {summary}");

        let past = lines(&dir, "past", 0..3000);
        let (_, summary) = run(&["--filter", kind, "dedup", &past]);
        assert!(summary.contains(&says), "{kind}: {summary}");
        assert!(
            summary.contains("rebuild it with a larger capacity"),
            "{kind}: {summary}"
        );
        let (_, summary) = run(&["--output=json", "--filter", kind, "dedup", &past]);
        // Nothing is new any more, and the filter is as full as it was.
        let summary: Value = serde_json::from_str(&summary).unwrap();
        let warning = &summary["capacity_warnings"][0];
        assert_eq!(
            (&warning["filter"], &warning["capacity"]),
            (&kind.into(), &1000.into())
        );
        assert!(
            warning["keys"].as_u64().unwrap() > 2000,
            "{kind}: {warning}"
        );
        assert!(warning["predicted_false_positive_rate"].as_f64().unwrap() > 0.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_grows_has_no_warning() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data")).await;
    create(&server, "grows", "--kind=scaling");
    let many = lines(&dir, "many", 0..5000);
    let (new, summary) = done(seenset(&server, &["--filter=grows", "dedup", &many]));
    assert!(!summary.contains("warning"), "{summary}");
    // The rate is that asked for, five times past the first capacity.
    assert!(new.lines().count() >= 4950, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_warns_of_the_filter_that_it_fills() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data")).await;
    create(&server, "full", "--kind=plain");
    let brief = ["--filter=full", "bench", "--duration=200ms", "--warmup=0s"];
    let (result, _) = done(seenset(&server, &brief));
    assert!(
        result.contains("warning: the filter full is at "),
        "{result}"
    );
}

/// The answers to single calls have no room for it; a crawler that adds many makes batches.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_keeps_the_warnings_of_batches_and_streams() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data")).await;
    let client = Client::connect(&server.local_addr().to_string())
        .await
        .unwrap();
    for name in ["added", "asked", "streamed"] {
        create(&server, name, "--kind=plain");
    }
    let keys: Vec<String> = (0..900).map(|key| format!("key {key}")).collect();
    client.filter("added").add_batch(&keys).await.unwrap();
    client
        .filter("asked")
        .query_and_add_batch(&keys)
        .await
        .unwrap();
    let coalescing = client.filter("streamed").coalescing();
    for key in &keys {
        coalescing.query_and_add(key).await.unwrap();
    }
    let warnings = client.capacity_warnings();
    let names: Vec<_> = warnings.iter().map(|warning| &*warning.filter).collect();
    assert_eq!(names, ["added", "asked", "streamed"]);
    for CapacityWarning { keys, capacity, .. } in warnings {
        assert!((800..=900).contains(&keys), "{keys}");
        assert_eq!(capacity, 1000);
    }
}
