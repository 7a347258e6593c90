//! Bad input: the server refuses it, names the field, the value and the limit, and changes nothing.

use std::fmt::Debug;

use seenset_proto::v1::{
    AddBatchRequest, AddRequest, CreateFilterRequest, DeleteFilterRequest, FilterSpec,
    GetFilterRequest, KeyProfile, ListFiltersRequest, QueryAndAddBatchRequest,
    QueryAndAddStreamRequest, QueryBatchRequest, QueryRequest, StoreRequest,
};
use seenset_server::server::Server;
use tonic::{Code, Request, Status, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::{
    common::{channel, config, dedup, filters, raw::RawCodec, spec, start, stop},
    key,
};

pub(super) fn assert_refused<T: Debug>(
    what: &str,
    result: Result<T, Status>,
    code: Code,
    words: &[&str],
) {
    let status = result.expect_err(what);
    assert_eq!(status.code(), code, "{what}: {status}");
    for word in words {
        assert!(
            status.message().contains(word),
            "{what}: {:?} does not say {word:?}",
            status.message()
        );
    }
}

/// Stops the server. Asserts that the default filter is the only one, and is empty.
async fn stop_unchanged(server: Server) {
    let mut admin = filters(&server).await;
    let list = admin.list_filters(ListFiltersRequest::default()).await;
    let filters = list.unwrap().into_inner().filters;
    assert_eq!(filters.len(), 1);
    assert_eq!((filters[0].keys_added, filters[0].version), (0, 0));
    stop(server).await;
}

#[tokio::test]
async fn keys() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    let long = "x".repeat(65_537);
    let cases: [(&str, &str, &str, Code, &[&str]); 8] = [
        (
            "an empty key",
            "",
            "",
            Code::InvalidArgument,
            &["key has 0 bytes", "1 to 65536"],
        ),
        (
            "a long key",
            "",
            &long,
            Code::InvalidArgument,
            &["key has 65537 bytes", "65536", "--max-key-bytes"],
        ),
        ("no filter", "nope", "a", Code::NotFound, &["\"nope\""]),
        ("a path", "../x", "a", Code::InvalidArgument, NAME),
        ("a slash", "a/b", "a", Code::InvalidArgument, NAME),
        ("a blank", "a b", "a", Code::InvalidArgument, NAME),
        ("an umlaut", "ü", "a", Code::InvalidArgument, NAME),
        ("a long name", &long, "a", Code::InvalidArgument, NAME),
    ];
    const NAME: &[&str] = &["filter:", "1 to 128 characters"];
    for (what, filter, text, code, words) in cases {
        let (filter, key) = (filter.to_owned(), text.to_owned());
        let query = QueryRequest {
            filter: filter.clone(),
            key: key.clone(),
            ..Default::default()
        };
        assert_refused(what, client.query(query).await, code, words);
        let add = AddRequest {
            filter,
            key,
            ..Default::default()
        };
        assert_refused(what, client.add(add).await, code, words);
    }
    let store = StoreRequest {
        filter: key("nope"),
    };
    let stored = client.store(store).await;
    assert_refused("storing no filter", stored, Code::NotFound, &["\"nope\""]);
    stop_unchanged(server).await;
}

#[tokio::test]
async fn batches() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    let batches = [
        (
            "a bad key in a batch",
            vec![key("good"), "x".repeat(65_537)],
            Code::InvalidArgument,
            &["keys[1] has 65537 bytes", "65536"][..],
        ),
        (
            "a large batch",
            vec![key("good"); 100_001],
            Code::InvalidArgument,
            &["keys has 100001 keys", "100000", "--max-batch-keys"],
        ),
        (
            "a large message",
            vec!["x".repeat(60_000); 300],
            Code::ResourceExhausted,
            &["the message has 18", "16777216"],
        ),
    ];
    for (what, keys, code, words) in batches {
        let batch = AddBatchRequest {
            keys: keys.clone(),
            ..Default::default()
        };
        assert_refused(what, client.add_batch(batch).await, code, words);
        let batch = QueryAndAddBatchRequest {
            keys: keys.clone(),
            ..Default::default()
        };
        assert_refused(what, client.query_and_add_batch(batch).await, code, words);
        let batch = QueryBatchRequest {
            keys: keys.clone(),
            ..Default::default()
        };
        assert_refused(what, client.query_batch(batch).await, code, words);
        let batches = tokio_stream::iter([QueryAndAddStreamRequest {
            keys,
            ..Default::default()
        }]);
        let answers = client.query_and_add_stream(batches).await.unwrap();
        let answer = answers.into_inner().message().await;
        assert_refused(what, answer, code, words);
    }
    stop_unchanged(server).await;
}

#[tokio::test]
async fn specs() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut admin = filters(&server).await;
    let enormous = FilterSpec {
        bit_count: 1 << 49,
        ..spec(1000, 0.0)
    };
    let profile = |name: &str, drop: &[&str]| {
        let key_profile = Some(KeyProfile {
            name: key(name),
            sort_query: true,
            drop_parameters: drop.iter().map(|name| key(name)).collect(),
        });
        Some(FilterSpec {
            key_profile,
            ..spec(1, 0.1)
        })
    };
    let cases: [(&str, Option<FilterSpec>, Code, &[&str]); 17] = [
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
            &[
                "spec.bit_count is 18446744073709551615",
                "1 to 1125899906842624",
            ],
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
            Some(enormous),
            Code::ResourceExhausted,
            &["needs 70368744177664 bytes", "--max-memory"],
        ),
        (
            "an unknown hash",
            Some(FilterSpec {
                hash_function: 7,
                ..spec(1, 0.1)
            }),
            Code::InvalidArgument,
            &["spec.hash_function is 7"],
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
        (
            "an unknown profile",
            profile("url-v9", &[]),
            Code::InvalidArgument,
            &["spec.key_profile.name is \"url-v9\"; it must be \"url-v1\""],
        ),
        (
            "a profile without a name",
            profile("", &[]),
            Code::InvalidArgument,
            &["spec.key_profile.name is \"\""],
        ),
        (
            "no name of a parameter",
            profile("url-v1", &["good", "a*b"]),
            Code::InvalidArgument,
            &["spec.key_profile.drop_parameters has \"a*b\"", "1 to 64"],
        ),
        (
            "too many parameters",
            profile("url-v1", &["a"; 65]),
            Code::InvalidArgument,
            &["spec.key_profile.drop_parameters has 65", "at most 64"],
        ),
    ];
    for (what, spec, code, words) in cases {
        let create = CreateFilterRequest {
            name: key("new"),
            spec,
        };
        assert_refused(what, admin.create_filter(create).await, code, words);
    }
    stop_unchanged(server).await;
}

#[tokio::test]
async fn names_and_pages() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut admin = filters(&server).await;
    let invalid = Code::InvalidArgument;
    for name in ["../x", "a/b", "a b", "ü", &"n".repeat(129)] {
        let create = CreateFilterRequest {
            name: key(name),
            spec: Some(spec(1, 0.1)),
        };
        let words = &["name:", "1 to 128 characters"];
        assert_refused(name, admin.create_filter(create).await, invalid, words);
        let get = GetFilterRequest { name: key(name) };
        assert_refused(name, admin.get_filter(get).await, invalid, words);
        let delete = DeleteFilterRequest { name: key(name) };
        assert_refused(name, admin.delete_filter(delete).await, invalid, words);
    }
    let delete = admin.delete_filter(DeleteFilterRequest::default()).await;
    assert_refused("deleting nothing", delete, invalid, &["name:", "1 to 128"]);
    let list = ListFiltersRequest {
        page_size: -1,
        ..Default::default()
    };
    let listed = admin.list_filters(list).await;
    let words = &["page_size is -1", "at least 0"];
    assert_refused("a page below 0", listed, invalid, words);
    stop_unchanged(server).await;
}

#[tokio::test]
async fn messages() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let empty_keys = [0x12, 0].repeat(5_000_000);
    let cases: [(&str, &[u8], &[&str]); 4] = [
        // Field 2 (`key` or `keys`), 2 bytes.
        ("not UTF-8", &[0x12, 2, 0xff, 0xfe], &["Request.key"]),
        ("cut short", &[0x12, 200, b'x'], &["not valid protobuf"]),
        ("not a tag", &[0xff; 4], &["not valid protobuf"]),
        // Hundreds of MiB after decoding.
        (
            "millions of keys",
            &empty_keys,
            &["5000000 keys", "at most 1048576"],
        ),
    ];
    for (what, message, words) in cases {
        for method in ["Query", "AddBatch", "QueryAndAddStream"] {
            let answer = call_raw(&server, method, &[message]).await;
            let what = format!("{what} in {method}");
            assert_refused(&what, answer, Code::InvalidArgument, words);
        }
    }
    let answer = call_raw(&server, "Query", &[]).await;
    let words = &["the request holds no message"];
    assert_refused("no message", answer, Code::InvalidArgument, words);
    let key = [0x12, 1, b'k'].as_slice();
    for method in ["QueryAndAdd", "AddBatch"] {
        let answer = call_raw(&server, method, &[key, key]).await;
        let words = &["more than one message"];
        assert_refused("two messages", answer, Code::InvalidArgument, words);
    }
    let answer = call_raw(&server, "Forget", &[key]).await;
    assert_refused("an unknown method", answer, Code::Unimplemented, &[]);
    stop_unchanged(server).await;
}

/// A message that tonic refuses is refused in the same way.
#[tokio::test]
async fn messages_of_the_filter_service() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let get = "seenset.v1.FilterService/GetFilter";
    let answer = call_path(&server, get, &[]).await;
    let words = &["the request holds no message"];
    assert_refused("no message", answer, Code::InvalidArgument, words);
    let answer = call_path(&server, get, &[&[0; (64 << 10) + 1]]).await;
    let words = &["65537 bytes", "at most 65536"];
    assert_refused("too long", answer, Code::ResourceExhausted, words);
    stop_unchanged(server).await;
}

#[tokio::test]
async fn compressed_messages() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    let mut query = Request::new(QueryRequest {
        key: key("k"),
        ..Default::default()
    });
    let gzip = "gzip".parse().unwrap();
    query.metadata_mut().insert("grpc-encoding", gzip);
    let answer = client.query(query).await;
    let words = &["grpc-encoding", "gzip", "identity"];
    assert_refused("gzip", answer, Code::Unimplemented, words);
    stop_unchanged(server).await;
}

/// Calls a method with these bytes as messages.
async fn call_raw(server: &Server, method: &str, messages: &[&[u8]]) -> Result<(), Status> {
    call_path(
        server,
        &format!("seenset.v1.DedupService/{method}"),
        messages,
    )
    .await
}

async fn call_path(server: &Server, path: &str, messages: &[&[u8]]) -> Result<(), Status> {
    let channel: Channel = channel(server).await;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("/{path}")).unwrap();
    let messages: Vec<Vec<u8>> = messages.iter().map(|message| message.to_vec()).collect();
    let messages = tokio_stream::iter(messages);
    let answers = grpc
        .streaming(Request::new(messages), path, RawCodec)
        .await?;
    answers.into_inner().message().await.map(drop)
}
