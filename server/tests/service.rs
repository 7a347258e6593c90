//! Every rpc over TCP: what it answers, and what it refuses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{channel, config, dedup, filters, spec, start, stop};
use seenset_proto::v1::{
    AddBatchRequest, AddRequest, CreateFilterRequest, DeleteFilterRequest, FilterSpec,
    GetFilterRequest, HashFunction, Layout, ListFiltersRequest, QueryAndAddBatchRequest,
    QueryAndAddRequest, QueryAndAddStreamRequest, QueryBatchRequest, QueryRequest, StoreRequest,
};
use seenset_server::server;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Request, Status, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

fn key(text: &str) -> String {
    text.to_owned()
}

fn keys(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| key(text)).collect()
}

fn request<T: Default>(fill: impl FnOnce(&mut T)) -> T {
    let mut request = T::default();
    fill(&mut request);
    request
}

#[tokio::test]
async fn keys_are_seen_once_they_were_added_whichever_way() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;

    let query = |text: &str| QueryRequest {
        filter: String::new(),
        key: key(text),
    };
    let query_and_add = |text: &str| request(|r: &mut QueryAndAddRequest| r.key = key(text));
    assert_eq!(
        client.query(query("a")).await.unwrap().into_inner().seen,
        Some(false)
    );
    assert_eq!(
        client
            .query_and_add(query_and_add("a"))
            .await
            .unwrap()
            .into_inner()
            .seen,
        Some(false)
    );
    assert_eq!(
        client
            .query_and_add(query_and_add("a"))
            .await
            .unwrap()
            .into_inner()
            .seen,
        Some(true)
    );
    client
        .add(request(|r: &mut AddRequest| r.key = key("b")))
        .await
        .unwrap();
    assert_eq!(
        client.query(query("b")).await.unwrap().into_inner().seen,
        Some(true)
    );

    // The name of the default filter means the same as none.
    let batch = QueryBatchRequest {
        filter: key("default"),
        keys: keys(&["c", "a", "b"]),
    };
    assert_eq!(
        client.query_batch(batch).await.unwrap().into_inner().seen,
        [false, true, true]
    );
    client
        .add_batch(request(|r: &mut AddBatchRequest| {
            r.keys = keys(&["c", "d"])
        }))
        .await
        .unwrap();
    let batch = request(|r: &mut QueryAndAddBatchRequest| r.keys = keys(&["e", "d", "e", "c"]));
    let seen = client
        .query_and_add_batch(batch)
        .await
        .unwrap()
        .into_inner()
        .seen;
    assert_eq!(seen, [false, true, true, true]);
    let batch = request(|r: &mut QueryAndAddBatchRequest| r.keys = vec![]);
    assert!(
        client
            .query_and_add_batch(batch)
            .await
            .unwrap()
            .into_inner()
            .seen
            .is_empty()
    );
    stop(server).await;
}

#[tokio::test]
async fn a_stream_answers_each_batch_in_order_and_ends_with_the_first_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    let batch = |texts: &[&str]| request(|r: &mut QueryAndAddStreamRequest| r.keys = keys(texts));
    let batches = [
        batch(&["a", "b"]),
        batch(&[]),
        batch(&["b", "c", "c"]),
        batch(&["d", ""]),
        batch(&["e"]),
    ];
    let answers = client
        .query_and_add_stream(tokio_stream::iter(batches))
        .await
        .unwrap();
    let answers: Vec<Result<Vec<bool>, Status>> = answers
        .into_inner()
        .map(|answer| answer.map(|answer| answer.seen))
        .collect()
        .await;
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0].as_ref().unwrap(), &[false, false]);
    assert!(answers[1].as_ref().unwrap().is_empty());
    assert_eq!(answers[2].as_ref().unwrap(), &[true, false, true]);
    let status = answers[3].as_ref().unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().starts_with("keys[1] has 0 bytes"),
        "{status}"
    );

    let batch = QueryBatchRequest {
        filter: String::new(),
        keys: keys(&["c", "d", "e"]),
    };
    let seen = client.query_batch(batch).await.unwrap().into_inner().seen;
    assert_eq!(
        seen,
        [true, false, false],
        "a refused batch, or one behind it, was added"
    );
    stop(server).await;
}

#[tokio::test]
async fn filters_are_made_shown_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    let create = |name: &str, spec| CreateFilterRequest {
        name: key(name),
        spec: Some(spec),
    };

    let created = admin
        .create_filter(create("urls", spec(1000, 0.01)))
        .await
        .unwrap()
        .into_inner();
    let filter = created.filter.unwrap();
    let resolved = filter.spec.unwrap();
    assert_eq!((filter.name.as_str(), resolved.capacity), ("urls", 1000));
    assert_eq!(resolved.layout(), Layout::Blocked);
    assert_eq!(resolved.hash_function(), HashFunction::Siphash13128);
    assert!(resolved.bit_count > 9000 && resolved.hash_count > 0);
    assert!(filter.create_time.is_some() && filter.last_store_time.is_some());

    client
        .add_batch(AddBatchRequest {
            filter: key("urls"),
            keys: keys(&["a", "b"]),
            ..Default::default()
        })
        .await
        .unwrap();
    // The same again changes nothing, nor does the spec as it was resolved.
    admin
        .create_filter(create("urls", spec(1000, 0.01)))
        .await
        .unwrap();
    admin.create_filter(create("urls", resolved)).await.unwrap();
    let get = |name: &str| GetFilterRequest { name: key(name) };
    let filter = admin
        .get_filter(get("urls"))
        .await
        .unwrap()
        .into_inner()
        .filter
        .unwrap();
    assert_eq!(
        (filter.keys_added, filter.version, filter.last_store_version),
        (2, 1, 0)
    );
    assert!(filter.fill_ratio > 0.0 && filter.predicted_false_positive_rate > 0.0);
    let other = admin
        .create_filter(create("urls", spec(2000, 0.01)))
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);

    let stored = client
        .store(StoreRequest {
            filter: key("urls"),
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(stored.filters.len(), 1);
    assert_eq!(
        (stored.filters[0].name.as_str(), stored.filters[0].version),
        ("urls", 1)
    );
    assert!(stored.filters[0].written_bytes > 1000 && stored.filters[0].duration.is_some());
    let stored = client
        .store(StoreRequest::default())
        .await
        .unwrap()
        .into_inner();
    let names: Vec<&str> = stored
        .filters
        .iter()
        .map(|filter| filter.name.as_str())
        .collect();
    assert_eq!(names, ["default", "urls"]);

    let list = |size, token: &str| ListFiltersRequest {
        page_size: size,
        page_token: key(token),
    };
    let page = admin.list_filters(list(1, "")).await.unwrap().into_inner();
    assert_eq!(page.filters[0].name, "default");
    let page = admin
        .list_filters(list(1, &page.next_page_token))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (page.filters[0].name.as_str(), page.next_page_token.as_str()),
        ("urls", "")
    );

    admin
        .delete_filter(DeleteFilterRequest { name: key("urls") })
        .await
        .unwrap();
    assert_eq!(
        admin.get_filter(get("urls")).await.unwrap_err().code(),
        Code::NotFound
    );
    assert!(!dir.path().join("urls.snapshot").exists());
    stop(server).await;
}

/// One bad input and what must come of it: the code, and words the message must have.
type Refusal = (&'static str, Status, Code, &'static [&'static str]);

#[tokio::test]
async fn bad_input_is_refused_by_field_value_and_limit() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    let mut admin = filters(&server).await;

    let mut refusals: Vec<Refusal> = Vec::new();
    let long = "x".repeat(65_537);
    let query = |filter: &str, text: &str| QueryRequest {
        filter: key(filter),
        key: key(text),
    };
    refusals.push((
        "an empty key",
        client.query(query("", "")).await.unwrap_err(),
        Code::InvalidArgument,
        &["key has 0 bytes", "1 to 65536"],
    ));
    refusals.push((
        "a long key",
        client.query(query("", &long)).await.unwrap_err(),
        Code::InvalidArgument,
        &["key has 65537 bytes", "65536", "--max-key-bytes"],
    ));
    let add = AddRequest {
        key: long.clone(),
        ..Default::default()
    };
    refusals.push((
        "a long key to add",
        client.add(add).await.unwrap_err(),
        Code::InvalidArgument,
        &["key has 65537 bytes"],
    ));
    refusals.push((
        "an unknown filter",
        client.query(query("nope", "a")).await.unwrap_err(),
        Code::NotFound,
        &["\"nope\""],
    ));
    for name in ["../x", "a/b", "a b", "ü", &"n".repeat(129)] {
        refusals.push((
            "a bad name",
            client.query(query(name, "a")).await.unwrap_err(),
            Code::InvalidArgument,
            &["filter:", "1 to 128 characters"],
        ));
    }
    let batch = QueryAndAddBatchRequest {
        keys: vec![key("good"), long],
        ..Default::default()
    };
    refusals.push((
        "a bad key in a batch",
        client.query_and_add_batch(batch).await.unwrap_err(),
        Code::InvalidArgument,
        &["keys[1] has 65537 bytes", "65536"],
    ));
    let batch = AddBatchRequest {
        keys: vec![key("good"); 100_001],
        ..Default::default()
    };
    refusals.push((
        "a large batch",
        client.add_batch(batch).await.unwrap_err(),
        Code::InvalidArgument,
        &["keys has 100001 keys", "100000", "--max-batch-keys"],
    ));
    let batch = AddBatchRequest {
        keys: vec!["x".repeat(60_000); 300],
        ..Default::default()
    };
    refusals.push((
        "a large message",
        client.add_batch(batch.clone()).await.unwrap_err(),
        Code::ResourceExhausted,
        &["the message has 18", "16777216"],
    ));
    let batches = tokio_stream::iter([QueryAndAddStreamRequest {
        keys: batch.keys,
        ..Default::default()
    }]);
    let mut answers = client
        .query_and_add_stream(batches)
        .await
        .unwrap()
        .into_inner();
    refusals.push((
        "a large message in a stream",
        answers.message().await.unwrap_err(),
        Code::ResourceExhausted,
        &["the message has 18", "16777216"],
    ));
    refusals.push((
        "storing an unknown filter",
        client
            .store(StoreRequest {
                filter: key("nope"),
            })
            .await
            .unwrap_err(),
        Code::NotFound,
        &["\"nope\""],
    ));

    let gib = FilterSpec {
        bit_count: 1 << 49,
        ..spec(1000, 0.0)
    };
    let cases: [(&str, Option<FilterSpec>, Code, &[&str]); 12] = [
        ("no spec", None, Code::InvalidArgument, &["spec is missing"]),
        (
            "no capacity",
            Some(spec(0, 0.01)),
            Code::InvalidArgument,
            &["spec.capacity is 0", "at least 1"],
        ),
        (
            "no rate",
            Some(spec(1, 0.0)),
            Code::InvalidArgument,
            &["spec.false_positive_rate is 0;", "above 0 and below 1"],
        ),
        (
            "a rate of 1",
            Some(spec(1, 1.0)),
            Code::InvalidArgument,
            &["spec.false_positive_rate is 1;"],
        ),
        (
            "a rate below 0",
            Some(spec(1, -0.1)),
            Code::InvalidArgument,
            &["spec.false_positive_rate is -0.1;"],
        ),
        (
            "not a rate",
            Some(spec(1, f64::NAN)),
            Code::InvalidArgument,
            &["spec.false_positive_rate is NaN;"],
        ),
        (
            "not a rate, with bits",
            Some(FilterSpec {
                bit_count: 10,
                ..spec(1, f64::NAN)
            }),
            Code::InvalidArgument,
            &["spec.false_positive_rate is NaN;"],
        ),
        (
            "too many hashes",
            Some(FilterSpec {
                hash_count: 65,
                ..spec(1, 0.1)
            }),
            Code::InvalidArgument,
            &["spec.hash_count is 65", "1 to 64"],
        ),
        (
            "too many bits",
            Some(FilterSpec {
                bit_count: u64::MAX,
                ..spec(1, 0.1)
            }),
            Code::InvalidArgument,
            &["spec.bit_count is 18446744073709551615", "at most"],
        ),
        (
            "too many keys",
            Some(spec(u64::MAX, 0.1)),
            Code::InvalidArgument,
            &[
                "spec.capacity 18446744073709551615",
                "more than 1125899906842624 bits",
            ],
        ),
        (
            "too much memory",
            Some(gib),
            Code::ResourceExhausted,
            &["needs 70368744177664 bytes", "--max-memory"],
        ),
        (
            "an unknown layout",
            Some(FilterSpec {
                layout: 9,
                ..spec(1, 0.1)
            }),
            Code::InvalidArgument,
            &["spec.layout is 9"],
        ),
    ];
    for (what, spec, code, words) in cases {
        let refused = admin
            .create_filter(CreateFilterRequest {
                name: key("new"),
                spec,
            })
            .await;
        refusals.push((what, refused.unwrap_err(), code, words));
    }
    let create = CreateFilterRequest {
        name: key(".."),
        spec: Some(FilterSpec {
            hash_function: 7,
            ..spec(1, 0.1)
        }),
    };
    refusals.push((
        "an unknown hash",
        admin.create_filter(create).await.unwrap_err(),
        Code::InvalidArgument,
        &["spec.hash_function is 7"],
    ));
    let list = ListFiltersRequest {
        page_size: -1,
        page_token: String::new(),
    };
    refusals.push((
        "a page below 0",
        admin.list_filters(list).await.unwrap_err(),
        Code::InvalidArgument,
        &["page_size is -1", "at least 0"],
    ));
    let delete = DeleteFilterRequest {
        name: String::new(),
    };
    refusals.push((
        "deleting nothing",
        admin.delete_filter(delete).await.unwrap_err(),
        Code::InvalidArgument,
        &["name:", "1 to 128"],
    ));

    for (what, status, code, words) in refusals {
        assert_eq!(status.code(), code, "{what}: {status}");
        for word in words {
            assert!(
                status.message().contains(word),
                "{what}: {:?} does not say {word:?}",
                status.message()
            );
        }
    }
    // None of it did anything.
    let filter = admin
        .get_filter(GetFilterRequest::default())
        .await
        .unwrap()
        .into_inner()
        .filter
        .unwrap();
    assert_eq!((filter.keys_added, filter.version), (0, 0));
    let list = admin
        .list_filters(ListFiltersRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.filters.len(), 1);
    stop(server).await;
}

#[tokio::test]
async fn bytes_that_are_not_utf8_or_not_protobuf_are_the_callers_fault() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    for (message, expected) in [
        // Field 2 (key), 2 bytes that are not UTF-8.
        (&[0x12, 2, 0xff, 0xfe][..], "QueryRequest.key"),
        (&[0x12, 200, b'x'][..], "not valid protobuf"),
        (&[0xff, 0xff, 0xff, 0xff][..], "not valid protobuf"),
    ] {
        let status = raw_query(channel(&server).await, message)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(expected), "{status}");
    }
    stop(server).await;
}

/// Calls `Query` with these bytes for a message.
async fn raw_query(channel: Channel, message: &[u8]) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready()
        .await
        .map_err(|error| Status::unknown(error.to_string()))?;
    let path = PathAndQuery::from_static("/seenset.v1.DedupService/Query");
    let request = Request::new(message.to_vec());
    grpc.unary(request, path, common::raw::RawCodec)
        .await
        .map(drop)
}

async fn health(channel: &Channel, service: &str) -> i32 {
    let request = HealthCheckRequest {
        service: key(service),
    };
    HealthClient::new(channel.clone())
        .check(request)
        .await
        .unwrap()
        .into_inner()
        .status
}

#[tokio::test]
async fn health_follows_recovery_and_draining() {
    const SERVING: i32 = 1;
    const NOT_SERVING: i32 = 2;
    let services = ["", "seenset.v1.DedupService", "seenset.v1.FilterService"];
    let dir = tempfile::tempdir().unwrap();
    let mut server = server::bind(config(dir.path())).await.unwrap();
    let connection = channel(&server).await;
    for service in services {
        assert_eq!(health(&connection, service).await, NOT_SERVING);
    }
    let early = dedup(&server)
        .await
        .query(QueryRequest {
            key: key("a"),
            ..Default::default()
        })
        .await;
    assert_eq!(early.unwrap_err().code(), Code::Unavailable);
    server.recover().await.unwrap();
    for service in services {
        assert_eq!(health(&connection, service).await, SERVING);
    }

    // While a call is in flight, the connection lives and says that the server drains.
    let (batches, receiver) = mpsc::channel(1);
    let mut client = dedup(&server).await;
    let mut answers = client
        .query_and_add_stream(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let batch = |text: &str| QueryAndAddStreamRequest {
        keys: keys(&[text]),
        ..Default::default()
    };
    batches.send(batch("before")).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().seen, [false]);
    let stopping = tokio::spawn(stop(server));
    tokio::time::sleep(Duration::from_millis(100)).await;
    // What is still sent on the stream is answered, and then the silence ends it.
    batches.send(batch("while draining")).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().seen, [false]);
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    timeout(Duration::from_secs(4), stopping)
        .await
        .expect("an idle stream held up the stop")
        .unwrap();

    let server = start(config(dir.path())).await;
    let batch = QueryBatchRequest {
        keys: keys(&["before", "while draining"]),
        ..Default::default()
    };
    let seen = dedup(&server)
        .await
        .query_batch(batch)
        .await
        .unwrap()
        .into_inner()
        .seen;
    assert_eq!(seen, [true, true]);
    stop(server).await;
}
