//! Filters whose keys age: a key stays for its time and not longer, whatever crashes and whichever
//! way the clock goes.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use fastrand::Rng;

use super::{
    durability::{key, seeds, settings},
    *,
};
use crate::{
    engine,
    store::simulated::{Fault, SimulatedDisk},
};

const SLICE: Duration = Duration::from_secs(3600);
const SLICES: u32 = 4;

fn ages(refresh: bool) -> Aging {
    Aging {
        max_age: SLICE * SLICES,
        slices: SLICES,
        refresh,
    }
}

/// So exact that no false positive is expected, in so few blocks that keys share stamps.
fn exact(refresh: bool) -> SpecRequest {
    SpecRequest {
        kind: Kind::Aging(ages(refresh)),
        ..SpecRequest::new(1000, 1e-12)
    }
}

async fn start(disk: &SimulatedDisk, clock: &Clock) -> Result<Engine, EngineError> {
    let directory = DataDirectory::on(Arc::new(disk.clone()))?;
    let engine = Engine::with_clock(directory, settings(Durability::Always), clock.clone());
    engine.recover(None).await?;
    Ok(engine)
}

/// Returns a filter named `urls`, and a clock that stands at the beginning of a slice.
async fn begun(refresh: bool) -> (SimulatedDisk, Engine, Clock, ManualClock) {
    let (clock, manual_clock) = Clock::manual();
    manual_clock.set(SLICE * 1000);
    let disk = SimulatedDisk::default();
    let engine = start(&disk, &clock).await.unwrap();
    engine.create_filter("urls", exact(refresh)).await.unwrap();
    (disk, engine, clock, manual_clock)
}

fn within(max_age: Duration) -> engine::Call<'static> {
    engine::Call {
        max_age: Some(max_age),
        ..engine::Call::from("urls")
    }
}

fn named(request_id: &str) -> engine::Call<'_> {
    engine::Call {
        request_id,
        ..engine::Call::from("urls")
    }
}

async fn has(engine: &Engine, key: &str) -> bool {
    let one = engine.query("urls", key).await.unwrap();
    let keys = [key, "other"].map(str::to_owned).to_vec();
    let batch = engine.query_batch("urls", keys).await;
    assert_eq!(batch.unwrap(), [one, false]);
    let explained = engine.explain("urls", key).await.unwrap();
    assert_eq!(explained.seen(), one);
    one
}

#[tokio::test]
async fn a_key_is_forgotten_within_a_slice_behind_its_age() {
    for part in 0..6 {
        let (_, engine, _, manual_clock) = begun(false).await;
        manual_clock.advance(SLICE * part / 6);
        assert!(!engine.query_and_add("urls", "a").await.unwrap());
        let added = manual_clock.time();
        manual_clock.set(added + SLICE * SLICES);
        assert!(has(&engine, "a").await, "{part}");
        manual_clock.set(added + SLICE * (SLICES + 1));
        assert!(!has(&engine, "a").await, "{part}");
        assert!(!engine.query_and_add("urls", "a").await.unwrap());
        assert!(has(&engine, "a").await);
    }
}

#[tokio::test]
async fn a_hit_renews_a_key_if_it_is_to() {
    for refresh in [false, true] {
        let (_, engine, _, manual_clock) = begun(refresh).await;
        for key in [
            "hit",
            "hit in a batch",
            "asked",
            "added",
            "added in a batch",
        ] {
            assert!(!engine.query_and_add("urls", key).await.unwrap());
        }
        manual_clock.advance(SLICE * 3);
        assert!(engine.query_and_add("urls", "hit").await.unwrap());
        let seen = engine.query_and_add_batch("urls", vec!["hit in a batch"; 2]);
        assert_eq!(seen.await.unwrap(), [true, true]);
        assert!(engine.query("urls", "asked").await.unwrap());
        engine.add("urls", "added").await.unwrap();
        let keys = vec!["added in a batch"];
        engine.add_batch("urls", keys).await.unwrap();
        manual_clock.advance(SLICE * 3);
        for (key, is_there) in [
            ("hit", refresh),
            ("hit in a batch", refresh),
            ("asked", false),
            ("added", true),
            ("added in a batch", true),
        ] {
            assert_eq!(
                has(&engine, key).await,
                is_there,
                "{key}, refresh: {refresh}"
            );
        }
        assert_eq!(engine.get_filter("urls").await.unwrap().keys_added, 5);
    }
}

#[tokio::test]
async fn a_shorter_age_may_be_asked_for() {
    let (_, engine, _, manual_clock) = begun(false).await;
    for round in 0..2 {
        assert!(!engine.query_and_add("urls", "a").await.unwrap());
        manual_clock.advance(SLICE * 2);
        for (age, seen) in [(1, false), (2, true), (4, true)] {
            let call = within(SLICE * age);
            assert_eq!(engine.query(call, "a").await.unwrap(), seen, "{age}");
            let batch = engine.query_batch(call, vec!["a"]).await.unwrap();
            assert_eq!(batch, [seen], "{age}");
        }
        // One nanosecond more counts as one more slice.
        let call = within(SLICE + Duration::from_nanos(1));
        assert!(engine.query(call, "a").await.unwrap());
        let call = within(SLICE);
        let seen = match round {
            0 => engine.query_and_add(call, "a").await.unwrap(),
            _ => engine.query_and_add_batch(call, vec!["a"]).await.unwrap() == [true],
        };
        assert!(!seen, "it is older than that");
        assert!(
            engine.query(call, "a").await.unwrap(),
            "and is not any more"
        );
        manual_clock.advance(SLICE * 10);
    }

    for (call, says) in [
        (within(Duration::ZERO), "max_age is 0ns; it must be above 0"),
        (
            within(SLICE * 4 + Duration::from_nanos(1)),
            "at most 14400s",
        ),
    ] {
        let refused = engine.query(call, "a").await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        let refused = engine.query_and_add_batch(call, vec!["a"]).await;
        assert!(refused.unwrap_err().to_string().contains(says));
    }
    engine.create_filter("plain", small()).await.unwrap();
    let plain = engine::Call {
        filter: "plain",
        ..within(SLICE)
    };
    for refused in [
        engine.query(plain, "a").await.map(|_| ()),
        engine.query_and_add(plain, "a").await.map(|_| ()),
        engine.query_batch(plain, vec!["a"]).await.map(|_| ()),
    ] {
        assert!(matches!(refused, Err(EngineError::NotAging { .. })));
    }
    assert!(!engine.query("plain", "a").await.unwrap());
}

/// A key that is too old takes no room, and does not make other keys seen.
#[tokio::test]
async fn the_memory_is_cleared_of_what_is_too_old() {
    let (_, engine, _, manual_clock) = begun(false).await;
    for round in 0..40_u64 {
        let keys: Vec<String> = (0..100).map(|index| key(round * 100 + index)).collect();
        engine.add_batch("urls", keys).await.unwrap();
        let status = engine
            .filter_named("urls".parse().unwrap())
            .unwrap()
            .status();
        assert_eq!(status.keys_added, (round + 1) * 100);
        // The keys of at most this number of rounds count.
        let most = 8.0 * 100.0 * f64::from(status.spec.body.hash_count());
        assert!(status.fill_ratio <= most / status.spec.body.bit_count() as f64);
        manual_clock.advance(SLICE * (round % 3) as u32);
    }
    manual_clock.advance(SLICE * 5);
    let filter = engine.filter_named("urls".parse().unwrap()).unwrap();
    assert!(filter.has_old());
    tokio::time::timeout(Duration::from_secs(60), async {
        tokio::select! {
            () = engine.clear_periodically() => {}
            () = async {
                while filter.has_old() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            } => {}
        }
    })
    .await
    .unwrap();
    assert_eq!(engine.get_filter("urls").await.unwrap().fill_ratio, 0.0);
}

#[tokio::test]
async fn a_clock_that_jumps_does_no_harm() {
    let (disk, engine, clock, manual_clock) = begun(false).await;
    let begun = manual_clock.time();
    engine.add("urls", "a").await.unwrap();
    engine.store("urls").await.unwrap();
    manual_clock.advance(SLICE * 2);
    engine.add("urls", "b").await.unwrap();

    // Back: time stands still until the clock has caught up.
    manual_clock.set(begun - SLICE * 500);
    assert!(has(&engine, "a").await && has(&engine, "b").await);
    engine.add("urls", "c").await.unwrap();
    manual_clock.set(begun + SLICE * 4);
    assert!(has(&engine, "a").await && has(&engine, "c").await);
    manual_clock.set(begun + SLICE * 5);
    assert!(!has(&engine, "a").await && has(&engine, "c").await);

    // Back over a restart: time continues from where it was, as fast as the clock does.
    manual_clock.set(Duration::from_secs(1));
    let killed = disk.kill();
    let engine = start(&killed, &clock).await.unwrap();
    assert!(has(&engine, "b").await && has(&engine, "c").await);
    engine.add("urls", "d").await.unwrap();
    engine.store("urls").await.unwrap();
    manual_clock.advance(SLICE * 4);
    assert!(has(&engine, "d").await);
    manual_clock.advance(SLICE);
    for key in ["b", "c", "d"] {
        assert!(!has(&engine, key).await, "{key}");
    }

    // A thousand years forward, and back again.
    let now = manual_clock.time();
    manual_clock.advance(SLICE * 24 * 365_000);
    assert!(!has(&engine, "d").await);
    engine.add("urls", "e").await.unwrap();
    assert!(has(&engine, "e").await);
    manual_clock.set(now);
    let killed = killed.kill();
    let engine = start(&killed, &clock).await.unwrap();
    assert!(has(&engine, "e").await);
    manual_clock.advance(SLICE * 5);
    assert!(!has(&engine, "e").await);
}

/// Some machines have no clock that runs without power, and the operating system sets the clock
/// only after the server has started. Then each start finds the year 1970, and time continues from
/// the last snapshot, in the middle of a slice.
#[tokio::test]
async fn time_goes_on_over_starts_with_a_clock_that_is_behind() {
    let (mut disk, mut engine, clock, manual_clock) = begun(false).await;
    engine.add("urls", "a").await.unwrap();
    engine.store("urls").await.unwrap();
    let mut lived = Duration::ZERO;
    for start_number in 0.. {
        // A change, so that there is something to store.
        let other = format!("other {start_number}");
        engine.add("urls", &other).await.unwrap();
        manual_clock.advance(SLICE * 2 / 5);
        lived += SLICE * 2 / 5;
        engine.store("urls").await.unwrap();
        if !engine.query("urls", "a").await.unwrap() {
            break;
        }
        assert!(lived < SLICE * (SLICES + 1), "{lived:?}");
        manual_clock.set(Duration::from_secs(1));
        disk = disk.kill();
        engine = start(&disk, &clock).await.unwrap();
        let status = engine.get_filter("urls").await.unwrap();
        let stored = status.last_store.unwrap().time;
        assert_eq!(stored, SystemTime::UNIX_EPOCH + SLICE * 1000 + lived);
    }
    assert!(lived >= SLICE * SLICES, "{lived:?}");
}

/// The same if no key is added any more, so that there is no change to store.
#[tokio::test]
async fn time_goes_on_over_starts_of_a_filter_that_is_only_asked() {
    let (mut disk, mut engine, clock, manual_clock) = begun(false).await;
    engine.add("urls", "a").await.unwrap();
    for _ in 0..(SLICES + 1) * 8 {
        assert!(engine.query("urls", "a").await.unwrap());
        manual_clock.advance(SLICE / 8);
        assert_eq!(engine.store_changed().await.len(), 1);
        assert_eq!(engine.store_changed().await.len(), 0);
        manual_clock.set(Duration::from_secs(1));
        disk = disk.kill();
        engine = start(&disk, &clock).await.unwrap();
        assert_eq!(engine.store_changed().await.len(), 0);
    }
    assert!(!engine.query("urls", "a").await.unwrap());
}

/// A copy has the keys with their ages. A merge keeps the younger age.
#[tokio::test]
async fn copies_and_unions_have_the_ages_of_their_keys() {
    let (disk, engine, clock, manual_clock) = begun(false).await;
    // As if the clock had been set back earlier.
    manual_clock.advance(SLICE * 100);
    engine.add("urls", "old").await.unwrap();
    manual_clock.set(SLICE * 1000);
    let killed = disk.kill();
    let engine = start(&killed, &clock).await.unwrap();
    manual_clock.advance(SLICE * 2);
    engine.copy_filter("urls", "copy").await.unwrap();
    let of = |filter, slices| engine::Call {
        filter,
        ..within(SLICE * slices)
    };
    for (slices, seen) in [(1, false), (2, true)] {
        let call = of("copy", slices);
        assert_eq!(engine.query(call, "old").await.unwrap(), seen);
    }
    engine.add("urls", "a").await.unwrap();
    manual_clock.advance(SLICE);
    for key in ["old", "b"] {
        engine.add("copy", key).await.unwrap();
    }
    manual_clock.advance(SLICE);
    engine.add("urls", "c").await.unwrap();
    let merged = engine.merge_filters("copy", "urls").await.unwrap();
    // Each shard has at least as many keys as it has in one of the filters.
    assert!((3..=4).contains(&merged.keys_added));
    let killed = killed.kill();
    for engine in [&engine, &start(&killed, &clock).await.unwrap()] {
        for (key, age) in [("old", 1), ("a", 2), ("b", 1), ("c", 0)] {
            for slices in 1..=SLICES {
                let seen = engine.query(of("urls", slices), key).await.unwrap();
                assert_eq!(seen, slices >= age, "{key}, {slices}");
            }
        }
        assert!(!engine.query("urls", "d").await.unwrap());
    }
    engine.reset_filter("urls").await.unwrap();
    assert!(!engine.query("urls", "c").await.unwrap());
    engine.add("urls", "d").await.unwrap();
    manual_clock.advance(SLICE * 4);
    assert!(engine.query("urls", "d").await.unwrap());
    manual_clock.advance(SLICE);
    assert!(!engine.query("urls", "d").await.unwrap());
}

/// A repeated request added first the keys that were new to it, not the keys that it renewed.
#[tokio::test]
async fn a_repeated_request_gets_the_answers_of_the_first_one() {
    let (disk, engine, clock, manual_clock) = begun(true).await;
    engine.add("urls", "old").await.unwrap();
    manual_clock.advance(SLICE * 3);
    let keys = || vec!["old", "new", "new"];
    let expected = [true, false, true];
    for _ in 0..2 {
        let seen = engine.query_and_add_batch(named("1"), keys()).await;
        assert_eq!(seen.unwrap(), expected);
    }
    assert!(!engine.query_and_add(named("2"), "one").await.unwrap());
    assert!(!engine.query_and_add(named("2"), "one").await.unwrap());
    let killed = disk.kill();
    let engine = start(&killed, &clock).await.unwrap();
    let seen = engine.query_and_add_batch(named("1"), keys()).await;
    assert_eq!(seen.unwrap(), expected);
    assert!(!engine.query_and_add(named("2"), "one").await.unwrap());
    manual_clock.advance(SLICE * 3);
    assert!(has(&engine, "old").await, "it was renewed");
}

/// The epoch at which each key was added last. There are two if a call was not answered.
type Epochs = BTreeMap<u64, [Option<u64>; 2]>;

fn is_there(epoch: Option<u64>, now: u64, slices: u32) -> bool {
    epoch.is_some_and(|epoch| epoch + u64::from(slices) >= now)
}

/// Adds keys while time passes, until the disk fails.
async fn work(
    engine: &Engine,
    manual_clock: &ManualClock,
    chance: &mut Rng,
    all: &mut Epochs,
    refresh: bool,
) {
    for _ in 0..30 {
        let now = ages(refresh).epoch(manual_clock.time());
        let slices = 1 + chance.u32(..SLICES);
        let mut batch: Vec<u64> = (0..1 + chance.u64(..4)).map(|_| chance.u64(..20)).collect();
        batch.sort_unstable();
        batch.dedup();
        let keys: Vec<String> = batch.iter().map(|&index| key(index)).collect();
        let adds = chance.u64(..4) == 0;
        let call = within(SLICE * slices);
        let told = match (adds, &*keys) {
            (true, _) => engine.add_batch("urls", keys).await.map(|()| None),
            (false, [key]) => {
                let seen = engine.query_and_add(call, key).await;
                seen.map(|seen| Some(vec![seen]))
            }
            (false, _) => engine.query_and_add_batch(call, keys).await.map(Some),
        };
        for (place, index) in batch.into_iter().enumerate() {
            let epochs = all.entry(index).or_default();
            let [before, or] = *epochs;
            assert_eq!(before, or);
            let seen = is_there(before, now, slices);
            let after = match adds || refresh || !seen {
                true => Some(now),
                false => before,
            };
            *epochs = [if told.is_ok() { after } else { before }, after];
            if let Ok(Some(told)) = &told {
                assert_eq!(
                    told[place], seen,
                    "{index} of {before:?} at {now}, {slices}"
                );
            }
        }
        if told.is_err() {
            return;
        }
        if chance.u64(..8) == 0 && engine.store("urls").await.is_err() {
            return;
        }
        if chance.u64(..3) == 0 {
            manual_clock.advance(SLICE * chance.u64(..3) as u32 / 2);
        }
    }
}

/// Runs several generations of a server. Each loses its power at a call of the disk, and is started
/// again after some time. All keys that must be there are there, and no others.
async fn run(seed: u64, cuts: &[Option<u64>]) -> u64 {
    let refresh = seed % 2 == 1;
    let (clock, manual_clock) = Clock::manual();
    manual_clock.set(SLICE * 77 + SLICE / 3);
    let mut disk = SimulatedDisk::default();
    let (mut chance, mut all, mut calls) = (Rng::with_seed(seed), Epochs::new(), 0);
    for (generation, cut) in cuts.iter().enumerate() {
        let case = format!("seed {seed}, generation {generation}, cut at {cut:?}");
        let before = disk.calls();
        if let Some(call) = cut {
            disk.fail(before + call, 1, Fault::PowerCut);
        }
        if let Ok(engine) = start(&disk, &clock).await
            && engine.create_filter("urls", exact(refresh)).await.is_ok()
        {
            work(&engine, &manual_clock, &mut chance, &mut all, refresh).await;
        }
        calls = disk.calls() - before;
        disk = disk.cut(&mut chance);
        manual_clock.advance(SLICE * chance.u64(..5) as u32 / 2);
        let engine = match start(&disk, &clock).await {
            Ok(engine) => engine,
            Err(error) => panic!("{case}: {error}"),
        };
        if engine.filter_named("urls".parse().unwrap()).is_err() {
            let knows = |epochs: &[Option<u64>; 2]| epochs[0].is_some();
            assert!(!all.values().any(knows), "{case}: the filter is gone");
            continue;
        }
        let now = ages(refresh).epoch(manual_clock.time());
        for (&index, epochs) in &mut all {
            for slices in 1..=SLICES {
                let call = within(SLICE * slices);
                let found = engine.query(call, &key(index)).await.unwrap();
                // The answer shows which of the two epochs is right.
                let may_be: Vec<_> = epochs
                    .iter()
                    .copied()
                    .filter(|&epoch| is_there(epoch, now, slices) == found)
                    .collect();
                match *may_be {
                    [] => panic!("{case}: {index} of {epochs:?} at {now}, {slices}: {found}"),
                    [one] => *epochs = [one; 2],
                    _ => {}
                }
            }
            // If the answers do not show it, both epochs are equal from now on.
            epochs[1] = epochs[0];
        }
        drop(engine);
        disk = disk.kill();
    }
    calls
}

#[tokio::test]
async fn keys_are_there_for_as_long_as_they_are_to_be_after_power_cuts() {
    for seed in 0..seeds() {
        let calls = run(seed, &[None, None, None]).await;
        assert!(calls > 20, "{calls}");
        for cut in 0..calls {
            let cuts = [Some(cut), Some((cut * 7) % calls), Some(calls - cut)];
            run(seed, &cuts).await;
        }
    }
}

/// A key that the old filter has seen counts from now in the new one.
#[tokio::test]
async fn what_is_found_during_a_rebuild_is_young_in_the_new_filter() {
    let (_, engine, _, manual_clock) = begun(false).await;
    engine.start_rebuild("urls", "new", None).await.unwrap();
    for found in [false, true] {
        let seen = engine.query_and_add("urls", &key(1)).await.unwrap();
        assert_eq!(seen, found);
        manual_clock.advance(SLICE * 3);
    }
    let [old, new] = ["urls", "new"].map(|name| engine.query(name, key(1)));
    assert_eq!([old.await.unwrap(), new.await.unwrap()], [false, true]);
}
