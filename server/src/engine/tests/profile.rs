//! A filter with a key profile: each call uses the canonical form of a key, before and after a
//! restart.

use super::{
    durability::{settings, start},
    *,
};
use crate::store::simulated::{Fault, SimulatedDisk};

/// Spellings of one key.
const WAYS: [&str; 4] = [
    "https://example.com/b?x=1",
    "HTTPS://Example.com:443/a/../%62?x=1#top",
    "https://example.com/b?utm_source=m&x=1",
    "https:\\\\example.com\\b?utm_medium&x=%31",
];
const OTHERS: [&str; 2] = ["https://example.com/b?x=2", "EXAMPLE.com/b?x=1"];

fn profiled() -> SpecRequest {
    let names = ["utm_*".to_owned()];
    SpecRequest {
        key_profile: Some(KeyProfile::new("url-v1", true, &names).unwrap()),
        ..SpecRequest::new(1000, 1e-12)
    }
}

fn all() -> Vec<&'static str> {
    WAYS.iter().chain(&OTHERS).copied().collect()
}

#[tokio::test]
async fn every_call_knows_a_key_in_whichever_way_it_is_written() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    // One call adds the key first, and all calls see it.
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        engine.create_filter(name, profiled()).await.unwrap();
        match number {
            0 => engine.add(name, WAYS[1]).await.unwrap(),
            1 => assert!(!engine.query_and_add(name, WAYS[1]).await.unwrap()),
            2 => engine.add_batch(name, vec![WAYS[1]]).await.unwrap(),
            _ => {
                let seen = engine.query_and_add_batch(name, WAYS.to_vec()).await;
                assert_eq!(seen.unwrap(), [false, true, true, true]);
            }
        }
        for way in WAYS {
            assert!(engine.query(name, way).await.unwrap(), "{name}, {way}");
            assert!(engine.query_and_add(name, way).await.unwrap());
        }
        for other in OTHERS {
            assert!(!engine.query(name, other).await.unwrap(), "{name}, {other}");
        }
        let seen = engine.query_batch(name, all()).await.unwrap();
        assert_eq!(seen, [true, true, true, true, false, false], "{name}");
        let status = engine.get_filter(name).await.unwrap();
        assert_eq!(status.keys_added, 1, "{name}");
    }
    // Without a profile each spelling is a key of its own.
    let plain = SpecRequest::new(1000, 1e-12);
    engine.create_filter("plain", plain).await.unwrap();
    let seen = engine.query_and_add_batch("plain", all()).await.unwrap();
    assert_eq!(seen, [false; 6]);
}

#[tokio::test]
async fn a_request_that_is_repeated_may_write_its_keys_in_another_way() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    engine.create_filter("", profiled()).await.unwrap();
    let call = Call {
        filter: "",
        request_id: "again",
        max_age: None,
        deadline: None,
    };
    assert!(!engine.query_and_add(call, WAYS[0]).await.unwrap());
    assert!(!engine.query_and_add(call, WAYS[1]).await.unwrap());
    let seen = engine.query_and_add_batch(call, vec![WAYS[2], WAYS[3]]);
    assert_eq!(seen.await.unwrap(), [false, true]);
    assert!(engine.query_and_add("", WAYS[1]).await.unwrap());
}

#[tokio::test]
async fn a_restart_keeps_the_profile_and_what_it_has_seen() {
    for is_stored in [false, true] {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, INTERVAL).await.unwrap();
        engine.create_filter("urls", profiled()).await.unwrap();
        engine.add("urls", WAYS[1]).await.unwrap();
        if is_stored {
            engine.store("urls").await.unwrap();
        }
        let before = engine.explain("urls", WAYS[0]).await.unwrap();
        let engine = start(&disk.kill(), INTERVAL).await.unwrap();
        let status = engine.get_filter("urls").await.unwrap();
        assert_eq!(status.spec.key_profile, profiled().key_profile);
        let seen = engine.query_batch("urls", all()).await.unwrap();
        assert_eq!(seen, [true, true, true, true, false, false]);
        assert_eq!(engine.explain("urls", WAYS[2]).await.unwrap(), before);
        let again = engine.create_filter("urls", profiled()).await.unwrap();
        assert!(!again.is_new);
    }
}

/// A key that a failing disk may have lost is not reported as seen, in any spelling.
#[tokio::test]
async fn what_is_not_durable_is_not_told_by_another_name() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", profiled()).await.unwrap();
    const OTHER: &str = "https://Example.com/b?x=2#top";
    engine.add("urls", OTHER).await.unwrap();
    let fault = Fault::Error(std::io::ErrorKind::Other);
    disk.fail(disk.calls(), u64::MAX, fault);
    let error = engine.query_and_add("urls", WAYS[0]).await.unwrap_err();
    assert!(matches!(error, EngineError::NotDurable(_)), "{error}");
    for way in WAYS {
        engine.query("urls", way).await.unwrap_err();
        let batch = engine.query_batch("urls", vec![OTHER, way]);
        batch.await.unwrap_err();
    }
    assert!(engine.query("urls", OTHERS[0]).await.unwrap());
}

#[tokio::test]
async fn another_profile_is_another_filter() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    engine.create_filter("urls", profiled()).await.unwrap();
    let without = SpecRequest {
        key_profile: None,
        ..profiled()
    };
    let refused = engine.create_filter("urls", without).await.unwrap_err();
    assert!(matches!(refused, EngineError::FilterExists { .. }));
    let told = "key_profile url-v1, sorted queries, without utm_*";
    assert!(refused.to_string().ends_with(told), "{refused}");
}

/// The canonical forms of many keys are made on a worker, where they keep nobody waiting.
#[tokio::test]
async fn a_batch_is_heavy_sooner() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    engine.create_filter("urls", profiled()).await.unwrap();
    let plain = SpecRequest::new(1000, 0.01);
    engine.create_filter("plain", plain).await.unwrap();
    let is_answered_at_once = |name: &'static str, keys: usize| {
        let batch = engine.query_batch(name, vec!["a"; keys]);
        batch.now_or_never().is_some()
    };
    let all_busy = engine.data.workers().unwrap().take_all().await;
    assert!(is_answered_at_once("plain", 1000));
    assert!(is_answered_at_once("urls", 100));
    assert!(!is_answered_at_once("urls", 1000));
    drop(all_busy);
    let seen = engine.query_batch("urls", vec!["a"; 1000]).await.unwrap();
    assert_eq!(seen, [false; 1000]);
}

#[tokio::test]
async fn an_explanation_is_what_calls_find() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    for layout in Layout::OWN {
        let name = layout.name();
        let request = SpecRequest {
            layout,
            // This filter has more than one shard.
            bit_count: Some(5 << 25),
            false_positive_rate: None,
            hash_count: Some(7),
            ..profiled()
        };
        engine.create_filter(name, request).await.unwrap();
        let explained = engine.explain(name, WAYS[1]).await.unwrap();
        assert_eq!(explained.canonical_key, WAYS[0].as_bytes());
        assert!(!explained.seen() && explained.place.bits.iter().all(|(_, is_set)| !is_set));
        assert!(explained.place.bits.len() <= 7 && explained.place.bits.is_sorted());
        assert_eq!(explained.place.block.is_some(), layout == Layout::Blocked);
        if let Some(block) = explained.place.block {
            let of_block = |(bit, _): &(u64, bool)| bit / 512 == block as u64;
            assert!(explained.place.bits.iter().all(of_block));
        }
        // The explanation has marked nothing, and does not count as a query.
        let status = engine.get_filter(name).await.unwrap();
        assert_eq!((status.version, status.usage.queries), (0, 0));

        engine.add(name, WAYS[2]).await.unwrap();
        let after = engine.explain(name, WAYS[3]).await.unwrap();
        assert!(after.seen() && after.place.bits.iter().all(|&(_, is_set)| is_set));
        assert_eq!(
            (after.hash, after.place.shard),
            (explained.hash, explained.place.shard)
        );
        let other = engine.explain(name, OTHERS[1]).await.unwrap();
        assert_eq!(other.canonical_key, OTHERS[1].as_bytes());
        assert!(!other.seen() && other.hash != after.hash);
    }
    let unknown = engine.explain("x", "a").await.unwrap_err();
    assert!(matches!(unknown, EngineError::UnknownFilter { .. }));
    let long = "a".repeat(settings(INTERVAL).limits.max_key_bytes + 1);
    for key in ["", &long] {
        let refused = engine.explain("blocked", key).await.unwrap_err();
        assert!(matches!(refused, EngineError::KeyLength { .. }));
    }
}
