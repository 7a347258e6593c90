//! Keys of any bytes, over TCP: each text key field has a twin for bytes, and equal bytes are the
//! same key in both.

use prost_types::Duration as Span;
use seenset_proto::v1::{
    AddBatchRequest, AddRequest, Aging, Counting, CreateFilterRequest, ExplainRequest,
    ExplainResponse, FilterSpec, FinishRebuildRequest, KeyProfile, QueryAndAddBatchRequest,
    QueryAndAddRequest, QueryAndAddStreamRequest, QueryBatchRequest, QueryRequest,
    RemoveBatchRequest, RemoveRequest, StartRebuildRequest,
    dedup_service_client::DedupServiceClient, filter_service_client::FilterServiceClient,
    filter_spec::Kind,
};
use seenset_server::{
    config::{Config, DurabilityMode},
    server::Server,
};
use tokio_stream::StreamExt;
use tonic::{Code, Status, transport::Channel};

use crate::{
    bad_input::assert_refused,
    common::{channel, config, spec, start, stop},
    request,
};

/// The field that contains a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Text,
    Binary,
}

use Form::{Binary, Text};

/// Returns the values of `key` and `binary_key` for a key.
fn one(form: Form, key: &[u8]) -> (String, Vec<u8>) {
    match form {
        Text => (String::from_utf8(key.to_vec()).unwrap(), Vec::new()),
        Binary => (String::new(), key.to_vec()),
    }
}

/// Returns the values of `keys` and `binary_keys` for some keys.
fn many(form: Form, keys: &[&[u8]]) -> (Vec<String>, Vec<Vec<u8>>) {
    let (texts, binaries): (Vec<_>, Vec<_>) = keys.iter().map(|key| one(form, key)).unzip();
    match form {
        Text => (texts, Vec::new()),
        Binary => (Vec::new(), binaries),
    }
}

/// A filter of a server.
struct Filter {
    name: &'static str,
    dedup: DedupServiceClient<Channel>,
    admin: FilterServiceClient<Channel>,
}

impl Filter {
    /// Returns the default filter.
    async fn of(server: &Server) -> Self {
        let channel = channel(server).await;
        Self {
            name: "",
            dedup: DedupServiceClient::new(channel.clone()),
            admin: FilterServiceClient::new(channel),
        }
    }

    /// Creates another filter and uses it.
    async fn create(&mut self, name: &'static str, spec: FilterSpec) {
        let create = CreateFilterRequest {
            name: name.to_owned(),
            spec: Some(spec),
        };
        self.admin.create_filter(create).await.unwrap();
        self.name = name;
    }

    async fn query(&mut self, form: Form, key: &[u8]) -> Option<bool> {
        let (key, binary_key) = one(form, key);
        let query = QueryRequest {
            filter: self.name.to_owned(),
            key,
            binary_key,
            ..Default::default()
        };
        self.dedup.query(query).await.unwrap().into_inner().seen
    }

    async fn add(&mut self, form: Form, key: &[u8]) {
        let (key, binary_key) = one(form, key);
        let add = AddRequest {
            filter: self.name.to_owned(),
            key,
            binary_key,
            ..Default::default()
        };
        self.dedup.add(add).await.unwrap();
    }

    /// Makes the call with a request id, or with none if it is empty.
    async fn query_and_add(&mut self, form: Form, key: &[u8], id: &str) -> Option<bool> {
        let (key, binary_key) = one(form, key);
        let call = QueryAndAddRequest {
            filter: self.name.to_owned(),
            key,
            binary_key,
            request_id: id.to_owned(),
            ..Default::default()
        };
        let answer = self.dedup.query_and_add(call).await;
        answer.unwrap().into_inner().seen
    }

    async fn query_batch(&mut self, form: Form, keys: &[&[u8]]) -> Vec<bool> {
        let (keys, binary_keys) = many(form, keys);
        let query = QueryBatchRequest {
            filter: self.name.to_owned(),
            keys,
            binary_keys,
            ..Default::default()
        };
        let answer = self.dedup.query_batch(query).await;
        answer.unwrap().into_inner().seen
    }

    async fn add_batch(&mut self, form: Form, keys: &[&[u8]]) {
        let (keys, binary_keys) = many(form, keys);
        let add = AddBatchRequest {
            filter: self.name.to_owned(),
            keys,
            binary_keys,
            ..Default::default()
        };
        self.dedup.add_batch(add).await.unwrap();
    }

    async fn query_and_add_batch(&mut self, form: Form, keys: &[&[u8]], id: &str) -> Vec<bool> {
        let (keys, binary_keys) = many(form, keys);
        let call = QueryAndAddBatchRequest {
            filter: self.name.to_owned(),
            keys,
            binary_keys,
            request_id: id.to_owned(),
            ..Default::default()
        };
        let answer = self.dedup.query_and_add_batch(call).await;
        answer.unwrap().into_inner().seen
    }

    async fn stream(&mut self, batches: &[(Form, &[&[u8]])]) -> Vec<Vec<bool>> {
        let batches: Vec<_> = batches
            .iter()
            .map(|&(form, keys)| {
                let (keys, binary_keys) = many(form, keys);
                request(|r: &mut QueryAndAddStreamRequest| {
                    (r.filter, r.keys, r.binary_keys) = (self.name.to_owned(), keys, binary_keys);
                })
            })
            .collect();
        let answers = self.dedup.query_and_add_stream(tokio_stream::iter(batches));
        let answers = answers.await.unwrap().into_inner();
        answers.map(|answer| answer.unwrap().seen).collect().await
    }

    async fn remove(&mut self, form: Form, key: &[u8]) -> Option<bool> {
        let (key, binary_key) = one(form, key);
        let call = RemoveRequest {
            filter: self.name.to_owned(),
            key,
            binary_key,
            ..Default::default()
        };
        self.dedup.remove(call).await.unwrap().into_inner().removed
    }

    async fn remove_batch(&mut self, form: Form, keys: &[&[u8]]) -> Vec<bool> {
        let (keys, binary_keys) = many(form, keys);
        let call = RemoveBatchRequest {
            filter: self.name.to_owned(),
            keys,
            binary_keys,
            ..Default::default()
        };
        let answer = self.dedup.remove_batch(call).await;
        answer.unwrap().into_inner().removed
    }

    async fn explain(&mut self, form: Form, key: &[u8]) -> ExplainResponse {
        let (key, binary_key) = one(form, key);
        let explain = ExplainRequest {
            filter: self.name.to_owned(),
            key,
            binary_key,
        };
        self.admin.explain(explain).await.unwrap().into_inner()
    }
}

/// Returns a configuration for each way of answering: without a log, and after the log has the
/// keys.
fn configs(data_dir: &std::path::Path) -> impl Iterator<Item = Config> {
    [DurabilityMode::Snapshot, DurabilityMode::Always]
        .into_iter()
        .map(|durability| Config {
            durability,
            data_dir: data_dir.join(format!("{durability:?}")),
            ..config(data_dir)
        })
}

/// In Node.js the first two keys both became U+FFFD twice.
#[tokio::test]
async fn keys_of_other_bytes_are_other_keys() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs(dir.path()) {
        let server = start(config).await;
        let mut filter = Filter::of(&server).await;
        for key in [[255, 254], [253, 252], [0, 0], [0xc3, 0xa4]] {
            assert_eq!(filter.query_and_add(Binary, &key, "").await, Some(false));
            assert_eq!(filter.query_and_add(Binary, &key, "").await, Some(true));
        }
        let replaced = "\u{fffd}\u{fffd}".as_bytes();
        assert_eq!(filter.query_and_add(Text, replaced, "").await, Some(false));
        let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(<[u8; 1]>::as_slice).collect();
        let seen = filter.query_and_add_batch(Binary, &bytes, "").await;
        assert_eq!(seen, [false; 256]);
        assert_eq!(filter.query_batch(Binary, &bytes).await, [true; 256]);
        stop(server).await;
    }
}

/// The field in which a key was added and the field in which it is queried do not matter.
#[tokio::test]
async fn the_same_bytes_are_the_same_key_in_either_field() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs(dir.path()) {
        let server = start(config).await;
        let mut filter = Filter::of(&server).await;
        for (one, other) in [(Text, Binary), (Binary, Text)] {
            let key = |name: &str| format!("{name} ä {one:?}").into_bytes();
            let (a, b, c, d) = (key("a"), key("b"), key("c"), key("d"));
            let [a, b, c, d] = [&a[..], &b[..], &c[..], &d[..]];
            assert_eq!(filter.query_and_add(one, a, "").await, Some(false));
            assert_eq!(filter.query_and_add(other, a, "").await, Some(true));
            assert_eq!(filter.query(other, b).await, Some(false));
            filter.add(one, b).await;
            assert_eq!(filter.query(other, b).await, Some(true));
            filter.add_batch(one, &[c]).await;
            let seen = filter.query_batch(other, &[a, b, c, d]).await;
            assert_eq!(seen, [true, true, true, false]);
            let seen = filter.query_and_add_batch(one, &[c, d, d], "").await;
            assert_eq!(seen, [true, false, true]);
            let seen = filter.query_and_add_batch(other, &[d], "").await;
            assert_eq!(seen, [true]);
            // Each batch of a stream has its own field.
            let (e, f) = (key("e"), key("f"));
            let seen = filter.stream(&[(one, &[&e]), (other, &[&f, &e])]).await;
            assert_eq!(seen, [vec![false], vec![false, true]]);
            let [first, second] = [filter.explain(one, a).await, filter.explain(other, a).await];
            assert_eq!(first, second);
            assert_eq!(
                (first.canonical_key.as_bytes(), first.seen),
                (a, Some(true))
            );
        }
        stop(server).await;
    }
}

#[tokio::test]
async fn keys_of_bytes_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs(dir.path()) {
        let server = start(config).await;
        let mut filter = Filter::of(&server).await;
        let kind = Some(Kind::Counting(Counting {}));
        let counting = FilterSpec {
            kind,
            ..spec(10_000, 1e-9)
        };
        filter.create("counting", counting).await;
        let keys: [&[u8]; 3] = [b"\xff", b"text", b"\x00\x01"];
        assert_eq!(
            filter.query_and_add_batch(Binary, &keys, "").await,
            [false; 3]
        );
        assert_eq!(filter.remove(Text, b"text").await, Some(true));
        assert_eq!(filter.remove(Binary, b"text").await, Some(false));
        assert_eq!(
            filter.remove_batch(Binary, &keys).await,
            [true, false, true]
        );
        assert_eq!(filter.query_batch(Binary, &keys).await, [false; 3]);
        stop(server).await;
    }
}

/// A retry may come in the other field, because it is for the same key.
#[tokio::test]
async fn a_retry_gets_the_first_answer() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs(dir.path()) {
        let server = start(config).await;
        let mut filter = Filter::of(&server).await;
        let keys: [&[u8]; 2] = [b"\xff\xfe", b"a"];
        for _ in 0..2 {
            assert_eq!(
                filter.query_and_add(Binary, b"\xfd", "1").await,
                Some(false)
            );
            let seen = filter.query_and_add_batch(Binary, &keys, "2").await;
            assert_eq!(seen, [false; 2]);
        }
        assert_eq!(filter.query_and_add(Text, b"a", "2").await, Some(false));
        assert_eq!(filter.query_and_add(Text, b"a", "3").await, Some(true));
        stop(server).await;
    }
}

#[tokio::test]
async fn keys_of_bytes_age() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut filter = Filter::of(&server).await;
    let hours = |hours: i64| {
        Some(Span {
            seconds: hours * 3600,
            nanos: 0,
        })
    };
    let aging = FilterSpec {
        kind: Some(Kind::Aging(Aging {
            max_age: hours(8),
            ..Default::default()
        })),
        ..spec(10_000, 1e-9)
    };
    filter.create("aging", aging).await;
    filter.add(Binary, b"\xff").await;
    let query = |max_age| QueryRequest {
        filter: "aging".to_owned(),
        binary_key: b"\xff".to_vec(),
        max_age,
        ..Default::default()
    };
    let seen = filter.dedup.query(query(hours(1))).await;
    assert_eq!(seen.unwrap().into_inner().seen, Some(true));
    let refused = filter.dedup.query(query(hours(9))).await;
    assert_refused("too old", refused, Code::InvalidArgument, &["max_age"]);
    stop(server).await;
}

/// Text gets its canonical form in either field. Other bytes do not change.
#[tokio::test]
async fn a_key_profile_leaves_bytes_alone_that_are_not_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut filter = Filter::of(&server).await;
    let urls = FilterSpec {
        key_profile: Some(KeyProfile {
            name: "url-v1".to_owned(),
            ..Default::default()
        }),
        ..spec(10_000, 1e-9)
    };
    filter.create("urls", urls).await;
    filter.add(Binary, b"HTTP://Example.com:80/a#top").await;
    for (form, key, seen) in [
        (Text, &b"http://example.com/a"[..], true),
        (Binary, b"http://example.com/a", true),
        (Binary, b"http://example.com/a#\xff", false),
    ] {
        assert_eq!(filter.query(form, key).await, Some(seen), "{key:?}");
    }
    let (not_utf8, lower) = (b"HTTP://Example.com/\xff#a", b"http://example.com/\xff");
    assert_eq!(
        filter.query_and_add(Binary, not_utf8, "").await,
        Some(false)
    );
    assert_eq!(filter.query(Binary, not_utf8).await, Some(true));
    assert_eq!(filter.query(Binary, lower).await, Some(false));
    let explained = filter.explain(Binary, not_utf8).await;
    assert_eq!(explained.canonical_key, "");
    assert_eq!(explained.binary_canonical_key, not_utf8);
    assert_eq!(explained.seen, Some(true));
    let explained = filter.explain(Binary, b"HTTP://Example.com:80/a").await;
    assert_eq!(explained.canonical_key, "http://example.com/a");
    assert!(explained.binary_canonical_key.is_empty());
    stop(server).await;
}

#[tokio::test]
async fn keys_of_bytes_come_to_the_filter_that_rebuilds_another() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut filter = Filter::of(&server).await;
    filter.create("old", spec(10_000, 1e-9)).await;
    filter.add(Binary, b"\xff before").await;
    let [name, new_name] = ["old", "new"].map(str::to_owned);
    let start = StartRebuildRequest {
        name: name.clone(),
        new_name: new_name.clone(),
        spec: None,
    };
    filter.admin.start_rebuild(start).await.unwrap();
    filter.add(Binary, b"\xff one").await;
    filter.add_batch(Binary, &[b"\xff two", b"text"]).await;
    let finish = FinishRebuildRequest { name, new_name };
    filter.admin.finish_rebuild(finish).await.unwrap();
    let keys: [&[u8]; 4] = [b"\xff before", b"\xff one", b"\xff two", b"text"];
    let seen = filter.query_batch(Binary, &keys).await;
    assert_eq!(seen, [false, true, true, true]);
    stop(server).await;
}

async fn refuse_one(filter: &mut Filter, text: &str, binary: &[u8], words: &[&str]) {
    let (key, binary_key) = (text.to_owned(), binary.to_vec());
    let invalid = Code::InvalidArgument;
    let (mut query, mut add) = (QueryRequest::default(), AddRequest::default());
    let (mut both, mut remove) = (QueryAndAddRequest::default(), RemoveRequest::default());
    let mut explain = ExplainRequest::default();
    let pair = (key, binary_key);
    (query.key, query.binary_key) = pair.clone();
    (add.key, add.binary_key) = pair.clone();
    (both.key, both.binary_key) = pair.clone();
    (remove.key, remove.binary_key) = pair.clone();
    (explain.key, explain.binary_key) = pair;
    assert_refused("Query", filter.dedup.query(query).await, invalid, words);
    assert_refused("Add", filter.dedup.add(add).await, invalid, words);
    let answer = filter.dedup.query_and_add(both).await;
    assert_refused("QueryAndAdd", answer, invalid, words);
    assert_refused("Remove", filter.dedup.remove(remove).await, invalid, words);
    let answer = filter.admin.explain(explain).await;
    assert_refused("Explain", answer, invalid, words);
}

async fn refuse_many(filter: &mut Filter, texts: &[&str], binaries: &[&[u8]], words: &[&str]) {
    let keys: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
    let binary_keys: Vec<Vec<u8>> = binaries.iter().map(|key| key.to_vec()).collect();
    let invalid = Code::InvalidArgument;
    let pair = (keys, binary_keys);
    let (mut query, mut add) = (QueryBatchRequest::default(), AddBatchRequest::default());
    let mut both = QueryAndAddBatchRequest::default();
    let mut remove = RemoveBatchRequest::default();
    let mut stream = QueryAndAddStreamRequest::default();
    (query.keys, query.binary_keys) = pair.clone();
    (add.keys, add.binary_keys) = pair.clone();
    (both.keys, both.binary_keys) = pair.clone();
    (remove.keys, remove.binary_keys) = pair.clone();
    (stream.keys, stream.binary_keys) = pair;
    let answer = filter.dedup.query_batch(query).await;
    assert_refused("QueryBatch", answer, invalid, words);
    let answer = filter.dedup.add_batch(add).await;
    assert_refused("AddBatch", answer, invalid, words);
    let answer = filter.dedup.query_and_add_batch(both).await;
    assert_refused("QueryAndAddBatch", answer, invalid, words);
    let answer = filter.dedup.remove_batch(remove).await;
    assert_refused("RemoveBatch", answer, invalid, words);
    let answers = filter
        .dedup
        .query_and_add_stream(tokio_stream::iter([stream]));
    let answer: Result<_, Status> = answers.await.unwrap().into_inner().message().await;
    assert_refused("QueryAndAddStream", answer, invalid, words);
}

#[tokio::test]
async fn a_request_has_its_keys_in_one_field() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs(dir.path()) {
        let server = start(config).await;
        let mut filter = Filter::of(&server).await;
        let words = ["key has 1 bytes and binary_key has 2"];
        refuse_one(&mut filter, "a", b"\xff\xfe", &words).await;
        refuse_one(&mut filter, "", b"", &["key has 0 bytes", "1 to 65536"]).await;
        let long = vec![0xff; 65_537];
        let words = ["binary_key has 65537 bytes", "1 to 65536"];
        // The request of Explain has at most 64 KiB.
        for answer in [
            filter.dedup.query(one_request(&long)).await.map(drop),
            filter.dedup.query_and_add(adding(&long)).await.map(drop),
        ] {
            assert_refused("a long key", answer, Code::InvalidArgument, &words);
        }

        let words = ["keys has 2 keys and binary_keys has 1"];
        refuse_many(&mut filter, &["a", "b"], &[b"\xff"], &words).await;
        // This also holds if one of them is empty.
        refuse_many(&mut filter, &["a", "b"], &[b""], &words).await;
        let words = ["binary_keys[1] has 0 bytes", "1 to 65536"];
        refuse_many(&mut filter, &[], &[b"\xff", b"", b"a"], &words).await;
        let words = ["binary_keys[0] has 65537 bytes", "1 to 65536"];
        refuse_many(&mut filter, &[], &[&long, b"a"], &words).await;
        let many: Vec<&[u8]> = vec![b"a"; 100_001];
        let words = ["binary_keys has 100001 keys", "at most 100000"];
        refuse_many(&mut filter, &[], &many, &words).await;

        // Nothing was added. A batch may be empty.
        let keys: [&[u8]; 4] = [b"a", b"b", b"\xff", b"\xff\xfe"];
        assert_eq!(filter.query_batch(Binary, &keys).await, [false; 4]);
        let none: Vec<bool> = filter.query_and_add_batch(Binary, &[], "").await;
        assert!(none.is_empty());
        stop(server).await;
    }
}

fn one_request(key: &[u8]) -> QueryRequest {
    QueryRequest {
        binary_key: key.to_vec(),
        ..Default::default()
    }
}

fn adding(key: &[u8]) -> QueryAndAddRequest {
    QueryAndAddRequest {
        binary_key: key.to_vec(),
        ..Default::default()
    }
}
