//! Single calls that go together: each has its own answer, its own error, and its own end.

use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use seenset_client::Error;
use tokio::{
    runtime::Runtime,
    task::{JoinSet, LocalSet},
    time::{sleep, timeout},
};
use tonic::Code;

use seenset_fake::Service;

#[tokio::test]
async fn callers_go_together_and_each_has_its_own_answer() {
    let service = Service::start().await;
    let client = service.client().await.filter("f").coalescing();
    let mut callers = JoinSet::new();
    for number in 0..600 {
        let client = client.clone();
        // Three callers for each key.
        let key = format!("key {}", number % 200);
        callers.spawn(async move { (number % 200, client.query_and_add(&key).await.unwrap()) });
    }
    let answers = callers.join_all().await;
    for key in 0..200 {
        let new = |&&(number, seen): &&(i32, bool)| number == key && !seen;
        assert_eq!(answers.iter().filter(new).count(), 1, "key {key}");
    }
    assert!(service.state.contains("f", "key 7"));
    let batches = service.state.calls.load(SeqCst);
    assert!((1..60).contains(&batches), "{batches} batches");
}

/// This holds even if only few callers wake at a time, as in a `LocalSet`.
#[tokio::test]
async fn who_was_answered_together_goes_together_again() {
    let service = Service::start().await;
    let client = service.client().await.coalescing();
    let callers = LocalSet::new();
    for caller in 0..600 {
        let client = client.clone();
        callers.spawn_local(async move {
            for call in 0..20 {
                let key = format!("{caller} {call}");
                assert!(!client.query_and_add(&key).await.unwrap());
            }
        });
    }
    callers.await;
    let batches = service.state.calls.load(SeqCst);
    assert!(batches <= 90, "{batches} batches");
}

#[tokio::test]
async fn a_caller_alone_does_not_wait_for_others() {
    let service = Service::start().await;
    let client = service.client().await.coalescing();
    for round in 1..=20 {
        assert!(!client.query_and_add(&format!("{round}")).await.unwrap());
        assert_eq!(service.state.calls.load(SeqCst), round);
    }
}

#[tokio::test]
async fn a_refused_key_is_its_own_callers_error() {
    let service = Service::start().await;
    let client = service.client().await.coalescing();
    let mut callers = JoinSet::new();
    for number in 0..100 {
        let client = client.clone();
        callers.spawn(async move {
            let refused = number % 40 == 13;
            let key = if refused {
                "refuse me"
            } else {
                &format!("{number}")
            };
            match client.query_and_add(key).await {
                Ok(seen) => assert!(!refused && !seen, "{number}"),
                Err(error) => {
                    assert!(refused, "{number}: {error}");
                    assert_eq!(error.code(), Some(Code::InvalidArgument));
                    assert!(error.to_string().contains("refuse me"), "{error}");
                }
            }
        });
    }
    callers.join_all().await;
    assert_eq!(service.state.key_count(), 97);
    // The client notices that the stream ended with the first of them.
    assert!(client.query_and_add("5").await.unwrap());
}

/// A full disk is not the fault of one key, and asking for each key by itself does not help.
#[tokio::test]
async fn a_batch_that_is_not_refused_for_a_key_is_not_asked_for_in_parts() {
    let service = Service::start().await;
    let client = service.client().await.coalescing();
    let mut callers = JoinSet::new();
    for _ in 0..600 {
        let client = client.clone();
        callers.spawn(async move { client.query_and_add("no room").await.unwrap_err().code() });
    }
    for code in callers.join_all().await {
        assert_eq!(code, Some(Code::ResourceExhausted));
    }
    let batches = service.state.calls.load(SeqCst);
    assert!(batches < 60, "{batches} batches");
}

#[tokio::test]
async fn what_is_behind_a_refused_batch_is_sent_again() {
    let service = Service::start().await;
    // The server answers nothing before both batches have come.
    service.state.hold.store(2, SeqCst);
    let client = service.client().await.coalescing();
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.query_and_add("refuse me").await }
    });
    sleep(Duration::from_millis(20)).await;
    assert!(!client.query_and_add("behind").await.unwrap());
    let error = first.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert_eq!(service.state.most_held.load(SeqCst), 2);
}

#[tokio::test]
async fn callers_whose_answers_were_lost_get_them_again() {
    let service = Service::start().await;
    let client = service.client().await.coalescing();
    assert!(!client.query_and_add("before").await.unwrap());
    for round in 0..5 {
        service.state.lose_reply.store(1, SeqCst);
        let mut callers = JoinSet::new();
        for number in 0..100 {
            let client = client.clone();
            // Two callers for each key.
            let key = format!("{round} {}", number % 50);
            callers.spawn(async move { client.query_and_add(&key).await.unwrap() });
        }
        let new = callers.join_all().await.into_iter().filter(|seen| !seen);
        assert_eq!(new.count(), 50);
        assert_eq!(service.state.lose_reply.load(SeqCst), 0);
    }
    assert!(client.query_and_add("before").await.unwrap());
}

#[tokio::test]
async fn callers_are_told_when_the_server_does_not_come_back() {
    let mut service = Service::start().await;
    let client = service.client().await;
    let client = client
        .with_deadline(Duration::from_millis(300))
        .coalescing();
    assert!(!client.query_and_add("before").await.unwrap());
    service.close().await;
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let client = client.clone();
        callers.spawn(async move { client.query_and_add(&format!("{number}")).await });
    }
    for answer in callers.join_all().await {
        answer.unwrap_err();
    }
    service.open().await;
    assert!(client.query_and_add("before").await.unwrap());
}

#[tokio::test]
async fn a_call_that_is_given_up_before_it_is_sent_marks_nothing() {
    let service = Service::start().await;
    // The server answers no batch before more batches have come than can be in flight.
    service.state.hold.store(17, SeqCst);
    let client = service.client().await.coalescing();
    let mut callers = JoinSet::new();
    for batch in 1..=16 {
        let client = client.clone();
        callers.spawn(async move { client.query_and_add(&format!("{batch}")).await.unwrap() });
        // Two are sent at once, and each of the others although none of these is answered.
        let sent = async {
            while service.state.most_held.load(SeqCst) < batch {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(10), sent).await.expect("sent");
    }
    let given_up = client.query_and_add("given up");
    assert!(timeout(Duration::from_millis(20), given_up).await.is_err());
    assert_eq!(callers.join_all().await, [false; 16]);
    assert!(!client.query_and_add("after it").await.unwrap());
    assert!(!service.state.contains("", "given up"));
}

/// The stream ends with that answer, while none of its batches is in flight.
#[tokio::test]
async fn an_answer_that_nobody_asked_for_leaves_no_caller_waiting() {
    let service = Service::start().await;
    service.state.unasked.store(1, SeqCst);
    let client = service.client().await.coalescing();
    assert!(!client.query_and_add("before").await.unwrap());
    sleep(Duration::from_millis(50)).await;
    let after = client.query_and_add("after");
    let answer = timeout(Duration::from_secs(10), after).await;
    assert!(!answer.expect("an answer").unwrap());
    assert_eq!(service.state.unasked.load(SeqCst), 0);
}

/// The callers can live on another runtime than the task that sends their keys.
#[test]
fn callers_are_told_when_the_runtime_is_gone() {
    let runtime = Runtime::new().unwrap();
    let (service, client) = runtime.block_on(async {
        let service = Service::start().await;
        let client = service.client().await.coalescing();
        assert!(!client.query_and_add("before").await.unwrap());
        service.state.hang.store(1, SeqCst);
        (service, client)
    });
    let callers = Runtime::new().unwrap();
    let waiting = callers.spawn({
        let client = client.clone();
        async move { client.query_and_add("while it ends").await }
    });
    let begun = Instant::now();
    while service.state.calls.load(SeqCst) < 2 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "nothing was sent"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(runtime);
    for answer in [
        callers.block_on(waiting).unwrap(),
        callers.block_on(client.query_and_add("after it")),
    ] {
        assert!(matches!(answer, Err(Error::StreamClosed)), "{answer:?}");
    }
}

#[tokio::test]
async fn keys_of_any_length_and_number_are_answered() {
    let service = Service::start().await;
    let client = service.client().await.coalescing();
    let mut callers = JoinSet::new();
    for number in 0..3000_usize {
        let client = client.clone();
        let bytes = if number % 100 == 0 { 300_000 } else { number };
        callers.spawn(async move {
            let key = format!("{number} {}", "k".repeat(bytes));
            client.query_and_add(&key).await.unwrap()
        });
    }
    assert!(callers.join_all().await.iter().all(|seen| !seen));
    assert_eq!(service.state.key_count(), 3000);
}
