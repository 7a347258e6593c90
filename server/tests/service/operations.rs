//! Operations on whole filters.

use seenset_proto::v1::{
    AddBatchRequest, CopyFilterRequest, CreateFilterRequest, DeleteFilterRequest,
    FinishRebuildRequest, GetFilterRequest, MergeFiltersRequest, QueryAndAddBatchRequest,
    QueryBatchRequest, RenameFilterRequest, ResetFilterRequest, StartRebuildRequest,
};
use tonic::Code;

use crate::{
    bad_input::assert_refused,
    common::{config, dedup, filters, spec, start, stop},
    key, keys,
};

fn rename(name: &str, new_name: &str) -> RenameFilterRequest {
    RenameFilterRequest {
        name: key(name),
        new_name: key(new_name),
    }
}

fn create(name: &str) -> CreateFilterRequest {
    CreateFilterRequest {
        name: key(name),
        spec: Some(spec(1000, 1e-9)),
    }
}

fn query(name: &str, some: &[&str]) -> QueryBatchRequest {
    QueryBatchRequest {
        filter: key(name),
        keys: keys(some),
        ..Default::default()
    }
}

fn add(name: &str, some: &[&str]) -> AddBatchRequest {
    AddBatchRequest {
        filter: key(name),
        keys: keys(some),
        ..Default::default()
    }
}

/// Returns the names of the snapshot files, without their numbers.
fn snapshots(directory: &std::path::Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let name = |file: String| Some(file.split_once(".snapshot.")?.0.to_owned());
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[tokio::test]
async fn a_filter_is_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    admin.create_filter(create("urls")).await.unwrap();
    let request = QueryAndAddBatchRequest {
        filter: key("urls"),
        keys: keys(&["a", "b"]),
        request_id: key("first"),
        ..Default::default()
    };
    let mut again = request.clone();
    client.query_and_add_batch(request).await.unwrap();

    let renamed = admin.rename_filter(rename("urls", "pages")).await.unwrap();
    let filter = renamed.into_inner().filter.unwrap();
    assert_eq!((&*filter.name, filter.keys_added), ("pages", 2));
    assert_eq!(snapshots(dir.path()), ["default", "pages"]);
    let seen = client.query_batch(query("pages", &["a", "c"])).await;
    assert_eq!(seen.unwrap().into_inner().seen, [true, false]);
    let gone = client.query_batch(query("urls", &["a"])).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    // A request keeps the keys that it has added first in this filter.
    again.filter = key("pages");
    let told = client.query_and_add_batch(again).await.unwrap();
    assert_eq!(told.into_inner().seen, [false, false]);

    // A client that got no answer repeats the call.
    admin.rename_filter(rename("urls", "pages")).await.unwrap();
    admin.rename_filter(rename("pages", "pages")).await.unwrap();
    // The retry fails if another filter now has the old name.
    admin.create_filter(create("urls")).await.unwrap();
    let taken = admin.rename_filter(rename("urls", "pages")).await;
    assert_eq!(taken.unwrap_err().code(), Code::AlreadyExists);
    let urls = DeleteFilterRequest { name: key("urls") };
    admin.delete_filter(urls).await.unwrap();
    let taken = admin.rename_filter(rename("pages", "default")).await;
    let words = &["\"default\"", "exists"];
    assert_refused("a name that is taken", taken, Code::AlreadyExists, words);
    let unknown = admin.rename_filter(rename("other", "more")).await;
    assert_refused("no filter", unknown, Code::NotFound, &["\"other\""]);
    let invalid = Code::InvalidArgument;
    for (name, new_name, field) in [
        ("", "x", "name:"),
        ("pages", "", "new_name:"),
        ("a b", "x", "name:"),
        ("pages", "../x", "new_name:"),
    ] {
        let refused = admin.rename_filter(rename(name, new_name)).await;
        assert_refused(new_name, refused, invalid, &[field, "1 to 128"]);
    }
    stop(server).await;

    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    let seen = client.query_batch(query("pages", &["a", "c"])).await;
    assert_eq!(seen.unwrap().into_inner().seen, [true, false]);
    let get = GetFilterRequest { name: key("urls") };
    let gone = admin.get_filter(get).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    stop(server).await;
}

#[tokio::test]
async fn a_filter_is_reset() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    admin.create_filter(create("urls")).await.unwrap();
    client.add_batch(add("urls", &["a"])).await.unwrap();
    let reset = |name: &str| ResetFilterRequest { name: key(name) };
    let filter = admin.reset_filter(reset("urls")).await.unwrap();
    let filter = filter.into_inner().filter.unwrap();
    assert_eq!((&*filter.name, filter.keys_added), ("urls", 0));
    client.add_batch(add("urls", &["b"])).await.unwrap();
    let unknown = admin.reset_filter(reset("other")).await;
    assert_refused("no filter", unknown, Code::NotFound, &["\"other\""]);
    for name in ["", "../x"] {
        let refused = admin.reset_filter(reset(name)).await;
        let words = &["name:", "1 to 128"];
        assert_refused(name, refused, Code::InvalidArgument, words);
    }
    stop(server).await;
    let server = start(config(dir.path())).await;
    let seen = dedup(&server)
        .await
        .query_batch(query("urls", &["a", "b"]))
        .await;
    assert_eq!(seen.unwrap().into_inner().seen, [false, true]);
    stop(server).await;
}

fn copy(name: &str, new_name: &str) -> CopyFilterRequest {
    CopyFilterRequest {
        name: key(name),
        new_name: key(new_name),
    }
}

#[tokio::test]
async fn a_filter_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    admin.create_filter(create("urls")).await.unwrap();
    client.add_batch(add("urls", &["a"])).await.unwrap();
    let filter = admin.copy_filter(copy("urls", "copy")).await.unwrap();
    let filter = filter.into_inner().filter.unwrap();
    assert_eq!((&*filter.name, filter.keys_added), ("copy", 1));
    client.add_batch(add("urls", &["b"])).await.unwrap();
    client.add_batch(add("copy", &["c"])).await.unwrap();
    let taken = admin.copy_filter(copy("urls", "default")).await;
    let words = &["\"default\"", "exists"];
    assert_refused("a name that is taken", taken, Code::AlreadyExists, words);
    let unknown = admin.copy_filter(copy("other", "more")).await;
    assert_refused("no filter", unknown, Code::NotFound, &["\"other\""]);
    for (name, new_name, field) in [("a b", "x", "name:"), ("urls", "", "new_name:")] {
        let refused = admin.copy_filter(copy(name, new_name)).await;
        let words = &[field, "1 to 128"];
        assert_refused(name, refused, Code::InvalidArgument, words);
    }
    stop(server).await;
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    for (name, expected) in [("urls", [true, true, false]), ("copy", [true, false, true])] {
        let seen = client.query_batch(query(name, &["a", "b", "c"])).await;
        assert_eq!(seen.unwrap().into_inner().seen, expected, "{name}");
    }
    stop(server).await;
}

fn merge(source: &str, target: &str) -> MergeFiltersRequest {
    MergeFiltersRequest {
        source: key(source),
        target: key(target),
    }
}

#[tokio::test]
async fn filters_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    admin.create_filter(create("urls")).await.unwrap();
    client.add_batch(add("urls", &["a"])).await.unwrap();
    admin.copy_filter(copy("urls", "copy")).await.unwrap();
    client.add_batch(add("urls", &["b"])).await.unwrap();
    client.add_batch(add("copy", &["c"])).await.unwrap();
    let filter = admin.merge_filters(merge("copy", "urls")).await.unwrap();
    let filter = filter.into_inner().filter.unwrap();
    assert_eq!((&*filter.name, filter.keys_added), ("urls", 3));
    assert_eq!(filter.version, filter.last_store_version);

    admin.create_filter(create("other")).await.unwrap();
    let refused = Code::FailedPrecondition;
    let secret = admin.merge_filters(merge("other", "urls")).await;
    let words = &["\"other\"", "\"urls\"", "differ in secret,"];
    assert_refused("another secret", secret, refused, words);
    let spec = admin.merge_filters(merge("default", "urls")).await;
    assert_refused("another spec", spec, refused, &["capacity", "bit_count"]);
    let itself = admin.merge_filters(merge("urls", "urls")).await;
    let words = &["target", "\"urls\"", "two filters"];
    assert_refused("itself", itself, Code::InvalidArgument, words);
    for (source, target, field) in [("", "urls", "source:"), ("urls", "a b", "target:")] {
        let refused = admin.merge_filters(merge(source, target)).await;
        let words = &[field, "1 to 128"];
        assert_refused(field, refused, Code::InvalidArgument, words);
    }
    for (source, target) in [("none", "urls"), ("urls", "none")] {
        let unknown = admin.merge_filters(merge(source, target)).await;
        assert_refused(source, unknown, Code::NotFound, &["\"none\""]);
    }
    stop(server).await;
    let server = start(config(dir.path())).await;
    let mut client = dedup(&server).await;
    for (name, expected) in [("urls", [true; 3]), ("copy", [true, false, true])] {
        let seen = client.query_batch(query(name, &["a", "b", "c"])).await;
        assert_eq!(seen.unwrap().into_inner().seen, expected, "{name}");
    }
    stop(server).await;
}

#[tokio::test]
async fn a_filter_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    admin.create_filter(create("urls")).await.unwrap();
    client.add_batch(add("urls", &["a"])).await.unwrap();
    let start_as = |new: &str, capacity: Option<u64>| StartRebuildRequest {
        name: key("urls"),
        new_name: key(new),
        spec: capacity.map(|capacity| spec(capacity, 1e-9)),
    };
    let finish = |new: &str| FinishRebuildRequest {
        name: key("urls"),
        new_name: key(new),
    };
    let started = admin.start_rebuild(start_as("new", Some(5000))).await;
    let started = started.unwrap().into_inner().filter.unwrap();
    assert_eq!((&*started.name, &*started.rebuilds), ("new", "urls"));
    client.add_batch(add("urls", &["b"])).await.unwrap();
    client.add_batch(add("new", &["c"])).await.unwrap();
    let refused = admin.start_rebuild(start_as("newer", None)).await;
    let words = ["\"urls\"", "\"new\"", "finish that"];
    assert_refused("twice", refused, Code::FailedPrecondition, &words);
    let refused = admin.finish_rebuild(finish("newer")).await;
    let words = ["\"urls\"", "\"newer\"", "not being rebuilt"];
    assert_refused("other", refused, Code::FailedPrecondition, &words);
    let refused = admin.start_rebuild(start_as("", None)).await;
    assert_refused("no name", refused, Code::InvalidArgument, &["new_name:"]);
    let refused = admin.start_rebuild(start_as("newer", Some(0))).await;
    assert_refused(
        "no keys",
        refused,
        Code::InvalidArgument,
        &["spec.capacity is 0"],
    );
    stop(server).await;

    let server = start(config(dir.path())).await;
    let (mut admin, mut client) = (filters(&server).await, dedup(&server).await);
    client.add_batch(add("urls", &["d"])).await.unwrap();
    let finished = admin.finish_rebuild(finish("new")).await.unwrap();
    let finished = finished.into_inner().filter.unwrap();
    assert_eq!((&*finished.name, &*finished.rebuilds), ("urls", ""));
    assert_eq!(finished.spec.unwrap().capacity, 5000);
    let seen = client
        .query_batch(query("urls", &["a", "b", "c", "d"]))
        .await;
    assert_eq!(seen.unwrap().into_inner().seen, [false, true, true, true]);
    stop(server).await;
}
