//! Filters: made, shown, stored, listed and removed.

use seenset_proto::v1::{
    AddBatchRequest, CreateFilterRequest, DeleteFilterRequest, Durability, GetFilterRequest,
    HashFunction, Layout, ListFiltersRequest, StoreRequest,
};
use seenset_server::config::{Config, DurabilityMode, Period};
use tonic::Code;

use crate::{
    common::{config, dedup, filters, spec, start, stop},
    key, keys,
};

/// What a caller may rely on is shown with each filter.
#[tokio::test]
async fn a_filter_tells_what_is_kept_of_it() {
    for (mode, durability, sync_seconds) in [
        (DurabilityMode::Always, Durability::Always, None),
        (DurabilityMode::Interval, Durability::Interval, Some(7)),
        (DurabilityMode::Snapshot, Durability::Snapshot, None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let server = start(Config {
            durability: mode,
            sync_interval: Period::from_secs(7),
            retry_keys: 123,
            retry_age: Period::from_secs(45),
            ..config(dir.path())
        })
        .await;
        let get = GetFilterRequest::default();
        let got = filters(&server).await.get_filter(get).await.unwrap();
        let filter = got.into_inner().filter.unwrap();
        assert_eq!(filter.durability(), durability);
        let seconds = filter.sync_interval.map(|interval| interval.seconds);
        assert_eq!(seconds, sync_seconds);
        assert_eq!(filter.retry_keys, 123);
        assert_eq!(filter.retry_age.map(|age| age.seconds), Some(45));
        stop(server).await;
    }
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
    let again = create("urls", resolved);
    admin.create_filter(again).await.unwrap();
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
    let files = std::fs::read_dir(dir.path()).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!files.into_iter().any(|file| file.starts_with("urls")));
    stop(server).await;
}
