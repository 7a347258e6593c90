//! Filters that grow, and full filters: the requests of the program, and its messages.

use serde_json::{Value, json};

use crate::run::{Run, run, run_with_input};
use seenset_fake::Service;

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn result(run: &Run) -> Value {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_asked_for_with_what_was_given() {
    let service = Service::start().await;
    let asked = |flags: &str| {
        let line = format!("filter create f -n1000 --kind=scaling --output=json{flags}");
        let created = result(&run(&service, &words(&line)));
        assert_eq!(created["kind"], "scaling");
        created["scaling"].clone()
    };
    for (flags, growth, max_memory_bytes, on_full) in [
        ("", None, None, "scale"),
        (
            " --growth=4 --max-memory=1MiB",
            Some(4),
            Some(1 << 20),
            "scale",
        ),
        (
            " --on-full=scale --max-memory=70000",
            None,
            Some(70_000),
            "scale",
        ),
        (" --on-full=reject", None, None, "reject"),
        (" --on-full=degrade", None, None, "degrade"),
    ] {
        let expected = json!({
            "on_full": on_full,
            "growth": growth,
            "max_memory_bytes": max_memory_bytes,
        });
        assert_eq!(asked(flags), expected, "{flags}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_how_far_a_filter_may_grow_and_that_there_is_no_room() {
    let service = Service::start().await;
    let line = "filter create f -n1000 --kind=scaling --growth=4 --max-memory=1MiB";
    let created = run(&service, &words(line));
    let expected = "f\n  scaling, each layer 4 times the last, all of them 1048576 bytes of memory \
                    at most\n  layers: 1 now, with all of them 7000 keys in 65536 bytes of memory\n  \
                    WARNING: as things are the server's --max-memory has no room for all layers";
    assert!(created.stdout.starts_with(expected), "{}", created.stdout);
    let created = result(&run(&service, &words(&format!("{line} --output=json"))));
    let layers = json!({
        "layers": 1,
        "max_capacity": 7000,
        "max_memory_bytes": 65_536,
        "fits_budget": false,
    });
    assert_eq!(created["layers"], layers);

    let plain = run(
        &service,
        &words("filter create g -n1000 --kind=plain --output=json"),
    );
    let plain = result(&plain);
    assert_eq!(
        (&plain["scaling"], &plain["layers"]),
        (&Value::Null, &Value::Null)
    );
}

/// A full filter stays full, so repeating a call does not help.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_filter_ends_a_command_at_once() {
    let service = Service::start().await;
    for args in [
        &["add", "no room"][..],
        &["query-and-add", "no room"],
        &["load", "-"],
        &["dedup"],
    ] {
        let before = service.calls();
        let refused = run_with_input(&service, args, "no room\n");
        assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{args:?}");
        let says = "was refused: the log: no room (ResourceExhausted)";
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
        assert_eq!(service.calls() - before, 1, "{args:?}");
    }
    assert_eq!(service.state.key_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_go_together_is_wrong_usage() {
    let service = Service::start().await;
    for (flags, says) in [
        ("--kind=plain --growth=4", "are for --kind scaling"),
        ("-m8192 --max-memory=1GiB", "are for --kind scaling"),
        ("-k4 --on-full=reject", "are for --kind scaling"),
        ("--layout=classic --growth=4", "are for --kind scaling"),
        ("--kind=counting --on-full=scale", "are for --kind scaling"),
        (
            "--kind=aging --max-age=1h --on-full=reject",
            "are for --kind scaling",
        ),
        (
            "--kind=scaling --on-full=reject --growth=2",
            "are for --on-full scale: with another there is one layer",
        ),
        (
            "--kind=scaling --on-full=degrade --max-memory=1GiB",
            "are for --on-full scale: with another there is one layer",
        ),
        ("--kind=scaling -m8192", "are not for --kind scaling"),
        ("--kind=scaling -k4", "are not for --kind scaling"),
        ("--kind=scaling --max-age=1h", "are for --kind aging"),
        ("--kind=scaling --growth=1", "1 is not in 2..=16"),
        ("--kind=scaling --growth=17", "17 is not in 2..=16"),
        (
            "--kind=scaling --max-memory=0",
            "write a size as 64MiB, 12GiB",
        ),
        (
            "--kind=scaling --max-memory=80%",
            "write a size as 64MiB, 12GiB",
        ),
    ] {
        for command in ["plan -n1000", "filter create f -n1000"] {
            let refused = run(&service, &words(&format!("{command} {flags}")));
            assert_eq!(refused.code, Some(2), "{command} {flags}");
            assert!(refused.stderr.contains(says), "{}", refused.stderr);
        }
    }
    assert_eq!(service.state.filters.lock().unwrap().len(), 0);
    let refused = run(
        &service,
        &words("plan -n1000 --kind=scaling --max-memory=1KiB"),
    );
    assert_eq!(refused.code, Some(2));
    let says = "scaling.max_memory_bytes is 1024; the first layer takes";
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_each_layer() {
    let service = Service::start().await;
    let line = "plan -n100000 -p0.01 --kind=scaling --growth=4 --max-memory=8MiB";
    let plan = result(&run(&service, &words(&format!("{line} --output=json"))));
    assert_eq!(
        (&plan["kind"], &plan["layout"]),
        (&"scaling".into(), &"blocked".into())
    );
    let layers = plan["layers"].as_array().unwrap();
    assert!(layers.len() > 1);
    assert_eq!(layers[0]["memory_bytes"], plan["memory_bytes"]);
    let last = layers.last().unwrap();
    assert_eq!(last["to_keys"], plan["max_capacity"]);
    assert_eq!(last["total_memory_bytes"], plan["max_memory_bytes"]);
    assert!(plan["max_memory_bytes"].as_u64().unwrap() <= 8 << 20);
    // Without --kind the filter is of the same kind.
    let line = line.replace(" --kind=scaling", "");
    let text = run(&service, &words(&line)).stdout;
    assert!(text.starts_with("scaling (growth 4, at most 8388608 bytes), blocked: n = 100000"));
    assert_eq!(text.lines().count(), 2 + layers.len(), "{text}");
}
