//! Repeated calls, and their result: the answer that the first attempt earned.

use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use seenset_client::{Client, Error, Options};
use tonic::Code;

use seenset_fake::Service;

#[tokio::test]
async fn what_is_safe_is_repeated_while_the_server_is_unavailable() {
    let service = Service::start().await;
    let client = service.client().await;
    let unavailable = &service.state.unavailable;

    unavailable.store(2, SeqCst);
    client.add("a").await.unwrap();
    assert_eq!(service.calls(), 3);

    unavailable.store(2, SeqCst);
    assert!(client.query("a").await.unwrap());
    assert_eq!(service.calls(), 6);

    unavailable.store(1, SeqCst);
    client.add_batch(["b", "c"]).await.unwrap();
    unavailable.store(1, SeqCst);
    let seen = client.query_batch(["b", "x", "c"]).await.unwrap();
    assert_eq!(seen, [true, false, true]);
    assert_eq!(service.calls(), 10);
}

#[tokio::test]
async fn query_and_add_is_repeated_while_the_server_is_unavailable_and_a_store_is_not() {
    let service = Service::start().await;
    let client = service.client().await;
    let unavailable = &service.state.unavailable;

    unavailable.store(2, SeqCst);
    assert!(!client.query_and_add("a").await.unwrap());
    unavailable.store(1, SeqCst);
    let seen = client.query_and_add_batch(["a", "b"]).await.unwrap();
    assert_eq!(seen, [true, false]);
    assert_eq!(service.calls(), 5);

    unavailable.store(1, SeqCst);
    let error = client.store("").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(service.calls(), 6);
}

#[tokio::test]
async fn query_and_add_whose_answer_was_lost_gets_it_again() {
    let service = Service::start().await;
    let client = service.client().await;

    service.state.lose_reply.store(1, SeqCst);
    assert!(!client.query_and_add("a").await.unwrap());
    assert_eq!(service.calls(), 2);
    // Another call has another id.
    assert!(client.query_and_add("a").await.unwrap());

    service.state.lose_reply.store(2, SeqCst);
    let seen = client.query_and_add_batch(["a", "b", "c", "b"]).await;
    assert_eq!(seen.unwrap(), [true, false, false, true]);
    assert_eq!(service.calls(), 6);
}

#[tokio::test]
async fn a_store_is_never_repeated_after_it_may_have_been_sent() {
    let service = Service::start().await;
    let client = service.client().await;
    service.state.lose_reply.store(1, SeqCst);
    let error = client.store("").await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert!(!error.changed_nothing());
    assert_eq!(service.calls(), 1);

    // The connection comes back by itself.
    assert!(!client.query_and_add("a").await.unwrap());
}

#[tokio::test]
async fn an_add_whose_answer_was_lost_is_repeated() {
    let service = Service::start().await;
    let client = service.client().await;
    service.state.lose_reply.store(1, SeqCst);
    client.add_batch(["a", "b"]).await.unwrap();
    assert_eq!(service.calls(), 2);

    service.state.lose_reply.store(1, SeqCst);
    assert!(client.query("a").await.unwrap());
    assert_eq!(service.calls(), 4);
}

#[tokio::test]
async fn a_remove_whose_answer_was_lost_has_the_answer_of_the_first_try() {
    let service = Service::start().await;
    let client = service.client().await;
    client.add_batch(["a", "b"]).await.unwrap();
    service.state.lose_reply.store(1, SeqCst);
    assert!(client.remove("a").await.unwrap());
    assert!(!client.remove("a").await.unwrap());
    service.state.lose_reply.store(1, SeqCst);
    assert_eq!(
        client.remove_batch(["a", "b"]).await.unwrap(),
        [false, true]
    );
    assert_eq!(service.state.key_count(), 0);
}

#[tokio::test]
async fn query_and_add_is_repeated_while_no_connection_can_be_made() {
    let mut service = Service::start().await;
    let client = service.client().await;
    assert!(!client.query_and_add("a").await.unwrap());
    service.close().await;
    // The client has to find out that the connection is gone, or it may try to use it.
    tokio::time::sleep(Duration::from_millis(100)).await;

    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.query_and_add("b").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asking.is_finished());
    service.open().await;
    assert!(!asking.await.unwrap().unwrap());
    assert_eq!(service.calls(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let mut service = Service::start().await;
    service.close().await;
    let options = Options {
        deadline: Duration::from_millis(500),
        first_pause: Duration::from_millis(10),
        ..Options::default()
    };
    let address = service.address.to_string();
    let error = Client::connect_with(&address, options).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.changed_nothing());
    assert!(message.contains(&address), "{message}");
    assert!(message.contains("refused"), "{message}");
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_its_deadline() {
    let service = Service::start().await;
    let client = service.client().await;
    let client = client.with_deadline(Duration::from_millis(200));

    service.state.hang.store(2, SeqCst);
    let before = Instant::now();
    let error = client.query("a").await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    let error = client.query_and_add_batch(["a"]).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    assert!(before.elapsed() < Duration::from_secs(2));
    assert_eq!(service.calls(), 2);
}

#[tokio::test]
async fn what_the_server_refuses_is_told_and_not_repeated() {
    let service = Service::start().await;
    let client = service.client().await;
    let error = client.add("refuse me").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert!(error.changed_nothing());
    assert_eq!(
        error.to_string(),
        "Add was refused: keys: refuse me (InvalidArgument)"
    );
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn filters_are_kept_apart() {
    let service = Service::start().await;
    let client = service.client().await;
    client.filter("x").add("a").await.unwrap();
    client.filter("x").add_batch(["b"]).await.unwrap();
    assert!(!client.query("a").await.unwrap());
    let seen = client.filter("x").query_batch(["a", "b"]).await.unwrap();
    assert_eq!(seen, [true, true]);
    assert!(client.filter("x").query_and_add("a").await.unwrap());
}

#[tokio::test]
async fn all_pages_of_filters_are_fetched_and_each_is_retried() {
    let service = Service::start().await;
    let client = service.client().await;
    service.state.unavailable.store(1, SeqCst);
    let filters = client.list_filters().await.unwrap();
    let names: Vec<_> = filters.iter().map(|filter| filter.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(service.calls(), 4);
}

#[tokio::test]
async fn health_is_told() {
    let service = Service::start().await;
    let client = service.client().await;
    assert!(client.is_serving("").await.unwrap());
    let error = client.is_serving("no.such.Service").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound));
}
