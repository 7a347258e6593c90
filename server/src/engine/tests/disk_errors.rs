//! A disk that fails or is full: no false acknowledgement is given, and queries are still answered.

use std::{
    io,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use fastrand::Rng;

use super::{
    durability::{AT_ONCE, Failed, THREADED_IN, key, note, one_thread, start, threads},
    workload::{Told, check, exact, work_with},
    *,
};
use crate::store::{
    Disk,
    simulated::{Fault, SimulatedDisk},
};

/// The number of workloads that are tried with faults, in each of two modes.
const WORKLOADS: u64 = 7;
/// An interval so short that the log is synced during a workload.
const SHORT: Duration = Duration::from_millis(10);
/// A case that takes as long as this hangs, even on a busy machine.
const HANGS: Duration = Duration::from_secs(60);

/// The faults, each with the number of calls that it affects.
const FAULTS: [(Fault, u64); 8] = [
    (Fault::Error(io::ErrorKind::Other), 1),
    (Fault::Error(io::ErrorKind::Other), u64::MAX),
    (Fault::Error(io::ErrorKind::StorageFull), 1),
    (Fault::Error(io::ErrorKind::StorageFull), u64::MAX),
    (Fault::Error(io::ErrorKind::Interrupted), 1),
    (Fault::Error(io::ErrorKind::Interrupted), u64::MAX),
    (Fault::Short, 1),
    (Fault::Short, u64::MAX),
];

/// A fault is injected at each call to the disk. Every acknowledged key is there after a crash, a
/// filter that nobody changes answers queries, and nobody waits for ever. Each call gets one of the
/// faults, and another one in the next workload. With `SEENSET_FAULTS=all` each call gets all of
/// them.
#[test]
fn no_error_of_the_disk_makes_a_false_acknowledgement() {
    // Many workloads are needed. A later sync makes good a sync that failed, so a fault shows only
    // if it hits the last sync of a record.
    let workloads = Arc::new(AtomicU64::new(0));
    let failed = Arc::new(Failed::default());
    let (tell, told) = mpsc::channel();
    let threads = (0..AT_ONCE).map(|thread| {
        let (workloads, failed) = (Arc::clone(&workloads), Arc::clone(&failed));
        let tell = tell.clone();
        // No thread is joined if one hangs: the test must end then.
        thread::spawn(move || {
            let _on_panic = failed.on_panic();
            let begin = |case| {
                tell.send((thread, Some(case))).unwrap();
                !failed.is_set()
            };
            let runtimes = [one_thread(), threads()];
            loop {
                let number = workloads.fetch_add(1, Ordering::Relaxed);
                let (seed, durability) = match number % 2 {
                    0 => (number / 2, Durability::Always),
                    _ => (number / 2, Durability::Interval(SHORT)),
                };
                if seed >= WORKLOADS || failed.is_set() {
                    return tell.send((thread, None)).unwrap();
                }
                let runtime = &runtimes[usize::from(seed.is_multiple_of(THREADED_IN))];
                runtime.block_on(try_faults(durability, seed, begin));
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    drop(tell);
    let (mut latest, mut cases) = (vec![None; AT_ONCE], 0);
    loop {
        match told.recv_timeout(HANGS) {
            Ok((thread, case)) => {
                cases += u64::from(case.is_some());
                latest[thread] = case;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("one of these hangs: {latest:#?}"),
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    note(format_args!(
        "errors of the disk: {cases} faults, seeds 0..{WORKLOADS}"
    ));
}

/// Runs a workload with a fault at each of its calls. `begin` gets each case before it begins, and
/// returns whether it is to begin.
async fn try_faults(durability: Durability, seed: u64, begin: impl Fn(String) -> bool) {
    let (prepared, told) = prepare(durability, seed).await;
    // This is a fault at a call that never comes.
    let (fault, count) = FAULTS[0];
    let calls = try_fault(
        &prepared,
        &told,
        durability,
        seed,
        (u64::MAX, count, fault),
        "none",
    )
    .await;
    for call in 0..calls {
        let chosen = (seed + call) % FAULTS.len() as u64;
        for (number, (fault, count)) in (0..).zip(FAULTS) {
            if number == chosen || is_all() {
                let case =
                    format!("{durability:?}, seed {seed}, call {call}, {fault:?}, {count} times");
                if !begin(case.clone()) {
                    return;
                }
                try_fault(
                    &prepared,
                    &told,
                    durability,
                    seed,
                    (call, count, fault),
                    &case,
                )
                .await;
            }
        }
    }
}

fn is_all() -> bool {
    std::env::var("SEENSET_FAULTS").is_ok_and(|faults| faults == "all")
}

/// Returns the keys of a filter that does not change.
fn kept() -> Vec<String> {
    (0..20).map(key).collect()
}

/// Returns a disk that a server has worked with, and the answers that its callers got.
async fn prepare(durability: Durability, seed: u64) -> (SimulatedDisk, Told) {
    let (disk, mut told) = (SimulatedDisk::default(), Told::default());
    let engine = start(&disk, durability).await.unwrap();
    engine.create_filter("kept", exact()).await.unwrap();
    engine.add_batch("kept", kept()).await.unwrap();
    work_with(&engine, seed + 1000, &mut told).await;
    let found = match durability {
        Durability::Always => disk.cut(&mut Rng::with_seed(seed)),
        // The tail has the last acknowledged records.
        _ => disk.kill(),
    };
    (found, told)
}

/// Runs a server on a disk that has a fault, and returns the number of its disk calls.
async fn try_fault(
    prepared: &SimulatedDisk,
    told: &Told,
    durability: Durability,
    seed: u64,
    (call, count, fault): (u64, u64, Fault),
    case: &str,
) -> u64 {
    let (disk, mut told) = (prepared.kill(), told.clone());
    let mut chance = Rng::with_seed(seed ^ call);
    disk.fail(call, count, fault);
    // A start that fails has answered no calls.
    if let Ok(engine) = start(&disk, durability).await {
        for round in 0..2 {
            work_with(&engine, seed + 2000 * round, &mut told).await;
            let seen = engine.query_batch("kept", kept()).await;
            assert_eq!(seen.expect(case), [true; 20], "{case}");
            if durability != Durability::Always && round == 0 {
                // A call that is answered now may rely on every answer that is older than an
                // interval.
                tokio::time::sleep(2 * SHORT).await;
                if engine.add("urls", "relies").await.is_ok() {
                    let found = disk.cut(&mut chance);
                    check(&found, durability, told.clone(), case).await;
                }
            }
        }
    }
    let calls = disk.calls();
    let found = match durability {
        Durability::Always => disk.cut(&mut chance),
        _ => disk.kill(),
    };
    check(&found, durability, told, case).await;
    calls
}

/// Adds a key as soon as keys are accepted again.
async fn add_at_last(engine: &Engine, key: &str) {
    let added = tokio::time::timeout(Duration::from_secs(10), async {
        while engine.add("urls", key).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    added.await.unwrap();
}

/// If the log has no room for another segment, keys are refused before any bit is set. Every
/// acknowledged key is still seen, before and after a kill.
#[tokio::test]
async fn keys_that_the_log_has_no_room_for_are_refused_whole() {
    for durability in [Durability::Always, INTERVAL] {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, durability).await.unwrap();
        let request = SpecRequest::new(1_000_000, 0.001);
        engine.create_filter("urls", request).await.unwrap();
        // No file can grow.
        disk.limit(Some(0));
        let batch =
            |index: u64| -> Vec<String> { (0..100).map(|i| key(index * 100 + i)).collect() };
        let added = async |engine: &Engine| engine.get_filter("urls").await.unwrap().keys_added;
        let mut acknowledged = 0;
        let error = loop {
            match engine.add_batch("urls", batch(acknowledged)).await {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, EngineError::StorageFull(_)), "{error}");
        assert!(acknowledged > 20, "{acknowledged}");
        let mut is_read_only = engine.is_read_only();
        assert!(*is_read_only.borrow());
        let keys_added = added(&engine).await;
        for index in acknowledged..acknowledged + 20 {
            let refused = engine.query_and_add("urls", &key(index * 100)).await;
            let error = refused.unwrap_err();
            assert!(matches!(error, EngineError::StorageFull(_)), "{error}");
        }
        let seen = engine.query_batch("urls", batch(acknowledged)).await;
        assert!(seen.unwrap().iter().filter(|&&seen| seen).count() <= 2);
        assert_eq!(added(&engine).await, keys_added);
        let all_are_seen = async |engine: &Engine| {
            for index in 0..acknowledged {
                let seen = engine.query_batch("urls", batch(index)).await.unwrap();
                assert_eq!(seen, [true; 100], "{durability:?}, batch {index}");
            }
        };
        all_are_seen(&engine).await;

        disk.limit(None);
        add_at_last(&engine, "at last").await;
        assert!(!*is_read_only.borrow_and_update());
        let engine = start(&disk.kill(), durability).await.unwrap();
        all_are_seen(&engine).await;
        assert!(engine.query("urls", "at last").await.unwrap());
    }
}

/// Leaves no room except in the files that exist.
fn fill(disk: &SimulatedDisk) {
    disk.limit(Some(disk_bytes(disk)));
}

fn disk_bytes(disk: &SimulatedDisk) -> u64 {
    let files = disk.names().unwrap().into_iter();
    let bytes = files.map(|file| disk.contents(&file).map_or(0, |bytes| bytes.len() as u64));
    bytes.sum()
}

/// Takes the room that a stopped server keeps for its log. All of it is in segments.
fn take_room(disk: &SimulatedDisk) {
    for name in disk.names().unwrap() {
        if name == "log.tail" {
            disk.remove(&name).unwrap();
        } else if name.ends_with(".log") {
            let bytes = disk.contents(&name).unwrap();
            disk.put(&name, &bytes[..bytes.len().min(4096)]);
        }
    }
    fill(disk);
}

/// The next start can read a store that was made without a segment to write to, even if no batch
/// has been written since the log was cut.
#[tokio::test]
async fn a_start_on_a_full_disk_stores_what_the_next_one_reads() {
    for durability in [Durability::Always, INTERVAL] {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, durability).await.unwrap();
        engine.create_filter("urls", small()).await.unwrap();
        engine.add("urls", "first").await.unwrap();
        drop(engine);
        let engine = start(&disk, durability).await.unwrap();
        engine.store("").await.unwrap();
        drop(engine);
        take_room(&disk);
        let engine = start(&disk, durability).await.unwrap();
        let error = engine.add("urls", "second").await.unwrap_err();
        assert!(matches!(error, EngineError::StorageFull(_)), "{error}");
        // There is room for a manifest and a small snapshot.
        disk.limit(Some(disk_bytes(&disk) + 4096));
        engine.store("").await.unwrap();
        engine.create_filter("other", small()).await.unwrap();
        drop(engine);
        let engine = start(&disk, durability).await.unwrap();
        assert!(engine.query("urls", "first").await.unwrap());
        disk.limit(None);
        add_at_last(&engine, "second").await;
        engine.add("other", "third").await.unwrap();
        let engine = start(&disk.kill(), durability).await.unwrap();
        assert!(engine.query("urls", "second").await.unwrap());
        assert!(engine.query("other", "third").await.unwrap());
    }
}

/// A start needs no room to answer queries. It accepts keys as soon as there is some.
#[tokio::test]
async fn a_start_on_a_full_disk_answers_queries() {
    for durability in [Durability::Always, INTERVAL] {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, durability).await.unwrap();
        engine.create_filter("urls", small()).await.unwrap();
        engine.add("urls", "first").await.unwrap();
        // The room that was kept for the next segment is enough for a start.
        while disk.contents("0000000000000002.log").is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let full = disk.kill();
        fill(&full);
        for key in ["second", "third"] {
            let engine = start(&full, durability).await.unwrap();
            engine.add("urls", key).await.unwrap();
            assert!(engine.query("urls", "first").await.unwrap());
        }
        // Another program has taken this room.
        let full = full.kill();
        take_room(&full);
        let engine = start(&full, durability).await.unwrap();
        let seen = engine.query_batch("urls", vec!["first", "second", "third", "fourth"]);
        assert_eq!(seen.await.unwrap(), [true, true, true, false]);
        let error = engine.query_and_add("urls", "fourth").await.unwrap_err();
        assert!(matches!(error, EngineError::StorageFull(_)), "{error}");
        assert!(*engine.is_read_only().borrow());
        assert!(!engine.query("urls", "fourth").await.unwrap());

        full.limit(None);
        add_at_last(&engine, "fourth").await;
        assert!(!*engine.is_read_only().borrow());
        engine.store("urls").await.unwrap();
        engine.add("urls", "fifth").await.unwrap();
        let engine = start(&full.kill(), durability).await.unwrap();
        let keys = vec!["first", "second", "third", "fourth", "fifth", "sixth"];
        let seen = engine.query_batch("urls", keys).await.unwrap();
        assert_eq!(seen, [true, true, true, true, true, false]);
    }
}

/// While nothing can be written, keys are refused and queries are answered. When writes succeed
/// again, keys are accepted again.
#[tokio::test]
async fn a_full_disk_refuses_keys_until_there_is_room() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    // The filter has one shard, which has a change that is not on the disk.
    engine.create_filter("urls", small()).await.unwrap();
    let before: Vec<String> = (0..40).map(key).collect();
    engine.add_batch("urls", before.clone()).await.unwrap();
    let is_read_only = engine.is_read_only();
    assert!(!*is_read_only.borrow());
    let full = Fault::Error(io::ErrorKind::StorageFull);
    disk.fail(disk.calls(), u64::MAX, full);
    // The bits of this key are set before the write fails. `StorageFull` would say that they are
    // not set.
    let first = Call {
        filter: "urls",
        request_id: "1",
        max_age: None,
        deadline: None,
    };
    let error = engine.query_and_add(first, "first").await.unwrap_err();
    assert!(matches!(error, EngineError::NotDurable(_)), "{error}");
    for _ in 0..3 {
        let error = engine.query_and_add("urls", "second").await.unwrap_err();
        assert!(matches!(error, EngineError::StorageFull(_)), "{error}");
    }
    for key in &before {
        assert!(engine.query("urls", key).await.unwrap(), "{key}");
    }
    assert!(!engine.query("urls", "second").await.unwrap());
    // A query fails if its answer depends on a change that is not on the disk.
    let error = engine.query("urls", "first").await.unwrap_err();
    assert!(matches!(error, EngineError::NotDurable(_)), "{error}");
    assert!(*is_read_only.borrow());

    disk.heal();
    add_at_last(&engine, "third").await;
    assert!(!*is_read_only.borrow());
    // A repeat of the call gets its first answer.
    assert!(!engine.query_and_add(first, "first").await.unwrap());
    let found = disk.cut(&mut Rng::with_seed(1));
    let engine = start(&found, Durability::Always).await.unwrap();
    let seen = engine.query_batch("urls", vec!["first", "third"]);
    assert_eq!(seen.await.unwrap(), [true; 2]);
    let seen = engine.query_batch("urls", before).await.unwrap();
    assert_eq!(seen, [true; 40]);
}
