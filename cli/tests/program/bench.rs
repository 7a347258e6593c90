//! `seenset bench`, against the real server and against one that fails on demand.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        atomic::Ordering::SeqCst,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use seenset_client::{Client, v1};
use seenset_server::{
    config::Config,
    server::{Server, bind},
};
use serde_json::Value;
use tempfile::TempDir;

use seenset_fake::Service;

/// Short, and without a warm-up.
const BRIEF: [&str; 3] = ["--duration=200ms", "--warmup=0s", "--capacity=1000000"];

async fn start(directory: &TempDir, max_batch_keys: usize) -> Server {
    let mut server = bind(Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        data_dir: directory.path().to_owned(),
        capacity: 1_000_000,
        false_positive_rate: Some(1e-9),
        max_batch_keys,
        ..Config::default()
    })
    .await
    .unwrap();
    server.recover().await.unwrap();
    server
}

fn spawn(address: SocketAddr, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_seenset"))
        .arg("bench")
        .args(args)
        .env("SEENSET_SERVER", address.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// Returns the one object on standard output.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stderr))
    }
}

/// Waits for the end of a run, and kills a run that does not end.
fn wait(child: Child) -> Run {
    let id = child.id();
    let (ended, end) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if end.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            signal(id, "-KILL");
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watch.join().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn bench(address: SocketAddr, args: &[&str]) -> Run {
    wait(spawn(address, args))
}

fn interrupt(child: &Child) {
    signal(child.id(), "-INT");
}

fn signal(process: u32, signal: &str) {
    let kill = Command::new("kill")
        .args([signal, &process.to_string()])
        .status();
    assert!(kill.unwrap().success());
}

async fn names(address: SocketAddr) -> Vec<String> {
    let client = Client::connect(&address.to_string()).await.unwrap();
    let filters = client.list_filters().await.unwrap();
    filters.into_iter().map(|filter| filter.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_gives_figures_that_agree_and_leaves_nothing_behind() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory, 1000).await;
    let address = server.local_addr();
    for (args, keys_of_call) in [
        (
            &["--mode=stream", "--batch-keys=100", "--window=3"][..],
            100,
        ),
        (&["--mode=stream", "--connections=2", "--callers=3"], 1000),
        (&["--mode=batch", "--batch-keys=7", "--key-bytes=200"], 7),
        (&["--mode=single", "--callers=5", "--connections=2"], 1),
        (
            &["--mode=coalesced", "--connections=2", "--key-bytes=16"],
            1,
        ),
    ] {
        let run = bench(address, &[args, &BRIEF, &["--output=json"]].concat());
        assert_eq!(run.stderr, "", "{args:?}");
        assert_eq!(run.code, Some(0), "{args:?}");
        let figures = run.json();
        let count = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{name}"));
        let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}"));
        assert!(args[0].ends_with(figures["mode"].as_str().unwrap()));
        assert!(count("keys") > 0, "{figures}");
        assert_eq!(count("keys"), count("calls") * keys_of_call, "{figures}");
        assert_eq!(count("new_keys"), count("keys"));
        assert_eq!((count("seen_keys"), count("forgotten")), (0, 0));
        assert_eq!(count("warmup_keys"), 0);
        assert!(number("seconds") >= 0.2, "{figures}");
        let keys = number("keys_per_second") * number("seconds");
        assert!((keys - number("keys")).abs() < 1e-3 * keys, "{figures}");
        let latencies = ["min", "p50", "p90", "p99", "p999", "max"]
            .map(|name| number(&format!("latency_{name}_us")));
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{figures}");
        let buckets = figures["latency_histogram"].as_array().unwrap();
        let in_buckets: u64 = buckets.iter().map(|b| b["calls"].as_u64().unwrap()).sum();
        assert_eq!(in_buckets, count("calls"));
    }
    assert_eq!(names(address).await, ["default"]);
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_the_keys_was_answered_before() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory, 1000).await;
    let address = server.local_addr();
    for mode in ["stream", "batch", "single", "coalesced"] {
        for (share, least, most) in [("1", 1.0, 1.0), ("0.25", 0.2, 0.26)] {
            let run = bench(
                address,
                &[
                    "--mode",
                    mode,
                    "--seen",
                    share,
                    "--duration=200ms",
                    "--warmup=50ms",
                    "--output=json",
                ],
            );
            assert_eq!((run.code, &*run.stderr), (Some(0), ""), "{mode} {share}");
            let figures = run.json();
            assert!(figures["warmup_keys"].as_u64() > Some(0), "{figures}");
            assert_eq!(figures["forgotten"], 0, "{figures}");
            let [seen, keys] = ["seen_keys", "keys"].map(|name| figures[name].as_f64().unwrap());
            assert!((least..=most).contains(&(seen / keys)), "{figures}");
        }
    }
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_filter_keeps_the_keys_and_a_second_run_has_others() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory, 1000).await;
    let address = server.local_addr();
    let mut sent = 0;
    for _ in 0..2 {
        let args = ["--filter=default", "--duration=50ms", "--output=json"];
        let run = bench(
            address,
            &[&args[..], &["--warmup=20ms", "--batch-keys=10"]].concat(),
        );
        assert_eq!((run.code, &*run.stderr), (Some(0), ""));
        let figures = run.json();
        assert_eq!(figures["filter"], "default");
        assert_eq!(figures["false_positives"], 0, "{figures}");
        sent += figures["keys"].as_u64().unwrap() + figures["warmup_keys"].as_u64().unwrap();
    }
    let client = Client::connect(&address.to_string()).await.unwrap();
    assert_eq!(client.get_filter("").await.unwrap().keys_added, sent);
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_capacity_false_positives_are_counted_and_explained() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory, 1000).await;
    let spec = v1::FilterSpec {
        capacity: 1000,
        false_positive_rate: 0.01,
        kind: Some(v1::filter_spec::Kind::Plain(v1::Plain {})),
        ..v1::FilterSpec::default()
    };
    let client = Client::connect(&server.local_addr().to_string())
        .await
        .unwrap();
    client.create_filter("small", spec).await.unwrap();
    let args = ["--duration=200ms", "--warmup=0s", "--filter=small"];
    let run = bench(server.local_addr(), &args);
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    assert!(
        run.stdout.contains(" keys, made for 1000; it calls "),
        "{}",
        run.stdout
    );
    assert!(
        !run.stdout.contains("false positives: 0 of"),
        "{}",
        run.stdout
    );
    for expected in [
        "stream: batches of 1,000 keys of 60 bytes, 16 in flight; streams: 1, connections: 1\n",
        "\nfilter: small, which keeps the keys\n",
        " keys/s ",
        "\nlatency of a batch: min ",
        ", p99.9 ",
        "     up to          calls\n",
        "  ########################################\n",
    ] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
    assert!(run.stdout.lines().count() <= 25, "{}", run.stdout);
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_measured_is_said_and_leaves_nothing_behind() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory, 100).await;
    let address = server.local_addr();
    let batch = ["--mode=batch", "--batch-keys=101"];
    for (args, code, expected) in [
        (&["--filter=no-such"][..], 1, "no filter named \"no-such\""),
        (
            &["--batch-keys=101"],
            1,
            "QueryAndAddStream was refused: binary_keys has 101",
        ),
        (
            &batch,
            1,
            "QueryAndAddBatch was refused: binary_keys has 101",
        ),
        (
            &["--mode=single", "--key-bytes=65537"],
            1,
            "QueryAndAdd was refused: binary_key has 65537",
        ),
        (
            &["--mode=coalesced", "--key-bytes=65537"],
            1,
            "was refused: ",
        ),
        (
            &["--capacity=1000000000000000"],
            1,
            "CreateFilter was refused",
        ),
        (&["--key-bytes=15"], 2, "--key-bytes"),
        (&["--seen=2"], 2, "not a number from 0 to 1"),
        (&["--seen=NaN"], 2, "not a number from 0 to 1"),
        (&["--duration=0s"], 2, "it must be above 0"),
        (&["--capacity=0"], 2, "--capacity"),
        (
            &["--capacity=5", "--filter=default"],
            2,
            "--capacity is for",
        ),
        (
            &["--mode=single", "--batch-keys=5"],
            2,
            "--batch-keys is for",
        ),
        (&["--mode=batch", "--window=5"], 2, "--window is for"),
        (
            &["--callers=1", "--connections=2"],
            2,
            "leave some of --connections 2 idle",
        ),
        (&["--batch-keys=1000000"], 2, "a message holds 16777216"),
        (&["--server=https://a"], 2, "https is not supported"),
    ] {
        let run = bench(
            address,
            &[args, &["--warmup=50ms", "--duration=50ms"]].concat(),
        );
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
    assert_eq!(names(address).await, ["default"]);
    server.shutdown(std::future::pending()).await.unwrap();
    let run = bench(address, &["--timeout=1s"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("cannot connect to http://127.0.0.1:"),
        "{}",
        run.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_prints_what_was_measured_and_removes_the_filter() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory, 1000).await;
    let address = server.local_addr();
    let args = ["--duration=1h", "--warmup=0s", "--output=json"];
    let child = spawn(address, &args);
    let client = Client::connect(&address.to_string()).await.unwrap();
    // More than its 16 batches in flight: so some have been answered.
    while client
        .list_filters()
        .await
        .unwrap()
        .iter()
        .all(|filter| filter.name == "default" || filter.keys_added < 20_000)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    interrupt(&child);
    let run = wait(child);
    assert_eq!(run.code, Some(130), "{}", run.stderr);
    assert!(run.json()["keys"].as_u64() > Some(0), "{}", run.stdout);
    assert!(
        run.stderr.starts_with("seenset: interrupted after "),
        "{}",
        run.stderr
    );
    assert_eq!(names(address).await, ["default"]);

    // In the warm-up there is nothing to print.
    let child = spawn(address, &["--warmup=1h"]);
    while names(address).await.len() == 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    interrupt(&child);
    let run = wait(child);
    assert_eq!((run.code, &*run.stdout), (Some(130), ""));
    assert!(
        run.stderr.contains("before anything was measured"),
        "{}",
        run.stderr
    );
    assert_eq!(names(address).await, ["default"]);
    server.shutdown(std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_the_server_forgets_are_a_failure() {
    let service = Service::start().await;
    service.state.forget.store(usize::MAX, SeqCst);
    let args = ["--seen=0.5", "--output=json"];
    let run = bench(service.address, &[&BRIEF[..], &args].concat());
    assert_eq!(run.code, Some(1));
    let figures = run.json();
    assert!(figures["forgotten"].as_u64() > Some(0), "{figures}");
    assert_eq!(figures["forgotten"], figures["seen_keys"]);
    let expected = format!("did not know {} keys", figures["forgotten"]);
    assert!(run.stderr.contains(&expected), "{}", run.stderr);
    assert!(service.state.filters.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_ends_the_run() {
    for mode in ["stream", "batch", "single", "coalesced"] {
        let service = Service::start().await;
        service.state.hang.store(usize::MAX, SeqCst);
        let args = ["--mode", mode, "--timeout=300ms"];
        let run = bench(service.address, &[&BRIEF[..], &args].concat());
        assert_eq!(run.code, Some(1), "{mode}: {}", run.stderr);
        assert!(
            run.stderr.contains("no answer to QueryAndAdd"),
            "{mode}: {}",
            run.stderr
        );
        assert!(
            run.stderr.contains("within 300ms"),
            "{mode}: {}",
            run.stderr
        );
        assert!(service.state.filters.lock().unwrap().is_empty(), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_ends_the_run() {
    for mode in ["stream", "batch", "single"] {
        let service = Service::start().await;
        service.state.lose_reply_of_call.store(20, SeqCst);
        let run = bench(
            service.address,
            &["--mode", mode, "--duration=1h", "--warmup=0s"],
        );
        assert_eq!(run.code, Some(1), "{mode}: {}", run.stderr);
        assert!(
            run.stderr.contains("broke during QueryAndAdd"),
            "{mode}: {}",
            run.stderr
        );
        // The next connection is answered.
        assert!(
            service.state.filters.lock().unwrap().is_empty(),
            "{mode}: {}",
            run.stderr
        );
    }
}

/// The client crate repeats the calls in flight, and a run that uses it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn coalesced_calls_outlive_a_connection() {
    let service = Service::start().await;
    service.state.lose_reply_of_call.store(3, SeqCst);
    let args = [&BRIEF[..], &["--mode", "coalesced"]].concat();
    let run = bench(service.address, &args);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(service.calls() > 3, "{}", service.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_stays_is_named() {
    let service = Service::start().await;
    service.state.keep_filters.store(true, SeqCst);
    let run = bench(service.address, &BRIEF);
    assert_eq!(run.code, Some(1));
    assert!(run.stdout.contains("keys/s"), "{}", run.stdout);
    let filters = service.state.filters.lock().unwrap().clone();
    let [name] = &filters.into_iter().collect::<Vec<_>>()[..] else {
        panic!("there is no filter, or more than one");
    };
    let expected = format!("seenset filter delete {name}");
    assert!(
        run.stderr.contains("the disk is read-only"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains(&expected), "{}", run.stderr);
}
