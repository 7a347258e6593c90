//! Filters whose keys age, over TCP.

use std::time::Duration;

use prost_types::Duration as Span;
use seenset_proto::v1::{
    AddRequest, Aging, CreateFilterRequest, FilterSpec, GetFilterRequest, Layout,
    QueryAndAddBatchRequest, QueryAndAddRequest, QueryAndAddStreamRequest, QueryBatchRequest,
    QueryRequest, dedup_service_client::DedupServiceClient, filter_spec::Kind,
};
use tonic::{Code, Status, transport::Channel};

use crate::common::{config, dedup, filters, spec, start, stop};

fn span(seconds: i64) -> Option<Span> {
    Some(Span { seconds, nanos: 0 })
}

fn aging(max_age: Option<Span>, slices: u32) -> FilterSpec {
    FilterSpec {
        kind: Some(Kind::Aging(Aging {
            max_age,
            slices,
            refresh: true,
        })),
        // So exact that no key is seen by accident.
        ..spec(10_000, 1e-9)
    }
}

fn create(name: &str, spec: FilterSpec) -> CreateFilterRequest {
    CreateFilterRequest {
        name: name.to_owned(),
        spec: Some(spec),
    }
}

#[tokio::test]
async fn a_key_is_forgotten_when_it_is_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    for (name, seconds) in [("seconds", 1), ("hours", 8 * 3600)] {
        let slices = u32::from(name == "seconds");
        let create = create(name, aging(span(seconds), slices));
        let created = filters.create_filter(create).await.unwrap().into_inner();
        let resolved = created.filter.unwrap().spec.unwrap();
        let expected = aging(span(seconds), if slices == 0 { 8 } else { 1 });
        assert_eq!(
            resolved.kind, expected.kind,
            "eight slices if none are asked for"
        );
        let add = AddRequest {
            filter: name.to_owned(),
            key: "a".to_owned(),
            ..Default::default()
        };
        dedup.add(add).await.unwrap();
    }
    // A second, and one more slice.
    tokio::time::sleep(Duration::from_millis(2001)).await;
    for (name, expected) in [("seconds", false), ("hours", true)] {
        let query = QueryRequest {
            filter: name.to_owned(),
            key: "a".to_owned(),
            ..Default::default()
        };
        let seen = dedup.query(query).await.unwrap().into_inner().seen;
        assert_eq!(seen, Some(expected), "{name}");
    }
    let get = GetFilterRequest {
        name: "seconds".to_owned(),
    };
    let filter = filters.get_filter(get).await.unwrap().into_inner().filter;
    let filter = filter.unwrap();
    assert_eq!((filter.keys_added, filter.fill_ratio), (1, 0.0));
    stop(server).await;
}

/// Returns the answer of each call that reports whether a key is seen, for a maximum age.
async fn ask(
    dedup: &mut DedupServiceClient<Channel>,
    filter: &str,
    max_age: Option<Span>,
) -> Vec<Result<(), Status>> {
    let (filter, key) = (filter.to_owned(), "a".to_owned());
    let keys = vec![key.clone()];
    let query = QueryRequest {
        filter: filter.clone(),
        key: key.clone(),
        max_age,
        ..Default::default()
    };
    let query_and_add = QueryAndAddRequest {
        filter: filter.clone(),
        key,
        max_age,
        ..Default::default()
    };
    let query_batch = QueryBatchRequest {
        filter: filter.clone(),
        keys: keys.clone(),
        max_age,
        ..Default::default()
    };
    let batch = QueryAndAddBatchRequest {
        filter: filter.clone(),
        keys: keys.clone(),
        max_age,
        ..Default::default()
    };
    let streamed = QueryAndAddStreamRequest {
        filter,
        keys,
        max_age,
        ..Default::default()
    };
    let stream = dedup.query_and_add_stream(tokio_stream::iter([streamed]));
    let mut answers = stream.await.unwrap().into_inner();
    vec![
        dedup.query(query).await.map(|_| ()),
        dedup.query_and_add(query_and_add).await.map(|_| ()),
        dedup.query_batch(query_batch).await.map(|_| ()),
        dedup.query_and_add_batch(batch).await.map(|_| ()),
        answers.message().await.map(|_| ()),
    ]
}

#[tokio::test]
async fn an_age_that_keys_cannot_have_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    let hour = create("hour", aging(span(3600), 4));
    filters.create_filter(hour).await.unwrap();
    let late = Some(Span {
        seconds: 3600,
        nanos: 1,
    });
    for (filter, age, code, says) in [
        ("hour", span(1), Code::Ok, ""),
        ("hour", span(3600), Code::Ok, ""),
        ("hour", late, Code::InvalidArgument, "at most 3600s"),
        (
            "hour",
            span(0),
            Code::InvalidArgument,
            "max_age is 0ns; it must be above 0",
        ),
        (
            "hour",
            span(-1),
            Code::InvalidArgument,
            "max_age is -1s; it must be above 0",
        ),
        (
            "hour",
            span(i64::MAX),
            Code::InvalidArgument,
            "at most 3600s",
        ),
        (
            "",
            span(1),
            Code::FailedPrecondition,
            "\"default\" does not age",
        ),
    ] {
        let answers = ask(&mut dedup, filter, age).await;
        for (call, answer) in answers.into_iter().enumerate() {
            let (found, message) = match answer {
                Ok(()) => (Code::Ok, String::new()),
                Err(status) => (status.code(), status.message().to_owned()),
            };
            assert_eq!(found, code, "{call}, {age:?}: {message}");
            assert!(message.contains(says), "{call}, {age:?}: {message}");
        }
    }
    let classic = FilterSpec {
        layout: Layout::Classic.into(),
        ..aging(span(3600), 0)
    };
    for (spec, says) in [
        (aging(None, 0), "spec.aging.max_age is 0ns; it must be 8s"),
        (aging(span(7), 0), "spec.aging.max_age is 7s; it must be 8s"),
        (aging(span(-1), 0), "spec.aging.max_age is -1s"),
        (aging(span(3_153_600_001), 1), "to 3153600000s"),
        (
            aging(span(3600), 14),
            "spec.aging.slices is 14; it must be 1 to 13",
        ),
        (classic, "a filter of the kind aging has the layout blocked"),
    ] {
        let refused = filters.create_filter(create("no", spec)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    stop(server).await;
}
