//! The client and the program against the real server.

use std::{collections::HashSet, fs, time::Duration};

use seenset_client::{Client, Error, v1};
use seenset_server::server::Server;
use serde_json::Value;
use tempfile::TempDir;
use tonic::Code;

use crate::real::{json, seenset, start};

async fn connect(server: &Server) -> Client {
    Client::connect(&server.local_addr().to_string())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_client() {
    let directory = TempDir::new().unwrap();
    let server = start(directory.path()).await;
    let client = connect(&server).await;

    assert!(!client.query("a").await.unwrap());
    client.add("a").await.unwrap();
    assert!(client.query("a").await.unwrap());
    assert!(!client.query_and_add("b").await.unwrap());
    assert!(client.query_and_add("b").await.unwrap());
    client.add_batch(["c", "d"]).await.unwrap();
    let seen = client.query_batch(["a", "x", "c"]).await.unwrap();
    assert_eq!(seen, [true, false, true]);
    let seen = client.query_and_add_batch(["d", "x", "x"]).await.unwrap();
    assert_eq!(seen, [true, false, true]);

    let (mut sender, mut receiver) = client.stream(3);
    tokio::spawn(async move {
        for page in 0..1000_u32 {
            let keys = [page.to_string(), (page / 2).to_string()];
            sender.send(keys, page).await.unwrap();
        }
    });
    for page in 0..1000 {
        let answered = receiver.recv().await.unwrap().unwrap();
        assert_eq!((answered.tag, answered.seen), (page, vec![false, true]));
    }
    assert!(receiver.recv().await.is_none());

    let spec = v1::FilterSpec {
        capacity: 1000,
        false_positive_rate: 0.01,
        ..v1::FilterSpec::default()
    };
    let created = client.create_filter("mine", spec.clone()).await.unwrap();
    assert_eq!(created.spec.unwrap().capacity, 1000);
    client.filter("mine").add("a").await.unwrap();
    assert_eq!(client.get_filter("mine").await.unwrap().keys_added, 1);
    assert_eq!(client.list_filters().await.unwrap().len(), 2);
    assert_eq!(client.store("").await.unwrap().len(), 2);
    let explained = client.filter("mine").explain("a").await.unwrap();
    assert_eq!(
        (explained.canonical_key.as_str(), explained.seen()),
        ("a", true)
    );
    assert!(!client.filter("mine").explain("b").await.unwrap().seen());
    let renamed = client.rename_filter("mine", "ours").await.unwrap();
    assert_eq!((&*renamed.name, renamed.keys_added), ("ours", 1));
    assert!(client.filter("ours").query("a").await.unwrap());
    let copy = client.copy_filter("ours", "copy").await.unwrap();
    assert_eq!((&*copy.name, copy.keys_added), ("copy", 1));
    client.filter("copy").add("b").await.unwrap();
    let merged = client.merge_filters("copy", "ours").await.unwrap();
    assert_eq!((&*merged.name, merged.keys_added), ("ours", 2));
    client.delete_filter("copy").await.unwrap();
    assert_eq!(client.reset_filter("ours").await.unwrap().keys_added, 0);
    assert!(!client.filter("ours").query("a").await.unwrap());
    client.delete_filter("ours").await.unwrap();
    let spec = v1::FilterSpec {
        kind: Some(v1::filter_spec::Kind::Counting(v1::Counting {})),
        ..spec
    };
    client.create_filter("mine", spec).await.unwrap();
    let mine = client.filter("mine");
    mine.add_batch(["a", "b"]).await.unwrap();
    assert!(mine.remove("a").await.unwrap());
    assert_eq!(mine.remove_batch(["a", "b"]).await.unwrap(), [false, true]);
    client.delete_filter("mine").await.unwrap();
    ages(&client).await;
    let error = client.filter("mine").query("a").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound));
    assert!(client.is_serving("seenset.v1.DedupService").await.unwrap());
    server.shutdown(std::future::pending()).await.unwrap();
}

/// All calls that return whether keys are seen carry the maximum age of the keys.
async fn ages(client: &Client) {
    let span = |seconds| prost_types::Duration { seconds, nanos: 0 };
    let spec = v1::FilterSpec {
        capacity: 1000,
        false_positive_rate: 1e-9,
        kind: Some(v1::filter_spec::Kind::Aging(v1::Aging {
            max_age: Some(span(3600)),
            slices: 2,
            refresh: false,
        })),
        ..v1::FilterSpec::default()
    };
    client.create_filter("mine", spec).await.unwrap();
    let mine = client.filter("mine");
    mine.add("a").await.unwrap();
    for (seconds, code) in [(1800, None), (3601, Some(Code::InvalidArgument))] {
        let young = mine.with_max_age(Duration::from_secs(seconds));
        let (mut sender, mut receiver) = young.stream(1);
        sender.send(["a"], ()).await.unwrap();
        drop(sender);
        let seen = [
            young.query("a").await,
            young.query_and_add("a").await,
            young.query_batch(["a"]).await.map(|seen| seen == [true]),
            young
                .query_and_add_batch(["a"])
                .await
                .map(|seen| seen == [true]),
            receiver
                .recv()
                .await
                .unwrap()
                .map(|answered| answered.seen == [true])
                .map_err(|broken| broken.error),
        ];
        for seen in seen {
            match seen {
                Ok(seen) => assert!(seen && code.is_none()),
                Err(error) => assert_eq!(error.code(), code, "{error}"),
            }
        }
    }
    client.delete_filter("mine").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_the_server_are_told() {
    let directory = TempDir::new().unwrap();
    let server = start(directory.path()).await;
    let client = connect(&server).await;
    for keys in [vec!["k"; 100_001], vec![""], vec![&*"k".repeat(65_537)]] {
        let error = client.query_and_add_batch(&keys).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
        assert!(error.changed_nothing());
    }
    let error = client
        .add_batch(vec!["k".repeat(65_536); 260])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    // As large as a message may be.
    let keys: Vec<_> = (0..255).map(|key| format!("{key:065535}")).collect();
    assert_eq!(
        client.query_and_add_batch(&keys).await.unwrap(),
        [false; 255]
    );
    assert_eq!(client.query_batch(&keys).await.unwrap(), [true; 255]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_program() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory.path().join("data")).await;
    assert_eq!(json(&server, &["health"])["serving"], true);

    let args = [
        "filter",
        "create",
        "mine",
        "-n1000",
        "-p0.01",
        "--layout=classic",
    ];
    let created = json(&server, &args);
    assert_eq!(created["capacity"], 1000);
    assert_eq!(created["layout"], "classic");
    assert_eq!(created["hash_function"], "siphash-1-3-128");
    let plan = json(&server, &["plan", "-n1000", "-p0.01", "--layout=classic"]);
    for field in ["bit_count", "hash_count", "false_positive_rate"] {
        assert_eq!(plan[field], created[field], "{field}");
    }
    assert_eq!(
        seenset(&server, &["filter", "create", "mine", "-n1"])
            .status
            .code(),
        Some(1)
    );

    json(&server, &["--filter=mine", "add", "a"]);
    assert_eq!(
        json(&server, &["--filter=mine", "query", "a"])["seen"],
        true
    );
    assert_eq!(json(&server, &["query", "a"])["seen"], false);
    let shown = json(&server, &["filter", "get", "mine"]);
    assert_eq!(shown["keys_added"], 1);
    assert_eq!(
        (&shown["durability"], &shown["sync_interval"]),
        (&"interval".into(), &"1s".into())
    );
    assert_eq!(
        (&shown["retry_keys"], &shown["retry_age"]),
        (&4_194_304.into(), &"10m".into())
    );
    let shown = seenset(&server, &["filter", "get", "mine"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let durability = "\n  durability interval (1s), 4194304 keys of requests remembered for 10m\n";
    assert!(shown.ends_with(durability), "{shown}");
    let rates = "\n  1 keys added, some 1 by the fill, ";
    assert!(shown.contains(rates), "{shown}");
    let measured = "measured 0 (0 to 3.8e-4: 0 of 10000 canaries)\n  new keys: the server";
    assert!(shown.contains(measured), "{shown}");
    assert_eq!(
        json(&server, &["--filter", "mine", "filter", "get"])["name"],
        "mine"
    );
    let shown = json(&server, &["filter", "get", "mine"]);
    let measured = &shown["measured_false_positive_rate"];
    assert_eq!(
        (&measured["rate"], &measured["canaries"]),
        (&0.0.into(), &10_000.into())
    );
    assert!(measured["highest"].as_f64().unwrap() > 3e-4, "{measured}");
    assert_eq!(
        (&shown["estimated_keys"], &shown["is_full"]),
        (&1.into(), &false.into())
    );
    assert_eq!(
        (&shown["last_hour"], &shown["last_day"]),
        (&Value::Null, &Value::Null)
    );
    let list = seenset(&server, &["filter", "list"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(
        list.starts_with("default\n  scaling, each layer 2 times the last\n"),
        "{list}"
    );
    assert!(list.contains("\nmine\n  for 1000 keys"), "{list}");
    assert!(list.contains(", not measured\n"), "{list}");

    let counting = "filter create fetched --capacity 1000 --kind counting";
    let created = seenset(&server, &counting.split(' ').collect::<Vec<_>>());
    let created = String::from_utf8(created.stdout).unwrap();
    let kind = "fetched\n  counting, 0 counters saturated\n  for 1000 keys";
    assert!(created.starts_with(kind), "{created}");
    assert!(
        seenset(&server, &["--filter=fetched", "add", "a"])
            .status
            .success()
    );
    let removed = seenset(&server, &["--filter=fetched", "remove", "a", "b"]);
    assert_eq!(removed.stdout, b"removed\ta\nabsent\tb\n");
    let refused = seenset(&server, &["remove", "a"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        seenset(&server, &["filter", "delete", "fetched"])
            .status
            .success()
    );

    let aging = "filter create aged -n1000 --kind=aging --max-age=1h --slices=4 --refresh";
    let created = seenset(&server, &aging.split(' ').collect::<Vec<_>>());
    let created = String::from_utf8(created.stdout).unwrap();
    let kind =
        "aged\n  aging, keys are remembered for 1h in 4 slices, from when they were seen last\n";
    assert!(created.starts_with(kind), "{created}");
    let shown = json(&server, &["filter", "get", "aged"]);
    assert_eq!(shown["aging"]["max_age"], "1h");
    let asked = ["--filter=aged", "query-and-add", "--max-age=30min", "a"];
    assert_eq!(json(&server, &asked)["seen"], false);
    let asked = ["--filter=aged", "query", "--max-age=1h", "a"];
    assert_eq!(json(&server, &asked)["seen"], true);
    for refused in [
        "--filter=aged query --max-age=2h a",
        "--filter=aged query-and-add --max-age=2h a",
        "query --max-age=1s a",
    ] {
        let refused = seenset(&server, &refused.split(' ').collect::<Vec<_>>());
        assert_eq!(refused.status.code(), Some(1));
    }
    for usage in [
        "filter create no -n1000 --max-age=1h",
        "filter create no -n1000 --kind=aging",
        "plan -n1000 --max-age=1h",
        "plan -n1000 --kind=aging --max-age=1h --slices=14",
    ] {
        let refused = seenset(&server, &usage.split(' ').collect::<Vec<_>>());
        assert_eq!(refused.status.code(), Some(2), "{usage}");
    }
    let plan = ["plan", "-n1000", "--kind=aging", "--max-age=1h"];
    let (plan, plain) = (
        json(&server, &plan),
        json(
            &server,
            &["plan", "-n1000", "--kind=plain", "--layout=blocked"],
        ),
    );
    assert_eq!(plan["kind"], "aging");
    let memory = |plan: &serde_json::Value| plan["memory_bytes"].as_u64().unwrap();
    assert_eq!(memory(&plan), 4 * memory(&plain));
    let deleted = json(&server, &["filter", "delete", "aged"]);
    assert_eq!(deleted["deleted"], true);

    let stored = json(&server, &["--filter=mine", "store"]);
    assert_eq!(
        (&stored["name"], &stored["version"]),
        (&"mine".into(), &1.into())
    );
    assert!(stored["written_bytes"].as_u64().unwrap() > 100);
    assert_eq!(
        json(&server, &["filter", "get", "mine"])["last_store_version"],
        1
    );
    assert_eq!(
        json(&server, &["filter", "delete", "mine"])["deleted"],
        true
    );
    let gone = seenset(&server, &["filter", "get", "mine"]);
    assert_eq!(gone.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_profile_is_given_shown_and_explained() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory.path().join("data")).await;
    let args = [
        "filter",
        "create",
        "urls",
        "-n1000",
        "-k4",
        "--key-profile=url-v1",
        "--sort-query",
        "--drop-parameter=utm_*,sid",
        "--drop-parameter=z",
    ];
    let expected = serde_json::json!({
        "name": "url-v1",
        "sort_query": true,
        "drop_parameters": ["sid", "utm_*", "z"],
    });
    assert_eq!(json(&server, &args)["key_profile"], expected);
    let shown = json(&server, &["filter", "get", "urls"]);
    assert_eq!(shown["key_profile"], expected);
    assert_eq!(
        json(&server, &["filter", "get"])["key_profile"],
        Value::Null
    );
    let text = |args: &[&str]| String::from_utf8(seenset(&server, args).stdout).unwrap();
    let line = "\n  keys by url-v1, queries sorted, without sid utm_* z\n  blocked layout,";
    assert!(text(&["filter", "get", "urls"]).contains(line));
    assert!(!text(&["filter", "get"]).contains("keys by"));

    let key = "HTTP://Example.com?b&utm_x=1&a=%7e#top";
    let canonical = "http://example.com/?a=~&b";
    let explain = ["--filter=urls", "explain", key];
    let before = json(&server, &explain);
    assert_eq!(
        (&before["key"], &before["canonical_key"], &before["seen"]),
        (&key.into(), &canonical.into(), &false.into())
    );
    assert_eq!(before["hash"].as_str().unwrap().len(), 32);
    assert_eq!(before["shard"], 0);
    let bits = before["bits"].as_array().unwrap();
    let in_block = |bit: &Value| bit["index"].as_u64().unwrap() / 512;
    assert!(
        bits.iter()
            .all(|bit| in_block(bit) == before["block"] && bit["is_set"] == false)
    );
    let indices: Vec<String> = bits.iter().map(|bit| bit["index"].to_string()).collect();
    let expected = |word: &str, set: &str, unset: &str| {
        let (hash, block) = (before["hash"].as_str().unwrap(), &before["block"]);
        format!(
            "{word}\t{canonical}\n  hash {hash}\n  shard 0, block {block}\n  \
             bits that are set: {set}\n  bits that are not: {unset}\n"
        )
    };
    let indices = indices.join(" ");
    assert_eq!(text(&explain), expected("new", "none", &indices));
    let add = [
        "--filter=urls",
        "query-and-add",
        "http://EXAMPLE.com:80/?a=~&b#a",
    ];
    assert_eq!(json(&server, &add)["seen"], false);
    assert_eq!(text(&explain), expected("seen", &indices, "none"));

    // Counters lie in lines, and the keys of a growing filter in layers.
    for (kind, place) in [
        ("counting", "  shard 0, lines "),
        ("scaling", "  layer 0, shard 0, block"),
    ] {
        let kind_flag = format!("--kind={kind}");
        json(&server, &["filter", "create", kind, "-n1", &kind_flag]);
        let explained = text(&["explain", "--filter", kind, key]);
        let line = explained.lines().nth(2).unwrap();
        assert!(line.starts_with(place), "{explained}");
    }

    // Options without a profile are a mistake, and so is another name.
    for (args, code, expected) in [
        (&["--sort-query"][..], 2, "--key-profile"),
        (&["--drop-parameter=a"], 2, "--key-profile"),
        (&["--key-profile=url"], 1, "it must be \"url-v1\""),
        (
            &["--key-profile=url-v1", "--drop-parameter=a=b"],
            1,
            "\"a=b\"",
        ),
    ] {
        let output = seenset(&server, &[&["filter", "create", "x", "-n1"], args].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deduplicated_stays_so_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let data_dir = directory.path().join("data");
    let lines: String = (0..100_000)
        .map(|line| format!("https://example.org/{}\r\n", line * 7919 % 60_000))
        .collect();
    let mut first = HashSet::new();
    let expected: String = lines
        .split_inclusive('\n')
        .filter(|line| first.insert(*line))
        .collect();
    let file = directory.path().join("lines");
    fs::write(&file, &lines).unwrap();
    let file = file.to_str().unwrap();

    let server = start(&data_dir).await;
    let output = seenset(&server, &["dedup", file]);
    assert!(output.status.success());
    assert!(
        output.stdout == expected.as_bytes(),
        "other lines than expected"
    );
    let loaded = json(&server, &["load", file]);
    assert_eq!(loaded["added"], 100_000);
    server.shutdown(std::future::pending()).await.unwrap();

    let server = start(&data_dir).await;
    let output = seenset(&server, &["dedup", file]);
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_matched_against_a_list_of_their_own() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory.path().join("data")).await;
    json(&server, &["filter", "create", "words", "-n1000", "-p1e-9"]);
    let list = directory.path().join("list");
    fs::write(&list, "spam\nham\n").unwrap();
    json(&server, &["--filter=words", "load", list.to_str().unwrap()]);

    // More words in a batch than the server takes in one call.
    let word = |line: usize| match line % 1000 {
        0 => "(Spam)".to_owned(),
        _ => (0..200).map(|word| format!("{line}x{word} ")).collect(),
    };
    let lines: String = (0..2000).map(|line| word(line) + "\n").collect();
    let file = directory.path().join("lines");
    fs::write(&file, lines).unwrap();
    let file = file.to_str().unwrap();
    let args = ["--filter=words", "match", "--ignore-case", file];
    let output = seenset(&server, &args);
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "(Spam)\n(Spam)\n"
    );
    let summary = String::from_utf8(output.stderr).unwrap();
    let expected = "2000 lines: 2 matching, 1998 other, 0 bad, 0 long words; ";
    assert!(summary.starts_with(expected), "{summary}");

    // Nothing was marked, and a filter that is not there is an error.
    assert_eq!(json(&server, &["filter", "get", "words"])["keys_added"], 2);
    let output = seenset(&server, &["--filter=wrods", "match", file]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("there is no filter named \"wrods\""),
        "{error}"
    );
    assert!(
        error.contains(&format!("for the lines up to {file}:")),
        "{error}"
    );
    assert!(error.contains("No line is done."), "{error}");
}
