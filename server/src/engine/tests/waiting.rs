//! Calls wait without blocking the thread that serves other calls.

use std::{pin::Pin, thread, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};

use super::*;
use crate::engine::{Action, filter::Filter};

/// Returns an engine with filters of these names.
async fn with_filters(path: &std::path::Path, filters: &[(&str, SpecRequest)]) -> Engine {
    // No answer waits for a log.
    let engine = engine_with(
        path,
        Limits::MAX_FILTERS,
        Durability::Snapshot,
        Settings::SEGMENT_BYTES,
    );
    engine.recover(None).await.unwrap();
    for (name, spec) in filters {
        engine.create_filter(name, spec.clone()).await.unwrap();
    }
    engine
}

fn counting() -> SpecRequest {
    SpecRequest {
        kind: Kind::Counting,
        ..small()
    }
}

fn call<'a>(filter: &'a str, request_id: &'a str) -> Call<'a> {
    Call {
        request_id,
        ..filter.into()
    }
}

fn found(engine: &Engine, name: &str) -> Arc<Filter> {
    find(engine, name).unwrap()
}

/// Returns the answer of a call that does not wait.
fn told<T>(call: impl Future<Output = Result<T, EngineError>>) -> T {
    call.now_or_never().expect("it waits").unwrap()
}

fn waits<T>(call: &mut Pin<Box<impl Future<Output = T>>>) {
    assert!(call.as_mut().now_or_never().is_none(), "it does not wait");
}

/// A write is in progress for long, as with a heavy batch.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_store_that_waits_for_a_heavy_batch() {
    let dir = tempfile::tempdir().unwrap();
    let filters = [("urls", small()), ("other", small())];
    let engine = with_filters(dir.path(), &filters).await;
    told(engine.add("urls", "a"));
    let (storing, copying) = {
        let _heavy = engine.data.barrier.pass().unwrap();
        let begun: [BoxFuture<'static, ()>; 2] = [
            Box::pin({
                let engine = engine.clone();
                async move { drop(engine.store("urls").await.unwrap()) }
            }),
            Box::pin({
                let engine = engine.clone();
                async move { drop(engine.copy_filter("urls", "copy").await.unwrap()) }
            }),
        ];
        let [storing, copying] = begun.map(tokio::spawn);
        thread::sleep(Duration::from_millis(50));
        assert!(!storing.is_finished() && !copying.is_finished());
        for name in ["urls", "other"] {
            assert!(!told(engine.query_and_add(name, "b")));
            assert!(told(engine.query(name, "b")));
        }
        (storing, copying)
    };
    storing.await.unwrap();
    copying.await.unwrap();
}

#[tokio::test]
async fn a_call_waits_for_another_of_its_id_without_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let engine = with_filters(dir.path(), &[("urls", small())]).await;
    let (data, urls) = (&engine.data, found(&engine, "urls"));
    let id = urls.session_id("id", Action::QueryAndAdd).unwrap();
    let heavy = told(data.requests.begin(urls.id(), id));
    let mut single = Box::pin(engine.query_and_add(call("urls", "id"), "a"));
    waits(&mut single);
    assert!(!told(engine.query_and_add(call("urls", "other"), "b")));
    drop(heavy);
    assert!(!single.await.unwrap());
}

/// The call has acquired what it needs for one filter, and now needs it for two.
#[tokio::test]
async fn a_call_that_waits_while_a_rebuild_begins_adds_its_key_to_both_filters() {
    let dir = tempfile::tempdir().unwrap();
    let engine = with_filters(dir.path(), &[("urls", small())]).await;
    let (data, urls) = (&engine.data, found(&engine, "urls"));
    let id = urls.session_id("id", Action::QueryAndAdd).unwrap();
    let heavy = told(data.requests.begin(urls.id(), id));
    let mut single = Box::pin(engine.query_and_add(call("urls", "id"), "a"));
    waits(&mut single);
    engine.start_rebuild("urls", "new", None).await.unwrap();
    drop(heavy);
    assert!(!single.await.unwrap());
    for name in ["urls", "new"] {
        assert!(told(engine.query(name, "a")), "{name}");
    }
}

/// If a filter allows removals, calls run one by one while it is rebuilt.
#[tokio::test]
async fn a_call_waits_for_its_turn_in_a_rebuild_without_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let filters = [("urls", counting()), ("other", counting())];
    let engine = with_filters(dir.path(), &filters).await;
    engine.start_rebuild("urls", "new", None).await.unwrap();
    let view = engine.data.registry.now();
    let order = view.get("urls").unwrap().mirror().unwrap().order();
    let heavy = order.unwrap().lock_owned().await;
    let mut single = Box::pin(engine.add("urls", "a"));
    waits(&mut single);
    told(engine.add("other", "a"));
    drop(heavy);
    single.await.unwrap();
    assert!(told(engine.query("new", "a")));
    assert!(!told(engine.query("new", "b")));
}

#[tokio::test]
async fn a_call_waits_for_the_end_of_a_rebuild_without_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let filters = [("urls", small()), ("other", small())];
    let engine = with_filters(dir.path(), &filters).await;
    engine.start_rebuild("urls", "new", None).await.unwrap();
    for name in ["urls", "new"] {
        let filter = found(&engine, name);
        let held = filter.hold();
        let mut single = Box::pin(engine.query_and_add("urls", "a"));
        let mut own = Box::pin(engine.query_and_add(name, "c"));
        waits(&mut single);
        waits(&mut own);
        told(engine.add("other", name));
        assert!(!told(engine.query("urls", "b")));
        drop(held);
        single.await.unwrap();
        own.await.unwrap();
    }
}

/// A call needs the filter to itself to find out how much room is left. It has to wait while
/// another call has claimed some.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_has_to_wait_for_room_in_a_filter_goes_to_a_worker() {
    let dir = tempfile::tempdir().unwrap();
    let scaling = SpecRequest {
        kind: Kind::Scaling(OnFull::Reject),
        ..SpecRequest::new(50, 0.01)
    };
    let filters = [("urls", scaling), ("other", small())];
    let engine = with_filters(dir.path(), &filters).await;
    let urls = found(&engine, "urls");
    let claimed = urls.claim_room(1).expect("there is none");
    let mut key = 0;
    let mut single = loop {
        key += 1;
        assert!(key < 1000, "it is never asked what is left");
        let name = format!("key {key}");
        let mut single = Box::pin({
            let engine = engine.clone();
            async move { engine.query_and_add("urls", name).await }
        });
        match single.as_mut().now_or_never() {
            // A new key may be a false positive.
            Some(told) => drop(told.unwrap()),
            None => break single,
        }
    };
    thread::sleep(Duration::from_millis(20));
    waits(&mut single);
    told(engine.add("other", "a"));
    drop(claimed);
    // The filter can also be full.
    let told = single.await;
    let is_answer = matches!(told, Ok(_) | Err(EngineError::FilterFull { .. }));
    assert!(is_answer, "{told:?}");
}
