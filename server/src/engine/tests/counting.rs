//! Filters that count: each key is there as often as it was added and not removed, whatever
//! crashes.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use fastrand::Rng;

use super::{
    durability::{key, seeds, start},
    *,
};
use crate::{
    engine,
    filter::two_lines::LINE_CELLS,
    store::{
        Disk,
        simulated::{Fault, SimulatedDisk},
    },
};

/// So exact that no false positive is expected, in so few shards that keys share counters.
fn exact() -> SpecRequest {
    SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(1000, 1e-12)
    }
}

fn named<'a>(request_id: &'a str) -> engine::Call<'a> {
    engine::Call {
        filter: "urls",
        request_id,
        max_age: None,
        deadline: None,
    }
}

/// The number of times that each key was added and not removed. There are two numbers if a call was
/// not answered.
type Counts = BTreeMap<u64, (u32, u32)>;

/// A change of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    QueryAndAdd,
    Add,
    Remove,
}

impl Action {
    /// Returns the count of a key after the action, and the answer for this key.
    fn of(self, count: u32) -> (u32, Option<bool>) {
        match self {
            Self::QueryAndAdd => (count.max(1), Some(count > 0)),
            Self::Add => (count + 1, None),
            Self::Remove => (count.saturating_sub(1), Some(count > 0)),
        }
    }
}

/// A call that was made, whether it was answered or not.
#[derive(Debug, Clone)]
struct Made {
    id: String,
    action: Action,
    keys: Vec<u64>,
}

impl Made {
    async fn call(&self, engine: &Engine) -> Result<Option<Vec<bool>>, EngineError> {
        let keys: Vec<String> = self.keys.iter().map(|&index| key(index)).collect();
        let call = named(&self.id);
        let one = |told: bool| Some(vec![told]);
        Ok(match (self.action, &*keys) {
            (Action::QueryAndAdd, [key]) => one(engine.query_and_add(call, key).await?),
            (Action::QueryAndAdd, _) => Some(engine.query_and_add_batch(call, keys).await?),
            (Action::Add, [key]) => engine.add(call, key).await.map(|()| None)?,
            (Action::Add, _) => engine.add_batch(call, keys).await.map(|()| None)?,
            (Action::Remove, [key]) => one(engine.remove(call, key).await?),
            (Action::Remove, _) => Some(engine.remove_batch(call, keys).await?),
        })
    }

    /// Makes the call, updates `counts`, and returns whether the call was answered. `counts` has
    /// the counts before the call.
    async fn carry_out(&self, engine: &Engine, counts: &mut Counts, case: &str) -> bool {
        let told = self.call(engine).await;
        for (place, &key) in self.keys.iter().enumerate() {
            let (before, or) = *counts.entry(key).or_default();
            let (after, expected) = self.action.of(before);
            counts.insert(
                key,
                if told.is_ok() {
                    (after, after)
                } else {
                    (before, after)
                },
            );
            let Ok(told) = &told else { continue };
            assert_eq!(before, or, "{case}: a key that nobody is certain of");
            let told = told.as_ref().map(|told| told[place]);
            assert_eq!(
                told, expected,
                "{case}: {self:?}, {key} was there {before} times"
            );
        }
        told.is_ok()
    }
}

/// Adds and removes keys of its own until a call fails, and returns this call.
async fn work(
    engine: Engine,
    keys: std::ops::Range<u64>,
    seed: u64,
    counts: &mut Counts,
) -> Option<Made> {
    let mut chance = Rng::with_seed(seed);
    for number in 0..25 {
        let mut batch: Vec<u64> = (0..1 + chance.u64(..4))
            .map(|_| keys.start + chance.u64(..keys.end - keys.start))
            .collect();
        batch.sort_unstable();
        batch.dedup();
        let made = Made {
            id: format!("{seed}/{number}"),
            action: [
                Action::QueryAndAdd,
                Action::Add,
                Action::Remove,
                Action::Remove,
            ][chance.usize(..4)],
            keys: batch,
        };
        if !made
            .carry_out(&engine, counts, &format!("seed {seed}"))
            .await
        {
            return Some(made);
        }
        if chance.u64(..12) == 0 {
            let _ = engine.store("urls").await;
        }
    }
    None
}

/// Runs several generations of a server. Each loses its power at a call of the disk, and is started
/// again. Every key is there as often as it was added and not removed.
async fn run(seed: u64, cuts: &[Option<u64>]) -> u64 {
    const TASKS: u64 = 3;
    let mut disk = SimulatedDisk::default();
    let mut chance = Rng::with_seed(seed);
    let mut all: Vec<Counts> = vec![Counts::new(); TASKS as usize];
    let mut calls = 0;
    for (generation, cut) in cuts.iter().enumerate() {
        let before = disk.calls();
        if let Some(call) = cut {
            disk.fail(before + call, 1, Fault::PowerCut);
        }
        let mut failed: Vec<Option<Made>> = vec![None; TASKS as usize];
        if let Ok(engine) = start(&disk, Durability::Always).await
            && engine.create_filter("urls", exact()).await.is_ok()
        {
            let tasks = all.drain(..).enumerate().map(|(task, mut counts)| {
                let (engine, task) = (engine.clone(), task as u64);
                let seed = (seed * 10 + generation as u64) * 10 + task;
                tokio::spawn(async move {
                    let keys = task * 10..task * 10 + 10;
                    let failed = work(engine, keys, seed, &mut counts).await;
                    (counts, failed)
                })
            });
            let done = join_all(tasks.collect::<Vec<_>>()).await;
            (all, failed) = done.into_iter().map(Result::unwrap).unzip();
        }
        calls = disk.calls() - before;
        disk = disk.cut(&mut chance);
        let case = format!("seed {seed}, generation {generation}, cut at {cut:?}");
        let engine = match start(&disk, Durability::Always).await {
            Ok(engine) => engine,
            Err(error) => panic!("{case}: {error}"),
        };
        let is_there = engine.filter_named("urls".parse().unwrap()).is_ok();
        for (counts, made) in all.iter_mut().zip(failed) {
            let Some(made) = made.filter(|_| is_there) else {
                continue;
            };
            learn_counts(&engine, counts, &made, chance.bool(), &case).await;
        }
        let expects_any = all
            .iter()
            .any(|counts| counts.values().any(|&(count, _)| count > 0));
        assert!(is_there || !expects_any, "{case}: the filter is gone");
        drop(engine);
        disk = disk.kill();
    }
    check(&disk, &all, &format!("seed {seed}, cuts {cuts:?}")).await;
    calls
}

/// Determines what a call without an answer has changed: repeats it, or asks for its keys.
async fn learn_counts(engine: &Engine, counts: &mut Counts, made: &Made, repeat: bool, case: &str) {
    if repeat {
        for key in &made.keys {
            let count = counts.get_mut(key).unwrap();
            count.1 = count.0;
        }
        assert!(made.carry_out(engine, counts, case).await, "{case}");
        return;
    }
    for key_index in &made.keys {
        let count = counts.get_mut(key_index).unwrap();
        // Each key is removed as often as it is there, and then added again.
        let mut found = 0;
        while engine.remove("urls", &key(*key_index)).await.unwrap() {
            found += 1;
        }
        assert!(
            found == count.0 || found == count.1,
            "{case}: {key_index} {found} times, not {count:?}"
        );
        for _ in 0..found {
            engine.add("urls", &key(*key_index)).await.unwrap();
        }
        *count = (found, found);
    }
}

/// Removes all keys as often as they must be there, and checks that nothing is left.
async fn check(disk: &SimulatedDisk, all: &[Counts], case: &str) {
    let engine = start(disk, Durability::Always).await.unwrap();
    let Ok(filter) = engine.filter_named("urls".parse().unwrap()) else {
        return;
    };
    for (&index, &(count, _)) in all.iter().flatten() {
        assert_eq!(
            engine.query("urls", &key(index)).await.unwrap(),
            count > 0,
            "{case}: {index}"
        );
        for _ in 0..count {
            assert!(
                engine.remove("urls", &key(index)).await.unwrap(),
                "{case}: {index}"
            );
        }
    }
    let status = filter.status();
    assert_eq!((status.keys_added, status.fill_ratio), (0, 0.0), "{case}");
    assert_eq!(status.saturated_counters, 0, "{case}");
}

#[tokio::test]
async fn keys_are_there_as_often_as_they_were_added_after_power_cuts() {
    for seed in 0..seeds() {
        let calls = run(seed, &[None, None, None]).await;
        assert!(calls > 20, "{calls}");
        for cut in 0..calls {
            let cuts = [Some(cut), Some((cut * 7) % calls), Some(calls - cut)];
            run(seed, &cuts).await;
        }
    }
}

/// A store copies shards one after the other while calls change several of them.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_copies_amid_calls_is_counted_once() {
    const KEYS: u64 = 400;
    const BATCH: usize = 200;
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    let large = SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(1_000_000, 1e-9)
    };
    engine.create_filter("urls", large).await.unwrap();
    let storing = tokio::spawn({
        let engine = engine.clone();
        async move {
            for _ in 0..5 {
                engine.store("urls").await.unwrap();
            }
        }
    });
    let callers = (0..2).map(|caller| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut chance = Rng::with_seed(caller);
            let mut times = 0;
            while times < 20 || chance.u64(..4) > 0 {
                let first = caller * KEYS;
                let keys: Vec<String> = (first..first + KEYS / 2).map(key).collect();
                engine.add_batch("urls", keys.clone()).await.unwrap();
                let removed = engine.remove_batch("urls", keys).await.unwrap();
                assert_eq!(removed, [true; BATCH]);
                let keys: Vec<String> = (first + KEYS / 2..first + KEYS).map(key).collect();
                engine.query_and_add_batch("urls", keys).await.unwrap();
                times += 1;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    storing.await.unwrap();
    let killed = disk.kill();
    let engine = start(&killed, INTERVAL).await.unwrap();
    for caller in 0..2 {
        let first = caller * KEYS;
        let keys: Vec<String> = (first..first + KEYS).map(key).collect();
        let expected: Vec<bool> = (0..KEYS).map(|index| index >= KEYS / 2).collect();
        for batch in 0..2 {
            let range = batch * BATCH..(batch + 1) * BATCH;
            let (keys, expected) = (keys[range.clone()].to_vec(), &expected[range]);
            assert_eq!(
                engine.query_batch("urls", keys.clone()).await.unwrap(),
                expected
            );
            assert_eq!(engine.remove_batch("urls", keys).await.unwrap(), expected);
        }
    }
    let status = engine.get_filter("urls").await.unwrap();
    assert_eq!((status.keys_added, status.fill_ratio), (0, 0.0));
}

#[tokio::test]
async fn a_key_is_removed_once_for_each_time_it_was_added() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("urls", exact()).await.unwrap();
    assert!(!engine.remove("urls", "a").await.unwrap());
    for _ in 0..3 {
        engine.query_and_add("urls", "a").await.unwrap();
    }
    assert!(engine.remove("urls", "a").await.unwrap());
    assert!(!engine.query("urls", "a").await.unwrap());
    assert!(!engine.remove("urls", "a").await.unwrap());

    engine.add("urls", "a").await.unwrap();
    engine.add_batch("urls", vec!["a", "b"]).await.unwrap();
    let removed = engine.remove_batch("urls", vec!["a", "a", "a"]).await;
    assert_eq!(removed.unwrap(), [true, true, false]);
    assert!(engine.query("urls", "b").await.unwrap());
}

#[tokio::test]
async fn an_explanation_tells_the_lines_of_the_counters() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("urls", exact()).await.unwrap();
    engine.add("urls", "a").await.unwrap();
    for (key, is_there) in [("a", true), ("b", false)] {
        let explained = engine.explain("urls", key).await.unwrap();
        assert_eq!(explained.seen(), is_there);
        assert_eq!((explained.place.block, explained.place.layer), (None, None));
        let lines: BTreeSet<usize> = explained.place.lines.iter().copied().collect();
        assert_eq!((lines.len(), explained.place.lines.len()), (2, 2));
        let bits = explained.place.bits.iter();
        let of_bits = bits.map(|&(counter, _)| (counter / LINE_CELLS) as usize);
        assert_eq!(of_bits.collect::<BTreeSet<usize>>(), lines);
    }
}

#[tokio::test]
async fn a_counter_that_is_full_stays_and_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    // No two of a key's bits are the same.
    let eight_bits = SpecRequest {
        hash_count: Some(8),
        ..exact()
    };
    for round in 0..2 {
        let engine = recovered(dir.path()).await;
        let spec = eight_bits.clone();
        engine.create_filter("urls", spec).await.unwrap();
        for _ in 0..16 {
            engine.add("urls", "a").await.unwrap();
        }
        let status = engine.get_filter("urls").await.unwrap();
        assert_eq!(status.saturated_counters, 8, "round {round}");
        assert!(!engine.remove("urls", "a").await.unwrap());
        assert!(engine.query("urls", "a").await.unwrap());
        engine.store("urls").await.unwrap();
    }
}

#[tokio::test]
async fn a_repeated_request_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("urls", exact()).await.unwrap();
    for _ in 0..3 {
        engine.add(named("1"), "a").await.unwrap();
        engine.add_batch(named("2"), vec!["a", "a"]).await.unwrap();
    }
    for _ in 0..3 {
        assert!(engine.remove(named("3"), "a").await.unwrap());
    }
    let removed = engine.remove_batch("urls", vec!["a", "a", "a"]).await;
    assert_eq!(removed.unwrap(), [true, true, false]);
}

/// The power is cut in the middle of a batch that is in several shards and has keys twice.
#[tokio::test]
async fn a_batch_that_is_repeated_after_a_power_cut_counts_once() {
    let several_shards = SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(2_000_000, 1e-9)
    };
    let keys: Vec<String> = [0, 1, 0, 2, 1, 3, 0].into_iter().map(key).collect();
    let counts = [(0, 3), (1, 2), (2, 1), (3, 1)];
    let mut lost = 0;
    for cut in 0.. {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, Durability::Always).await.unwrap();
        let spec = several_shards.clone();
        engine.create_filter("urls", spec).await.unwrap();
        disk.fail(disk.calls() + cut, 1, Fault::PowerCut);
        let was_answered = engine.add_batch(named("1"), keys.clone()).await.is_ok();
        let found = disk.cut(&mut Rng::with_seed(cut));
        let engine = start(&found, Durability::Always).await.unwrap();
        engine.add_batch(named("1"), keys.clone()).await.unwrap();
        for (index, count) in counts {
            for _ in 0..count {
                assert!(engine.remove("urls", &key(index)).await.unwrap(), "{cut}");
            }
            assert!(!engine.remove("urls", &key(index)).await.unwrap(), "{cut}");
        }
        if was_answered {
            break;
        }
        lost += 1;
    }
    assert!(lost > 0);
}

/// No query is answered while it is uncertain whether the last removal survives.
#[tokio::test]
async fn what_may_be_removed_is_not_told_while_the_log_fails() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    let one_shard = SpecRequest {
        capacity: 100,
        ..exact()
    };
    engine.create_filter("urls", one_shard).await.unwrap();
    engine.add_batch("urls", vec!["a", "b"]).await.unwrap();
    let broken = Fault::Error(std::io::ErrorKind::Other);
    disk.fail(disk.calls(), u64::MAX, broken);
    engine.remove("urls", "a").await.unwrap_err();
    for key in ["a", "b"] {
        let error = engine.query("urls", key).await.unwrap_err();
        assert!(
            matches!(error, EngineError::NotDurable(_)),
            "{key}: {error}"
        );
        engine.query_batch("urls", vec![key]).await.unwrap_err();
    }
    disk.heal();
    // Keys are refused until the log has retried.
    while engine.add("urls", "c").await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let seen = engine.query_batch("urls", vec!["a", "b"]).await.unwrap();
    assert_eq!(seen, [false, true]);
}

/// Lost keys are forgotten. Keys of whole pages are counted once, and so are the keys in the log.
#[tokio::test]
async fn what_is_salvaged_is_counted_once() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    // The filter has a little more than two pages of 64 KiB.
    let pages = SpecRequest {
        kind: Kind::Counting,
        bit_count: Some(300_000),
        hash_count: Some(8),
        false_positive_rate: None,
        ..SpecRequest::new(1000, 0.5)
    };
    engine.create_filter("urls", pages).await.unwrap();
    let stored: Vec<String> = (0..100).map(key).collect();
    let logged: Vec<String> = (100..200).map(key).collect();
    engine.add_batch("urls", stored.clone()).await.unwrap();
    engine.store("urls").await.unwrap();
    engine.add_batch("urls", logged.clone()).await.unwrap();
    engine
        .remove_batch("urls", logged[..50].to_vec())
        .await
        .unwrap();

    let found = disk.kill();
    let is_snapshot = |name: &String| name.contains(".snapshot");
    let name = found
        .names()
        .unwrap()
        .into_iter()
        .filter(is_snapshot)
        .max()
        .unwrap();
    let mut bytes = found.contents(&name).unwrap();
    bytes[384 + 1000] ^= 1;
    found.put(&name, &bytes);
    start(&found.kill(), Durability::Always).await.unwrap_err();
    let inspection = crate::store::Inspection::on(Arc::new(found.clone())).unwrap();
    let salvaged = inspection.salvage(64 << 10).unwrap();
    assert_eq!((salvaged.filters.len(), salvaged.log), (1, false));
    drop(inspection);

    let engine = start(&found, Durability::Always).await.unwrap();
    let removed = engine.remove_batch("urls", stored.clone()).await.unwrap();
    let left = removed.iter().filter(|&&removed| removed).count();
    assert!((50..100).contains(&left), "{left} of 100 keys are left");
    let removed = engine.remove_batch("urls", logged.clone()).await.unwrap();
    assert!(removed[..50].iter().all(|&removed| !removed));
    assert!(removed[50..].iter().all(|&removed| removed));
    for keys in [stored, logged] {
        let removed = engine.remove_batch("urls", keys).await.unwrap();
        assert!(removed.iter().all(|&removed| !removed), "counted twice");
    }
}

/// An id names one call: an add and a remove with the same id are two calls.
#[tokio::test]
async fn an_id_of_an_add_is_none_of_a_remove() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("urls", exact()).await.unwrap();
    assert!(!engine.query_and_add(named("1"), "a").await.unwrap());
    assert!(engine.remove(named("1"), "a").await.unwrap());
    assert!(!engine.query("urls", "a").await.unwrap());
    engine.add("urls", "a").await.unwrap();
    assert!(engine.remove(named("1"), "a").await.unwrap());
    assert!(
        engine.query("urls", "a").await.unwrap(),
        "removed by a repeated call"
    );
}

#[tokio::test]
async fn no_key_is_removed_from_a_filter_that_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let engine = recovered(dir.path()).await;
    engine.create_filter("urls", small()).await.unwrap();
    engine.add("urls", "a").await.unwrap();
    for error in [
        engine.remove("urls", "a").await.err(),
        engine.remove_batch("urls", vec!["a", "b"]).await.err(),
    ] {
        let text = error.unwrap().to_string();
        assert!(text.contains("\"urls\" does not count"), "{text}");
    }
    assert!(engine.query("urls", "a").await.unwrap());
}
