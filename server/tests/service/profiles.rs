//! Key profiles, and the canonical keys of filters.

use seenset_proto::v1::{
    CreateFilterRequest, ExplainRequest, FilterSpec, GetFilterRequest, KeyProfile, Layout,
    QueryAndAddBatchRequest, QueryAndAddRequest, QueryAndAddStreamRequest, QueryRequest,
};
use seenset_server::config::Config;
use tonic::Code;

use crate::{
    common::{config, dedup, filters, spec, start, stop},
    key, keys,
};

/// One key in three spellings.
const WAYS: [&str; 3] = [
    "https://example.com/?a=1&b=2",
    "HTTPS://EXAMPLE.com:443/x/../?b=2&sid=7&a=%31#top",
    "https://example.com?utm_source=m&b=2&a=1",
];

fn profile() -> KeyProfile {
    KeyProfile {
        name: key("url-v1"),
        sort_query: true,
        drop_parameters: keys(&["sid", "utm_*"]),
    }
}

fn create(name: &str, layout: Layout, key_profile: Option<KeyProfile>) -> CreateFilterRequest {
    CreateFilterRequest {
        name: key(name),
        spec: Some(FilterSpec {
            layout: layout.into(),
            key_profile,
            ..spec(1000, 1e-9)
        }),
    }
}

#[tokio::test]
async fn ways_to_write_a_key_are_one_key_before_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    let request = create("urls", Layout::Blocked, Some(profile()));
    let made = admin.create_filter(request).await.unwrap().into_inner();
    let made = made.filter.unwrap().spec.unwrap();
    assert_eq!(made.key_profile, Some(profile()));
    let with_key = |text: &str| QueryAndAddRequest {
        filter: key("urls"),
        key: key(text),
        ..Default::default()
    };
    for (way, expected) in WAYS.into_iter().zip([false, true, true]) {
        let answer = client.query_and_add(with_key(way)).await.unwrap();
        assert_eq!(answer.into_inner().seen, Some(expected), "{way}");
    }
    let batch = QueryAndAddBatchRequest {
        filter: key("urls"),
        keys: keys(&["http://a", WAYS[1], "http://A/#b"]),
        ..Default::default()
    };
    let answer = client.query_and_add_batch(batch).await.unwrap();
    assert_eq!(answer.into_inner().seen, [false, true, true]);
    // So many keys that another thread handles them.
    let many = (0..3000).map(|i| format!("http://{}.example/#{i}", i % 1500));
    let message = QueryAndAddStreamRequest {
        filter: key("urls"),
        keys: many.collect(),
        ..Default::default()
    };
    let stream = client.query_and_add_stream(tokio_stream::iter([message]));
    let answer = stream.await.unwrap().into_inner().message().await;
    let seen = answer.unwrap().unwrap().seen;
    assert!(!seen[..1500].contains(&true) && !seen[1500..].contains(&false));
    stop(server).await;

    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    let get = GetFilterRequest { name: key("urls") };
    let kept = admin.get_filter(get).await.unwrap().into_inner();
    assert_eq!(kept.filter.unwrap().spec.unwrap(), made);
    let query = QueryRequest {
        filter: key("urls"),
        key: key(WAYS[2]),
        ..Default::default()
    };
    let answer = client.query(query).await.unwrap();
    assert_eq!(answer.into_inner().seen, Some(true));
    // The same request makes the same filter. Without a profile it is a different filter.
    let again = create("urls", Layout::Blocked, Some(profile()));
    admin.create_filter(again).await.unwrap();
    let other = create("urls", Layout::Blocked, None);
    let refused = admin.create_filter(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    stop(server).await;
}

#[tokio::test]
async fn the_default_filter_has_the_profile_that_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Config {
        key_profile: Some(key("url-v1")),
        drop_parameter: keys(&["sid"]),
        ..config(dir.path())
    })
    .await;
    let get = GetFilterRequest::default();
    let got = filters(&server).await.get_filter(get).await.unwrap();
    let expected = KeyProfile {
        name: key("url-v1"),
        drop_parameters: keys(&["sid"]),
        ..Default::default()
    };
    let filter = got.into_inner().filter.unwrap();
    assert_eq!(filter.spec.unwrap().key_profile, Some(expected));
    stop(server).await;
}

#[tokio::test]
async fn a_filter_explains_what_it_makes_of_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    for layout in [Layout::Blocked, Layout::Classic] {
        let name = layout.as_str_name();
        let request = create(name, layout, Some(profile()));
        let made = admin.create_filter(request).await.unwrap().into_inner();
        let hash_count = made.filter.unwrap().spec.unwrap().hash_count as usize;
        let explain = |text: &str| ExplainRequest {
            filter: key(name),
            key: key(text),
            ..Default::default()
        };
        let before = admin.explain(explain(WAYS[1])).await.unwrap().into_inner();
        assert_eq!(before.canonical_key, WAYS[0]);
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        assert!(before.hash.len() == 32 && before.hash.chars().all(is_digit));
        assert_eq!((before.shard, before.seen), (Some(0), Some(false)));
        assert_eq!(before.block.is_some(), layout == Layout::Blocked);
        assert!((hash_count / 2..=hash_count).contains(&before.bits.len()));
        assert!(before.bits.iter().all(|bit| bit.is_set == Some(false)));
        let add = QueryAndAddRequest {
            filter: key(name),
            key: key(WAYS[2]),
            ..Default::default()
        };
        let seen = client.query_and_add(add).await.unwrap().into_inner().seen;
        assert_eq!(seen, Some(false), "explaining is not adding");
        let after = admin.explain(explain(WAYS[0])).await.unwrap().into_inner();
        assert_eq!(after.seen, Some(true));
        assert!(after.bits.iter().all(|bit| bit.is_set == Some(true)));
        let indices = |bits: &[seenset_proto::v1::ExplainedBit]| -> Vec<_> {
            bits.iter().map(|bit| bit.index).collect()
        };
        assert_eq!(indices(&after.bits), indices(&before.bits));
        assert_eq!(after.hash, before.hash);
    }
    for (filter, text, code) in [
        ("nope", "a", Code::NotFound),
        ("a/b", "a", Code::InvalidArgument),
        ("", "", Code::InvalidArgument),
        ("", &"x".repeat(65_537), Code::ResourceExhausted),
    ] {
        let request = ExplainRequest {
            filter: key(filter),
            key: key(text),
            ..Default::default()
        };
        let refused = admin.explain(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    stop(server).await;
}
