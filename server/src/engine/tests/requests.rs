//! A request that is repeated gets its first answer, per key, whatever happened in between.

use std::{sync::Barrier, thread};

use fastrand::Rng;

use super::{
    durability::{settings, start},
    *,
};
use crate::store::{
    Disk,
    simulated::{Fault, SimulatedDisk},
};

fn call<'a>(request_id: &'a str) -> Call<'a> {
    Call {
        filter: "urls",
        request_id,
        max_age: None,
        deadline: None,
    }
}

async fn engine(disk: &SimulatedDisk) -> Engine {
    let engine = start(disk, Durability::Always).await.unwrap();
    // So exact that no key is seen by accident.
    let exact = SpecRequest::new(40_000, 1e-9);
    engine.create_filter("urls", exact).await.unwrap();
    engine
}

/// Repeats the request: as it was, each key alone, and together with other keys.
async fn ask_again(engine: &Engine) {
    let batch = engine.query_and_add_batch(call("1"), vec!["a", "b", "old", "b"]);
    assert_eq!(batch.await.unwrap(), [false, false, true, true]);
    for (key, seen) in [("a", false), ("old", true), ("b", false)] {
        let again = engine.query_and_add(call("1"), key).await.unwrap();
        assert_eq!(again, seen, "{key}");
    }
    let regrouped = engine.query_and_add_batch(call("1"), vec!["old", "b"]);
    assert_eq!(regrouped.await.unwrap(), [true, false]);
    // All other requests see the keys.
    for id in ["", "2", "11"] {
        let others = engine.query_and_add_batch(call(id), vec!["a", "b", "old"]);
        assert_eq!(others.await.unwrap(), [true; 3], "{id}");
        assert!(engine.query_and_add(call(id), "a").await.unwrap(), "{id}");
    }
}

#[tokio::test]
async fn a_repeated_request_gets_its_first_answer_also_after_crashes_and_stores() {
    let disk = SimulatedDisk::default();
    let first = engine(&disk).await;
    assert!(!first.query_and_add(call("0"), "old").await.unwrap());
    let batch = first.query_and_add_batch(call("1"), vec!["a", "b", "old", "b"]);
    assert_eq!(batch.await.unwrap(), [false, false, true, true]);
    ask_again(&first).await;

    let mut disk = disk.cut(&mut Rng::with_seed(1));
    for round in 0..6 {
        let engine = engine(&disk).await;
        ask_again(&engine).await;
        // The log is cut, but the remembered requests must stay. A segment has 64 KiB.
        for batch in 0..40 {
            let keys: Vec<String> = (0..100).map(|i| format!("{round} {batch} {i}")).collect();
            engine.add_batch("urls", keys).await.unwrap();
        }
        if round % 2 == 0 {
            engine.store("").await.unwrap();
        } else {
            engine.store_changed().await;
        }
        ask_again(&engine).await;
        let segments = disk.names().unwrap().into_iter();
        assert!(segments.filter(|name| name.ends_with(".log")).count() <= 3);
        disk = disk.cut(&mut Rng::with_seed(round));
    }
}

/// An id that is reused for other keys is answered for these keys as any call is, because they can
/// be the rest of the same call that had not been carried out.
#[tokio::test]
async fn an_id_that_comes_with_other_keys_is_a_call_for_those() {
    let engine = engine(&SimulatedDisk::default()).await;
    assert!(!engine.query_and_add(call("1"), "a").await.unwrap());
    assert!(!engine.query_and_add(call("2"), "b").await.unwrap());
    assert!(engine.query_and_add(call("1"), "b").await.unwrap());
    assert!(!engine.query_and_add(call("1"), "c").await.unwrap());
    let seen = engine.query_and_add_batch(call("1"), vec!["a", "b", "c", "d"]);
    assert_eq!(seen.await.unwrap(), [false, true, false, false]);
    // In another filter the same id is another request.
    engine.create_filter("other", small()).await.unwrap();
    let other = Call {
        filter: "other",
        request_id: "1",
        max_age: None,
        deadline: None,
    };
    assert!(!engine.query_and_add(other, "a").await.unwrap());
    assert!(!engine.query_and_add(other, "a").await.unwrap());
    // An add has no answer to repeat.
    engine.add(call("3"), "e").await.unwrap();
    assert!(engine.query_and_add(call("3"), "e").await.unwrap());
}

/// An id with more keys than one call can have is refused, and nothing is done for it.
#[tokio::test]
async fn an_id_of_more_keys_than_a_call_may_have_is_refused() {
    let disk = SimulatedDisk::default();
    let mut settings = settings(Durability::Always);
    settings.requests.keys = 100_000;
    let limit = settings.limits.max_batch_keys;
    let engine = Engine::new(DataDirectory::on(Arc::new(disk)).unwrap(), settings);
    engine.recover(None).await.unwrap();
    let exact = SpecRequest::new(40_000, 1e-9);
    engine.create_filter("urls", exact).await.unwrap();
    let keys: Vec<String> = (0..limit).map(|number| number.to_string()).collect();
    for seen in [false, false] {
        let batch = engine.query_and_add_batch(call("1"), keys.clone());
        assert_eq!(batch.await.unwrap(), vec![seen; limit]);
    }
    assert!(!engine.query_and_add(call("1"), "one more").await.unwrap());
    let refused = [
        engine.query_and_add(call("1"), "another").await.err(),
        engine
            .query_and_add_batch(call("1"), vec!["another"])
            .await
            .err(),
    ];
    for error in refused {
        let text = error.unwrap().to_string();
        assert!(
            text.contains("request_id is used for many calls: 1001"),
            "{text}"
        );
        assert!(text.contains("at most 1000"), "{text}");
    }
    assert!(!engine.query("urls", "another").await.unwrap());
    // This does not affect other ids, or calls that need no first answer.
    engine.add(call("1"), "another").await.unwrap();
    assert!(engine.query_and_add(call("2"), "another").await.unwrap());
}

#[tokio::test]
async fn an_id_that_is_too_long_is_refused_by_name() {
    let engine = engine(&SimulatedDisk::default()).await;
    let long = "x".repeat(129);
    for message in [
        engine.add(call(&long), "a").await.unwrap_err().to_string(),
        engine
            .query_and_add_batch(call(&long), vec!["a"])
            .await
            .unwrap_err()
            .to_string(),
    ] {
        assert!(message.contains("request_id has 129 bytes"), "{message}");
        assert!(message.contains("at most 128"), "{message}");
    }
    assert!(!engine.query("urls", "a").await.unwrap());
}

/// The power is cut at any call, and the request is repeated. Its keys are added first by exactly
/// one caller that gets this answer, whether they were on the disk or not.
#[test]
fn a_request_whose_answer_a_power_cut_took_is_answered_after_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let ask = async |engine: &Engine| {
        let mut told = Vec::new();
        for id in ["1", "2", "3"] {
            let keys: Vec<String> = (0..3).map(|i| format!("{id} {i}")).collect();
            told.push(engine.query_and_add_batch(call(id), keys).await.ok());
            // A store can write the keys before the log does.
            let _ = engine.store("").await;
        }
        told
    };
    for seed in 0..8 {
        let disk = SimulatedDisk::default();
        runtime.block_on(async { ask(&engine(&disk).await).await });
        for call in 0..disk.calls() {
            let disk = SimulatedDisk::default();
            let case = format!("seed {seed}, call {call}");
            runtime.block_on(async {
                let before = engine(&disk).await;
                disk.fail(call.max(disk.calls()), 1, Fault::PowerCut);
                ask(&before).await;
                let found = disk.cut(&mut Rng::with_seed(seed ^ call));
                let told = ask(&engine(&found).await).await;
                let first: Vec<_> = (0..3).map(|_| Some(vec![false; 3])).collect();
                assert_eq!(told, first, "{case}");
            });
        }
    }
}

/// Every key in a snapshot is in the log too. Otherwise the keys would be found after a power cut,
/// but not the requests that added them first.
#[tokio::test]
async fn no_snapshot_is_ahead_of_the_log() {
    // No sync happens on its own.
    let rarely = Durability::Interval(std::time::Duration::from_secs(3600));
    for seed in 0..20 {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, rarely).await.unwrap();
        engine.create_filter("urls", small()).await.unwrap();
        assert!(!engine.query_and_add(call("1"), "a").await.unwrap());
        engine.store("").await.unwrap();
        let found = disk.cut(&mut Rng::with_seed(seed));
        let engine = start(&found, rarely).await.unwrap();
        assert!(engine.query("urls", "a").await.unwrap());
        assert!(!engine.query_and_add(call("1"), "a").await.unwrap());
    }
}

#[tokio::test]
async fn no_more_is_remembered_than_was_asked_for() {
    let disk = SimulatedDisk::default();
    let engine = engine(&disk).await;
    // `start` remembers 1,000 keys: two generations of 500, and 5 for each of these requests.
    for index in 0..400 {
        let id = index.to_string();
        assert!(!engine.query_and_add(call(&id), &id).await.unwrap());
    }
    let mut remembered = 0;
    for index in 0..400 {
        let id = index.to_string();
        remembered += usize::from(!engine.query_and_add(call(&id), &id).await.unwrap());
    }
    assert!((50..=200).contains(&remembered), "{remembered}");
    assert!(!engine.query_and_add(call("399"), "399").await.unwrap());
}

/// Two simultaneous calls of one id run one after the other: both get the answer "new".
#[test]
fn a_request_that_overtakes_itself_wins_as_well() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.build().unwrap()
    };
    let engine = runtime().block_on(engine(&SimulatedDisk::default()));
    let in_step = Barrier::new(2);
    let rounds = || {
        let runtime = runtime();
        let lost = (0..300).filter(|round| {
            let id = round.to_string();
            let keys: Vec<String> = (0..100).map(|i| format!("{id} {i}")).collect();
            in_step.wait();
            let seen = runtime.block_on(engine.query_and_add_batch(call(&id), keys));
            seen.unwrap() != [false; 100]
        });
        // Failures are counted to the end: a panic would make the other thread wait for ever.
        lost.count()
    };
    let lost = thread::scope(|scope| {
        let other = scope.spawn(rounds);
        rounds() + other.join().unwrap()
    });
    assert_eq!(lost, 0);
}
