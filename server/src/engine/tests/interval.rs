//! The answers that a power cut loses if answers do not wait for the disk.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::{
    durability::{cut_power, cuts, key, note, start},
    kinds::{Sample, keys},
    *,
};
use crate::store::simulated::SimulatedDisk;

/// Many times the delay of a thread on a busy machine.
const INTERVAL: Duration = Duration::from_millis(400);
/// A shorter interval, because thousands of cuts have to wait for it.
const SHORT: Duration = Duration::from_millis(150);
/// One in this number of the cuts of the other tests is made here, because each takes some
/// intervals.
const CUTS_IN_ONE: u64 = 50;
/// One in this number of the calls of a workload is cut.
const STRIDE: u64 = 13;

/// A fast disk loses no answer that is older than the interval. A slow disk can lose older answers,
/// because it cannot sync them in time, but all lost answers were given within one interval. Both
/// bounds are doubled, for the delays of threads on a busy machine.
#[test]
fn a_power_cut_takes_no_more_than_the_interval_has() {
    for sync_time in [Duration::ZERO, 3 * INTERVAL] {
        let disk = SimulatedDisk::default();
        let durability = Durability::Interval(INTERVAL);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let engine = runtime.block_on(start(&disk, durability)).unwrap();
        // Each key is added to the next of the filters.
        let samples = Sample::all();
        let name_of = |index: u64| format!("urls-{}", index % samples.len() as u64);
        for (index, sample) in (0..).zip(&samples) {
            let name = name_of(index);
            runtime.block_on(sample.make(&engine, &name)).unwrap();
        }
        disk.slow_down(sync_time);
        let (answered, mut lost) = (parking_lot::Mutex::new(Vec::new()), 0);
        let end = Instant::now() + 6 * INTERVAL;
        thread::scope(|scope| {
            scope.spawn(|| {
                for index in 0.. {
                    let (name, key) = (name_of(index), key(index));
                    runtime.block_on(engine.add(&*name, &key)).unwrap();
                    answered.lock().push(Instant::now());
                    if Instant::now() >= end {
                        break;
                    }
                    thread::sleep(INTERVAL / 100);
                }
            });
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let mut chance = Rng::with_seed(1);
            while Instant::now() < end {
                thread::sleep(INTERVAL / 20);
                let answered = answered.lock().clone();
                let cut_at = Instant::now();
                let found = disk.cut(&mut chance);
                let engine = runtime.block_on(start(&found, durability)).unwrap();
                let seen = |index| {
                    let (name, key) = (name_of(index), key(index));
                    runtime.block_on(engine.query(&*name, &key)).unwrap()
                };
                let seen: Vec<bool> = (0..answered.len() as u64).map(seen).collect();
                let taken = answered.iter().zip(seen).filter(|(_, seen)| !seen);
                let mut taken = taken.map(|(&answered, _)| answered);
                let Some(first) = taken.next() else {
                    continue;
                };
                let last = if sync_time.is_zero() {
                    cut_at
                } else {
                    taken.next_back().unwrap_or(first)
                };
                let span = last - first;
                assert!(span < 2 * INTERVAL, "{span:?} of answers");
                lost += 1;
            }
        });
        assert!(lost > 10, "{lost} cuts that take anything");
    }
}

/// The answers of the calls, in their order.
#[derive(Default)]
struct Told {
    /// The keys that were marked, and the time of the answer.
    marked: Vec<(Range<u64>, Instant)>,
    /// The number of these that were answered before a successful store began.
    stored: usize,
}

/// Marks keys, with pauses, for some intervals. Stores, makes and deletes filters meanwhile, until
/// a call fails.
async fn work(disk: &SimulatedDisk, seed: u64) -> Told {
    let mut told = Told::default();
    let Ok(engine) = start(disk, Durability::Interval(SHORT)).await else {
        return told;
    };
    let samples = Sample::all();
    let sample = &samples[seed as usize % samples.len()];
    if sample.make(&engine, "urls").await.is_err() {
        return told;
    }
    let mut chance = Rng::with_seed(seed);
    let mut next = 0;
    for _ in 0..30 {
        let range = next..next + 1 + chance.u64(..4);
        next = range.end;
        let names = keys(range.clone());
        let answer = if chance.bool() {
            engine.add_batch("urls", names).await
        } else {
            let seen = engine.query_and_add_batch("urls", names).await;
            seen.map(|seen| assert!(!seen.contains(&true), "seed {seed}"))
        };
        if answer.is_err() {
            break;
        }
        told.marked.push((range, Instant::now()));
        match chance.u64(..12) {
            0 => {
                let marked = told.marked.len();
                if engine.store("urls").await.is_ok() {
                    told.stored = marked;
                }
            }
            1 => drop(engine.create_filter("other", small()).await),
            2 => drop(engine.delete_filter("other").await),
            _ => {}
        }
        thread::sleep(SHORT * chance.u64(..20) as u32 / 100);
    }
    told
}

/// The power can be cut at any write of the log, the snapshots and the manifest.
#[test]
fn a_power_cut_at_any_call_takes_no_more_than_the_interval_has() {
    let cuts = cuts() / CUTS_IN_ONE;
    let taking = AtomicU64::new(0);
    let seeds = cut_power(
        cuts,
        STRIDE,
        |runtime, disk, seed| runtime.block_on(work(disk, seed)),
        |runtime, found, Told { marked, stored }, case| {
            let Some((_, last)) = marked.last() else {
                return;
            };
            let engine = match runtime.block_on(start(found, Durability::Interval(SHORT))) {
                Ok(engine) => engine,
                Err(error) => panic!("{case}: {error}"),
            };
            let is_lost = |(range, _): &(Range<u64>, Instant)| {
                let seen = engine.query_batch("urls", keys(range.clone()));
                let seen = runtime.block_on(seen);
                seen.unwrap().contains(&false)
            };
            let Some(first) = marked.iter().position(is_lost) else {
                return;
            };
            assert!(first >= stored, "{case}: {first} was stored");
            let age = *last - marked[first].1;
            assert!(age < 2 * SHORT, "{case}: {age:?} of answers");
            taking.fetch_add(1, Ordering::Relaxed);
        },
    );
    let taking = taking.into_inner();
    note(format_args!(
        "power cuts with `interval`: {cuts} cuts, seeds {seeds:?}, {taking} take anything"
    ));
    assert!(taking > cuts / 8, "{taking} cuts that take anything");
}
