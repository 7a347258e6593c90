//! Filters that count, over TCP: keys can be added and removed.

use std::path::Path;

use seenset_proto::v1::{
    AddBatchRequest, Counting, CreateFilterRequest, FilterSpec, GetFilterRequest, Layout,
    QueryAndAddBatchRequest, QueryAndAddRequest, QueryBatchRequest, RemoveBatchRequest,
    RemoveRequest, dedup_service_client::DedupServiceClient, filter_spec::Kind,
};
use tonic::{Code, transport::Channel};

use crate::{
    common::{
        config, filters,
        program::{Program, Signal},
        spec, start, stop,
    },
    key, keys,
};

const FILTER: &str = "fetched";

fn counting() -> FilterSpec {
    FilterSpec {
        kind: Some(Kind::Counting(Counting {})),
        // So exact that no key is seen by accident.
        ..spec(10_000, 1e-9)
    }
}

fn program(data_dir: &Path, durability: &str) -> Program {
    let durability = format!("--durability={durability}");
    Program::start(data_dir, &["--store-interval=0", &durability])
}

async fn remove(dedup: &mut DedupServiceClient<Channel>, name: &str, id: &str) -> bool {
    let request = RemoveRequest {
        filter: FILTER.to_owned(),
        key: key(name),
        request_id: id.to_owned(),
        ..Default::default()
    };
    let response = dedup.remove(request).await.unwrap().into_inner();
    response.removed.expect("`removed` is always present")
}

async fn query_and_add(dedup: &mut DedupServiceClient<Channel>, name: &str) -> bool {
    let request = QueryAndAddRequest {
        filter: FILTER.to_owned(),
        key: key(name),
        ..Default::default()
    };
    let response = dedup.query_and_add(request).await.unwrap().into_inner();
    response.seen.unwrap()
}

/// Single calls have two ways to be answered, because `snapshot` has no log to wait for.
#[tokio::test]
async fn what_is_removed_is_new_again_and_stays_so_after_a_kill() {
    for durability in ["always", "interval", "snapshot"] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = program(dir.path(), durability);
        let (mut dedup, mut filters) = server.connect().await;
        let create = CreateFilterRequest {
            name: FILTER.to_owned(),
            spec: Some(counting()),
        };
        let created = filters.create_filter(create).await.unwrap().into_inner();
        let resolved = created.filter.unwrap().spec.unwrap();
        assert_eq!(resolved.kind, counting().kind);

        assert!(!remove(&mut dedup, "a", "").await);
        assert!(!query_and_add(&mut dedup, "a").await);
        assert!(query_and_add(&mut dedup, "a").await);
        for _ in 0..2 {
            assert!(remove(&mut dedup, "a", "1").await, "{durability}");
        }
        assert!(!remove(&mut dedup, "a", "").await);
        assert!(!query_and_add(&mut dedup, "a").await, "{durability}");

        let add = AddBatchRequest {
            filter: FILTER.to_owned(),
            keys: keys(&["b", "c"]),
            ..Default::default()
        };
        dedup.add_batch(add).await.unwrap();
        let request = RemoveBatchRequest {
            filter: FILTER.to_owned(),
            keys: keys(&["d", "c", "c", "a"]),
            ..Default::default()
        };
        let removed = dedup.remove_batch(request).await.unwrap().into_inner();
        assert_eq!(removed.removed, [false, true, false, true], "{durability}");

        if durability != "snapshot" {
            server.signal(Signal::KILL);
            server.exit_code();
            server = program(dir.path(), durability);
            (dedup, _) = server.connect().await;
        }
        let query = QueryBatchRequest {
            filter: FILTER.to_owned(),
            keys: keys(&["a", "b", "c", "d"]),
            ..Default::default()
        };
        let seen = dedup.query_batch(query).await.unwrap().into_inner().seen;
        assert_eq!(seen, [false, true, false, false], "{durability}");
    }
}

#[tokio::test]
async fn what_cannot_be_removed_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut admin = filters(&server).await;
    let mut dedup = crate::common::dedup(&server).await;
    let classic = FilterSpec {
        layout: Layout::Classic.into(),
        ..counting()
    };
    for (spec, code) in [(classic, Code::InvalidArgument), (counting(), Code::Ok)] {
        let create = CreateFilterRequest {
            name: FILTER.to_owned(),
            spec: Some(spec),
        };
        let created = admin.create_filter(create).await;
        let status = created.err().unwrap_or(tonic::Status::ok(""));
        assert_eq!(status.code(), code, "{status}");
        if code != Code::Ok {
            assert!(
                status.message().contains("spec.layout is classic"),
                "{status}"
            );
        }
    }
    // A plain filter of that name is a different filter.
    let create = CreateFilterRequest {
        name: FILTER.to_owned(),
        spec: Some(spec(10_000, 1e-9)),
    };
    let status = admin.create_filter(create).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(status.message().contains("kind counting"), "{status}");

    let plain = RemoveRequest {
        key: key("a"),
        ..Default::default()
    };
    let status = dedup.remove(plain).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(
        status.message().contains("\"default\" does not count"),
        "{status}"
    );

    // A batch with one bad key removes no key.
    let add = QueryAndAddBatchRequest {
        filter: FILTER.to_owned(),
        keys: keys(&["a"]),
        ..Default::default()
    };
    dedup.query_and_add_batch(add).await.unwrap();
    let mut bad = RemoveBatchRequest {
        filter: FILTER.to_owned(),
        keys: keys(&["a", ""]),
        request_id: "x".repeat(129),
        ..Default::default()
    };
    for text in ["keys[1] has 0 bytes", "request_id has 129 bytes"] {
        let status = dedup.remove_batch(bad.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(text), "{status}");
        bad.keys.pop();
    }
    assert!(query_and_add(&mut dedup, "a").await);
    stop(server).await;
}

#[tokio::test]
async fn counters_that_are_full_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut admin = filters(&server).await;
    let mut dedup = crate::common::dedup(&server).await;
    let create = CreateFilterRequest {
        name: FILTER.to_owned(),
        spec: Some(FilterSpec {
            // All bits of a key differ.
            hash_count: 8,
            ..counting()
        }),
    };
    admin.create_filter(create).await.unwrap();
    let add = AddBatchRequest {
        filter: FILTER.to_owned(),
        keys: keys(&["a"; 15]),
        ..Default::default()
    };
    dedup.add_batch(add).await.unwrap();
    let get = GetFilterRequest {
        name: FILTER.to_owned(),
    };
    let filter = admin
        .get_filter(get)
        .await
        .unwrap()
        .into_inner()
        .filter
        .unwrap();
    assert_eq!(filter.saturated_counters, 8);
    assert_eq!(filter.keys_added, 1);
    assert!(!remove(&mut dedup, "a", "").await);
    stop(server).await;
}
