//! The stream form: order, window, and the information when it breaks.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use seenset_client::{Answered, Error};
use tokio::time::timeout;
use tonic::Code;

use seenset_fake::Service;

#[tokio::test]
async fn answers_come_in_order_with_their_tags() {
    let service = Service::start().await;
    let (mut sender, mut receiver) = service.client().await.filter("f").stream(4);
    let sending = tokio::spawn(async move {
        for page in 0..100_u32 {
            // A key of its own, and one that every page has.
            let keys = [format!("page {page}"), "shared".to_owned()];
            sender.send(keys, page).await.unwrap();
        }
    });
    for page in 0..100 {
        let answered = receiver.recv().await.unwrap().unwrap();
        let expected = Answered {
            tag: page,
            seen: vec![false, page > 0],
        };
        assert_eq!(answered, expected);
    }
    assert!(receiver.recv().await.is_none());
    sending.await.unwrap();
    assert_eq!(service.state.key_count(), 101);
    assert!(service.state.contains("f", "shared"));
}

#[tokio::test]
async fn the_window_is_filled_and_not_exceeded() {
    let service = Service::start().await;
    service.state.hold.store(1000, SeqCst);
    let (mut sender, mut receiver) = service.client().await.stream(4);
    for page in 0..4 {
        sender.send([format!("{page}")], page).await.unwrap();
    }
    let fifth = sender.send(["4"], 4);
    assert!(timeout(Duration::from_millis(50), fifth).await.is_err());
    // An answer that was taken makes room for one batch.
    assert_eq!(receiver.recv().await.unwrap().unwrap().tag, 0);
    sender.send(["5"], 5).await.unwrap();
    drop(sender);
    for tag in [1, 2, 3, 5] {
        assert_eq!(receiver.recv().await.unwrap().unwrap().tag, tag);
    }
    assert!(receiver.recv().await.is_none());
    assert_eq!(service.state.most_held.load(SeqCst), 4);
    // The batch whose sending was cancelled was not sent.
    assert!(!service.state.contains("", "4"));
}

#[tokio::test]
async fn a_refused_batch_ends_the_stream_after_those_before_it() {
    let service = Service::start().await;
    service.state.hold.store(4, SeqCst);
    let (mut sender, mut receiver) = service.client().await.stream(8);
    for (tag, key) in ["a", "b", "refuse me", "c"].into_iter().enumerate() {
        sender.send([key], tag).await.unwrap();
    }
    assert_eq!(receiver.recv().await.unwrap().unwrap().tag, 0);
    assert_eq!(receiver.recv().await.unwrap().unwrap().tag, 1);
    let broken = receiver.recv().await.unwrap().unwrap_err();
    assert_eq!(broken.error.code(), Some(Code::InvalidArgument));
    assert!(broken.error.changed_nothing());
    assert_eq!(broken.unanswered, [2, 3]);
    assert!(receiver.recv().await.is_none());
    assert!(matches!(
        sender.send(["d"], 4).await,
        Err(Error::StreamClosed)
    ));
    assert!(!service.state.contains("", "c"));
}

#[tokio::test]
async fn batches_whose_answers_were_lost_get_them_again() {
    let service = Service::start().await;
    service.state.hold.store(3, SeqCst);
    let (mut sender, mut receiver) = service.client().await.stream(8);
    // The first of them is applied before the connection breaks.
    service.state.lose_reply.store(1, SeqCst);
    for (tag, keys) in [["a", "x"], ["b", "a"], ["c", "x"]].into_iter().enumerate() {
        sender.send(keys, tag).await.unwrap();
    }
    for (tag, seen) in [[false, false], [false, true], [false, true]]
        .into_iter()
        .enumerate()
    {
        let answered = receiver.recv().await.unwrap().unwrap();
        assert_eq!((answered.tag, answered.seen), (tag, seen.to_vec()));
    }
    assert_eq!(service.calls(), 4);

    // A stream without work comes back when it has work.
    service.state.hold.store(0, SeqCst);
    service.state.cut();
    sender.send(["d"], 3).await.unwrap();
    assert_eq!(receiver.recv().await.unwrap().unwrap().seen, [false]);
    // A stream comes back when its server is starting.
    service.state.unavailable.store(2, SeqCst);
    sender.send(["d"], 4).await.unwrap();
    drop(sender);
    assert_eq!(receiver.recv().await.unwrap().unwrap().seen, [true]);
    assert!(receiver.recv().await.is_none());
    assert_eq!(service.calls(), 8);
}

/// Breaks in the middle of many batches: some applied, some answered, some on their way.
#[tokio::test]
async fn a_stream_that_breaks_again_and_again_loses_and_repeats_nothing() {
    let service = Service::start().await;
    let (mut sender, mut receiver) = service.client().await.stream(16);
    let sending = tokio::spawn(async move {
        for page in 0..2000_u32 {
            let key = format!("{page}");
            sender.send([&key, "shared", &key], page).await.unwrap();
        }
    });
    for page in 0..2000 {
        if page % 131 == 77 {
            service.state.cut();
        }
        if page % 211 == 99 {
            service.state.lose_reply.store(1, SeqCst);
        }
        let answered = receiver.recv().await.unwrap().unwrap();
        assert_eq!(answered.tag, page);
        assert_eq!(answered.seen, [false, page > 0, true], "page {page}");
    }
    assert!(receiver.recv().await.is_none());
    sending.await.unwrap();
    assert_eq!(service.state.key_count(), 2001);
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_again_names_what_was_in_flight() {
    let mut service = Service::start().await;
    service.state.hang.store(1, SeqCst);
    let client = service.client().await;
    let client = client.with_deadline(Duration::from_millis(400));
    let (mut sender, mut receiver) = client.stream(2);
    for (tag, key) in ["a", "b"].into_iter().enumerate() {
        sender.send([key], tag).await.unwrap();
    }
    let waiting = tokio::spawn(async move { sender.send(["c"], 2).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    service.close().await;
    let broken = receiver.recv().await.unwrap().unwrap_err();
    // The first attempt was sent.
    assert!(matches!(broken.error, Error::Broken { .. }), "{broken:?}");
    assert!(!broken.error.changed_nothing());
    assert_eq!(broken.unanswered, [0, 1]);
    assert!(receiver.recv().await.is_none());
    // A sender that waits for room gets an error.
    assert!(matches!(waiting.await.unwrap(), Err(Error::StreamClosed)));
}

#[tokio::test]
async fn each_answer_has_the_deadline_and_the_stream_has_none() {
    let service = Service::start().await;
    let client = service.client().await;
    let client = client.with_deadline(Duration::from_millis(400));
    let (mut sender, mut receiver) = client.stream(1);
    for _ in 0..3 {
        sender.send(["a"], ()).await.unwrap();
        receiver.recv().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    service.state.hang.store(1, SeqCst);
    sender.send(["a"], ()).await.unwrap();
    let broken = receiver.recv().await.unwrap().unwrap_err();
    assert!(matches!(broken.error, Error::Deadline { .. }), "{broken:?}");
}

#[tokio::test]
async fn a_stream_opens_once_a_connection_can_be_made() {
    let mut service = Service::start().await;
    let client = service.client().await;
    service.close().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (mut sender, mut receiver) = client.stream(8);
    sender.send(["a"], 'a').await.unwrap();
    sender.send(["b"], 'b').await.unwrap();
    drop(sender);
    tokio::time::sleep(Duration::from_millis(200)).await;
    service.open().await;
    assert_eq!(receiver.recv().await.unwrap().unwrap().tag, 'a');
    assert_eq!(receiver.recv().await.unwrap().unwrap().tag, 'b');
    assert!(receiver.recv().await.is_none());
    assert_eq!(service.calls(), 2);
}

#[tokio::test]
async fn a_receiver_that_is_gone_stops_the_sender() {
    let service = Service::start().await;
    let (mut sender, receiver) = service.client().await.stream(2);
    sender.send(["a"], ()).await.unwrap();
    drop(receiver);
    let outcome = timeout(Duration::from_secs(5), async {
        while sender.send(["b"], ()).await.is_ok() {}
    });
    outcome.await.unwrap();
}

/// The second batch may have been applied before the first was answered.
#[tokio::test]
async fn a_refusal_after_a_break_is_no_comfort_though_others_were_answered() {
    let service = Service::start().await;
    service.state.hold.store(2, SeqCst);
    service.state.lose_reply_of_call.store(1, SeqCst);
    let (mut sender, mut receiver) = service.client().await.stream(2);
    sender.send(["a"], 1).await.unwrap();
    sender.send(["refuse me"], 2).await.unwrap();
    let answered = receiver.recv().await.unwrap().unwrap();
    assert_eq!((answered.tag, answered.seen), (1, vec![false]));
    let broken = receiver.recv().await.unwrap().unwrap_err();
    assert_eq!(broken.unanswered, [2]);
    assert!(!broken.error.changed_nothing(), "{broken:?}");
}
