//! Filters that scale, over TCP: they grow, refuse new keys, or accept new keys and get worse.

use seenset_proto::v1::{
    AddBatchRequest, AddRequest, CreateFilterRequest, Filter, FilterSpec, GetFilterRequest, Layout,
    ListFiltersRequest, OnFull, QueryAndAddBatchRequest, QueryAndAddRequest, QueryBatchRequest,
    Scaling, dedup_service_client::DedupServiceClient, filter_service_client::FilterServiceClient,
    filter_spec::Kind,
};
use seenset_server::config::Config;
use tonic::{Code, Status, transport::Channel};

use crate::common::{config, dedup, filters, spec, start, stop};

const CAPACITY: u64 = 2000;

pub fn scaling(on_full: OnFull, growth: u32, max_memory_bytes: u64) -> FilterSpec {
    FilterSpec {
        kind: Some(Kind::Scaling(Scaling {
            growth,
            max_memory_bytes,
            on_full: on_full.into(),
        })),
        // So exact that no key is seen by accident.
        ..spec(CAPACITY, 1e-9)
    }
}

pub async fn create(
    filters: &mut FilterServiceClient<Channel>,
    name: &str,
    spec: FilterSpec,
) -> Result<Filter, Status> {
    let request = CreateFilterRequest {
        name: name.to_owned(),
        spec: Some(spec),
    };
    let created = filters.create_filter(request).await?.into_inner();
    Ok(created.filter.unwrap())
}

pub async fn get(filters: &mut FilterServiceClient<Channel>, name: &str) -> Filter {
    let request = GetFilterRequest {
        name: name.to_owned(),
    };
    let got = filters.get_filter(request).await.unwrap().into_inner();
    got.filter.unwrap()
}

/// Returns the given number of keys, different for each `number`.
fn batch(number: u64, size: usize) -> Vec<String> {
    (0..size).map(|key| format!("{number}/{key}")).collect()
}

pub fn thousand(number: u64) -> Vec<String> {
    batch(number, 1000)
}

pub async fn query_and_add(
    dedup: &mut DedupServiceClient<Channel>,
    filter: &str,
    keys: Vec<String>,
) -> Result<Vec<bool>, Status> {
    let request = QueryAndAddBatchRequest {
        filter: filter.to_owned(),
        keys,
        ..Default::default()
    };
    let answer = dedup.query_and_add_batch(request).await?;
    Ok(answer.into_inner().seen)
}

async fn query(
    dedup: &mut DedupServiceClient<Channel>,
    filter: &str,
    keys: Vec<String>,
) -> Vec<bool> {
    let request = QueryBatchRequest {
        filter: filter.to_owned(),
        keys,
        ..Default::default()
    };
    let answer = dedup.query_batch(request).await.unwrap();
    answer.into_inner().seen
}

/// Adds keys in calls of `size` keys until a call is refused. Returns the number of accepted calls,
/// and the refusal.
async fn fill(dedup: &mut DedupServiceClient<Channel>, filter: &str, size: usize) -> (u64, Status) {
    for number in 0..1000 {
        match query_and_add(dedup, filter, batch(number, size)).await {
            Ok(seen) => assert_eq!(seen, vec![false; size], "{number}"),
            Err(status) => return (number, status),
        }
    }
    panic!("a thousand calls, and not full");
}

/// Asserts that a full filter refuses new keys in each call that adds, and answers for existing
/// keys.
async fn refuses(dedup: &mut DedupServiceClient<Channel>, filter: &str, calls: u64, size: usize) {
    let single = QueryAndAddRequest {
        filter: filter.to_owned(),
        ..Default::default()
    };
    // A single key can hit a place that still has room.
    let mut new = 0;
    let refused = loop {
        let key = format!("new/{new}");
        let single = QueryAndAddRequest {
            key: key.clone(),
            ..single.clone()
        };
        match dedup.query_and_add(single).await {
            Ok(_) => new += 1,
            Err(refused) => break (key, refused),
        }
        assert!(new < 100_000, "never full");
    };
    let (key, refused) = refused;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains(&format!("\"{filter}\" is full")));

    let mut keys = batch(0, size);
    keys.push(key.clone());
    let add = AddBatchRequest {
        filter: filter.to_owned(),
        keys: vec![key.clone()],
        ..Default::default()
    };
    let one = AddRequest {
        filter: filter.to_owned(),
        key: key.clone(),
        ..Default::default()
    };
    for answer in [
        query_and_add(dedup, filter, keys.clone()).await.map(|_| ()),
        dedup.add_batch(add).await.map(|_| ()),
        dedup.add(one).await.map(|_| ()),
    ] {
        assert_eq!(answer.unwrap_err().code(), Code::ResourceExhausted);
    }
    let mut expected = vec![true; size];
    expected.push(false);
    assert_eq!(query(dedup, filter, keys).await, expected);
    for number in 0..calls {
        let again = query_and_add(dedup, filter, batch(number, size)).await;
        assert_eq!(again.unwrap(), vec![true; size], "{number}");
    }
}

#[tokio::test]
async fn a_filter_grows_within_its_bound_and_is_then_full() {
    const BOUND: u64 = 512 << 10;
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    let asked = scaling(OnFull::Unspecified, 0, BOUND);
    let made = create(&mut filters, "pages", asked.clone()).await.unwrap();
    let spec = made.spec.unwrap();
    assert_eq!(spec.kind, scaling(OnFull::Scale, 2, BOUND).kind);
    assert!(spec.bit_count > 0 && spec.hash_count > 0);
    assert_eq!(made.memory_bytes, spec.bit_count / 8);
    let layers = made.layers.unwrap();
    assert_eq!((layers.layers, layers.fits_budget), (1, Some(true)));
    assert!(layers.max_capacity > 4 * CAPACITY, "{layers:?}");
    assert!((made.memory_bytes + 1..=BOUND).contains(&layers.max_memory_bytes));
    // None of these values is lost when the filter is created again.
    let again = create(&mut filters, "pages", asked).await.unwrap();
    assert_eq!(again.layers, Some(layers));

    let (mut grown, mut before) = (1, made.memory_bytes);
    for number in 0..4 {
        let seen = query_and_add(&mut dedup, "pages", thousand(number)).await;
        assert_eq!(seen.unwrap(), [false; 1000]);
        let filter = get(&mut filters, "pages").await;
        let layers = filter.layers.unwrap();
        assert!(layers.layers >= grown && filter.memory_bytes >= before);
        assert_eq!(filter.is_full, Some(false));
        (grown, before) = (layers.layers, filter.memory_bytes);
    }
    assert!(grown > 1 && before > made.memory_bytes, "{grown}, {before}");
    let get_page = ListFiltersRequest::default();
    let page = filters.list_filters(get_page).await.unwrap().into_inner();
    let listed = page.filters.iter().find(|filter| filter.name == "pages");
    assert_eq!(listed.unwrap().layers.unwrap().layers, grown);

    // The same keys are seen, and then new keys are added.
    for number in 0..4 {
        let seen = query_and_add(&mut dedup, "pages", thousand(number)).await;
        assert_eq!(seen.unwrap(), [true; 1000]);
    }
    let mut calls = 4;
    let refused = loop {
        match query_and_add(&mut dedup, "pages", thousand(calls)).await {
            Ok(seen) => assert_eq!(seen, [false; 1000]),
            Err(refused) => break refused,
        }
        calls += 1;
        assert!(calls < 1000, "never full");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let says = format!("its scaling.max_memory_bytes of {BOUND} leaves no room for a layer");
    assert!(refused.message().contains(&says), "{refused}");
    assert_eq!(
        query(&mut dedup, "pages", thousand(calls)).await,
        [false; 1000]
    );
    // Some keys of a batch can hit a place without room, even if most of the batch would fit.
    assert!(
        calls * 1000 + 1000 > layers.max_capacity * 9 / 10,
        "{calls}"
    );
    refuses(&mut dedup, "pages", calls, 1000).await;
    let filter = get(&mut filters, "pages").await;
    assert_eq!(filter.memory_bytes, layers.max_memory_bytes);
    assert!(filter.memory_bytes <= BOUND);
    assert!(filter.predicted_false_positive_rate <= 1e-9);
    stop(server).await;
}

#[tokio::test]
async fn a_filter_that_rejects_adds_none_of_a_refused_batch() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    let asked = scaling(OnFull::Reject, 0, 0);
    let made = create(&mut filters, "pages", asked.clone()).await.unwrap();
    assert_eq!(made.spec.unwrap().kind, asked.kind);
    let layers = made.layers.unwrap();
    assert_eq!((layers.layers, layers.fits_budget), (1, Some(true)));
    assert_eq!(layers.max_memory_bytes, made.memory_bytes);
    assert!(layers.max_capacity >= CAPACITY);

    let (calls, refused) = fill(&mut dedup, "pages", 1000).await;
    assert_eq!(calls, CAPACITY / 1000);
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let says = "its scaling.on_full says REJECT";
    assert!(refused.message().contains(says), "{refused}");
    let seen = query(&mut dedup, "pages", batch(calls, 1000)).await;
    assert_eq!(seen, [false; 1000]);
    refuses(&mut dedup, "pages", calls, 1000).await;
    let filter = get(&mut filters, "pages").await;
    assert_eq!(filter.layers, Some(layers));
    assert!(filter.predicted_false_positive_rate <= 1e-9 * 1.01);
    stop(server).await;
}

#[tokio::test]
async fn a_filter_that_degrades_takes_keys_and_says_that_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    let asked = scaling(OnFull::Degrade, 0, 0);
    let made = create(&mut filters, "pages", asked.clone()).await.unwrap();
    assert_eq!(made.spec.unwrap().kind, asked.kind);
    for number in 0..6 {
        let answer = query_and_add(&mut dedup, "pages", thousand(number)).await;
        answer.unwrap();
        let seen = query(&mut dedup, "pages", thousand(number)).await;
        assert_eq!(seen, [true; 1000], "{number}");
    }
    let filter = get(&mut filters, "pages").await;
    assert_eq!(filter.is_full, Some(true));
    assert!(filter.predicted_false_positive_rate > 1e-9);
    assert_eq!(filter.memory_bytes, made.memory_bytes);
    assert_eq!(filter.layers.unwrap().layers, 1);
    stop(server).await;
}

/// Without a bound of its own, a filter grows until the server has no more memory for it. The
/// answer to its creation says so.
#[tokio::test]
async fn the_budget_of_the_server_ends_the_growth() {
    const BUDGET: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        capacity: 1000,
        max_memory: BUDGET.to_string().parse().unwrap(),
        ..config(dir.path())
    };
    let server = start(config).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    let asked = scaling(OnFull::Scale, 0, 0);
    let made = create(&mut filters, "pages", asked).await.unwrap();
    let layers = made.layers.unwrap();
    assert_eq!(layers.fits_budget, Some(false));
    assert!(layers.max_memory_bytes > BUDGET);
    let (calls, refused) = fill(&mut dedup, "pages", 1000).await;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("(--max-memory)"), "{refused}");
    refuses(&mut dedup, "pages", calls, 1000).await;
    let filter = get(&mut filters, "pages").await;
    assert!(filter.memory_bytes > made.memory_bytes && filter.memory_bytes <= BUDGET);
    assert!(filter.predicted_false_positive_rate <= 1e-9);
    stop(server).await;
}

#[tokio::test]
async fn what_no_filter_can_do_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let mut filters = filters(&server).await;
    let scale = || scaling(OnFull::Scale, 0, 0);
    let unknown = Scaling {
        on_full: 4,
        ..Scaling::default()
    };
    for (spec, says) in [
        (
            scaling(OnFull::Reject, 3, 0),
            "spec.scaling.growth is 3 and scaling.on_full is reject",
        ),
        (
            scaling(OnFull::Degrade, 0, 1 << 20),
            "spec.scaling.max_memory_bytes is 1048576 and scaling.on_full is degrade",
        ),
        (
            scaling(OnFull::Scale, 1, 0),
            "spec.scaling.growth is 1; it must be 2 to 16",
        ),
        (
            scaling(OnFull::Scale, 0, 64),
            "spec.scaling.max_memory_bytes is 64; the first layer takes",
        ),
        (
            FilterSpec {
                kind: Some(Kind::Scaling(unknown)),
                ..scale()
            },
            "spec.scaling.on_full is 4; it must be ON_FULL_SCALE",
        ),
        (
            FilterSpec {
                bit_count: 1 << 20,
                ..scale()
            },
            "bit_count and hash_count are those of each layer",
        ),
        (
            FilterSpec {
                layout: Layout::Classic.into(),
                ..scale()
            },
            "a filter of the kind scaling has the layout blocked",
        ),
        (
            FilterSpec {
                false_positive_rate: 0.6,
                ..scale()
            },
            "spec.false_positive_rate is 6e-1; for one of the kind scaling it must be 1e-12 to 0.5",
        ),
    ] {
        let refused = create(&mut filters, "no", spec).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    for (other, on_full) in [
        (OnFull::Scale, OnFull::Reject),
        (OnFull::Reject, OnFull::Scale),
    ] {
        let name = on_full.as_str_name();
        create(&mut filters, name, scaling(on_full, 0, 0))
            .await
            .unwrap();
        let refused = create(&mut filters, name, scaling(other, 0, 0)).await;
        assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists);
    }
    stop(server).await;
}
