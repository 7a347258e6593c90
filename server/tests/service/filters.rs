//! Filters: created, read, stored, listed and deleted.

use seenset_proto::v1::{
    AddBatchRequest, CreateFilterRequest, DeleteFilterRequest, Durability, FilterSpec,
    GetFilterRequest, HashFunction, Layout, ListFiltersRequest, OnFull, Plain, Scaling,
    StoreRequest, filter_spec::Kind,
};
use seenset_server::config::{Config, DurabilityMode, Period};
use tonic::Code;

use crate::{
    common::{config, dedup, filters, spec, start, stop},
    key, keys,
};

/// Each filter shows the durability that a caller can rely on.
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
    // The same request changes nothing, and neither does the resolved spec.
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

/// No key is lost if more keys come than expected, unless the spec asks for a feature that only a
/// plain filter has.
#[tokio::test]
async fn a_filter_without_a_kind_grows() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Config {
        kind: None,
        ..config(dir.path())
    })
    .await;
    let mut admin = filters(&server).await;
    let of = |spec: FilterSpec| FilterSpec { kind: None, ..spec };
    let scaling = Kind::Scaling(Scaling {
        growth: 2,
        max_memory_bytes: 0,
        on_full: OnFull::Scale.into(),
    });
    let with_bits = FilterSpec {
        bit_count: 100_000,
        ..of(spec(1000, 0.0))
    };
    let with_hashes = FilterSpec {
        hash_count: 5,
        ..of(spec(1000, 0.01))
    };
    let classic = FilterSpec {
        layout: Layout::Classic.into(),
        ..of(spec(1000, 0.01))
    };
    let plain = || Kind::Plain(Plain {});
    for (name, spec, kind) in [
        ("no-kind", of(spec(1000, 0.01)), scaling),
        ("bits", with_bits, plain()),
        ("hashes", with_hashes, plain()),
        ("classic", classic, plain()),
        ("plain", spec(1000, 0.01), plain()),
    ] {
        let create = CreateFilterRequest {
            name: key(name),
            spec: Some(spec),
        };
        // This also holds if the filter is requested again.
        for _ in 0..2 {
            let made = admin
                .create_filter(create.clone())
                .await
                .unwrap()
                .into_inner();
            assert_eq!(
                made.filter.unwrap().spec.unwrap().kind,
                Some(kind),
                "{name}"
            );
        }
    }
    let get = GetFilterRequest {
        name: key("default"),
    };
    let default = admin.get_filter(get).await.unwrap().into_inner();
    assert_eq!(default.filter.unwrap().spec.unwrap().kind, Some(scaling));

    let mut client = dedup(&server).await;
    let add = AddBatchRequest {
        filter: key("no-kind"),
        keys: (0..5000).map(|number: u32| number.to_string()).collect(),
        ..Default::default()
    };
    let added = client.add_batch(add).await.unwrap().into_inner();
    assert_eq!(added.capacity_warning, None);
    let get = GetFilterRequest {
        name: key("no-kind"),
    };
    let grown = admin.get_filter(get).await.unwrap().into_inner();
    let grown = grown.filter.unwrap();
    assert!(grown.layers.unwrap().layers >= 3);
    assert!(grown.predicted_false_positive_rate <= 0.01);
    stop(server).await;
}

/// The filter shows three rates, the estimate of keys from its fill, and whether it is full.
#[tokio::test]
async fn a_filter_tells_how_it_really_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    let create = CreateFilterRequest {
        name: key("urls"),
        spec: Some(spec(1000, 0.01)),
    };
    let made = admin.create_filter(create).await.unwrap().into_inner();
    let made = made.filter.unwrap();
    assert_eq!((made.is_full, made.estimated_keys), (Some(false), Some(0)));
    assert_eq!(made.measured_false_positive_rate, None);

    let get = || GetFilterRequest { name: key("urls") };
    let got = admin.get_filter(get()).await.unwrap().into_inner();
    let measured = got.filter.unwrap().measured_false_positive_rate.unwrap();
    assert_eq!((measured.rate, measured.lowest), (Some(0.0), Some(0.0)));
    assert!(measured.highest() > 3e-4, "none seen is not a rate of 0");
    assert_eq!(
        (measured.canaries, measured.canaries_seen),
        (Some(10_000), Some(0))
    );

    let add = AddBatchRequest {
        filter: key("urls"),
        keys: (0..2000).map(|number: u32| number.to_string()).collect(),
        ..Default::default()
    };
    let added = client.add_batch(add).await.unwrap().into_inner();
    let warning = added.capacity_warning.unwrap();
    assert_eq!(warning.capacity, 1000);
    assert!(warning.keys > 1000, "{warning:?}");
    // A measurement is reused for this long.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let got = admin.get_filter(get()).await.unwrap().into_inner();
    let full = got.filter.unwrap();
    let measured = full.measured_false_positive_rate.unwrap();
    let seen = measured.canaries_seen() as f64;
    assert_eq!(measured.rate(), seen / 10_000.0);
    // The secret differs each time, so the limit is six standard deviations.
    let expected = 10_000.0 * full.predicted_false_positive_rate;
    assert!(
        (seen - expected).abs() < 6.0 * expected.sqrt(),
        "{seen} for {expected}"
    );
    assert!(expected > 500.0 && measured.lowest() > 0.01, "{measured:?}");
    assert!((1900..2100).contains(&full.estimated_keys()), "{full:?}");
    assert!(full.estimated_keys() > full.keys_added);
    assert_eq!(full.is_full, Some(true));
    // The values are not known before five minutes have passed.
    assert_eq!((full.last_hour, full.last_day), (None, None));

    let list = ListFiltersRequest::default();
    let listed = admin.list_filters(list).await.unwrap().into_inner().filters;
    assert_eq!(listed[1].estimated_keys, full.estimated_keys);
    assert_eq!(listed[1].is_full, Some(true));
    assert_eq!(listed[1].measured_false_positive_rate, None);
    stop(server).await;
}
