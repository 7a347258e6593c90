//! Acknowledged keys are found after a crash, on a disk that keeps no more than it must.

use std::{
    fmt::Display,
    io::Write,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use fastrand::Rng;
use tokio::runtime::Runtime;

use super::{
    workload::{Told, check, work},
    *,
};
use crate::store::simulated::{Fault, SimulatedDisk};

pub(super) fn settings(durability: Durability) -> Settings {
    Settings {
        limits: Limits {
            max_key_bytes: 100,
            max_batch_keys: 1000,
            max_filters: Limits::MAX_FILTERS,
        },
        max_memory_bytes: 1 << 30,
        durability,
        segment_bytes: 64 << 10,
        requests: RequestLimits {
            keys: 1000,
            ..RequestLimits::default()
        },
    }
}

fn on(disk: &SimulatedDisk, durability: Durability) -> Result<Engine, EngineError> {
    let directory = DataDirectory::on(Arc::new(disk.clone()))?;
    Ok(Engine::new(directory, settings(durability)))
}

pub(super) async fn start(
    disk: &SimulatedDisk,
    durability: Durability,
) -> Result<Engine, EngineError> {
    let engine = on(disk, durability)?;
    engine.recover(None).await?;
    Ok(engine)
}

pub(super) fn key(index: u64) -> String {
    format!("https://example.com/{index}")
}

#[tokio::test]
async fn a_killed_process_loses_nothing_and_a_snapshot_alone_does() {
    for (durability, survives) in [
        (Durability::Always, true),
        (INTERVAL, true),
        (Durability::Snapshot, false),
    ] {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, durability).await.unwrap();
        engine.create_filter("urls", small()).await.unwrap();
        assert!(!engine.query_and_add("urls", "a").await.unwrap());
        engine.add_batch("urls", vec!["b", "c"]).await.unwrap();
        let killed = disk.kill();
        let engine = start(&killed, durability).await.unwrap();
        let seen = engine.query_batch("urls", vec!["a", "b", "c", "d"]).await;
        let expected = [survives, survives, survives, false];
        assert_eq!(seen.unwrap(), expected, "{durability:?}");
        let status = engine.get_filter("urls").await.unwrap();
        assert_eq!(status.keys_added, if survives { 3 } else { 0 });
        assert_eq!(status.version, if survives { 2 } else { 0 });

        // The log continues from there, and does not need the records that are stored.
        engine.add("urls", "e").await.unwrap();
        engine.store("urls").await.unwrap();
        engine.add("urls", "f").await.unwrap();
        let killed = killed.kill();
        let engine = start(&killed, durability).await.unwrap();
        let seen = engine.query_batch("urls", vec!["e", "f"]).await.unwrap();
        assert_eq!(seen, [true, survives], "{durability:?}");
    }
}

/// A start that takes long reports its progress.
#[tokio::test]
async fn a_start_tells_how_far_it_has_come() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    let large = SpecRequest::new(250_000, 0.001);
    engine.create_filter("urls", large).await.unwrap();
    engine.add("urls", "a").await.unwrap();
    engine.store("urls").await.unwrap();
    for number in 0..250 {
        let keys: Vec<String> = (0..1000).map(|i| key(number * 1000 + i)).collect();
        engine.add_batch("urls", keys).await.unwrap();
    }
    let killed = disk.kill();
    let engine = on(&killed, INTERVAL).unwrap();
    let mut seen = Vec::new();
    let recovered = engine
        .catalog
        .recover(&mut |progress: &Progress| seen.push(progress.clone()));
    assert_eq!(recovered.unwrap().filters.len(), 1);
    let (log, filters): (Vec<_>, Vec<_>) = seen
        .into_iter()
        .partition(|progress| progress.filter.is_none());
    assert!(
        filters
            .iter()
            .any(|progress| progress.read_bytes == progress.bytes)
    );
    assert!(log.len() > 2 && log.is_sorted_by_key(|progress| progress.read_bytes));
    assert!(
        log.iter()
            .all(|progress| progress.read_bytes <= progress.bytes)
    );
}

#[tokio::test]
async fn a_log_that_is_switched_on_and_off_loses_nothing() {
    let disk = SimulatedDisk::default();
    let mut expected = Vec::new();
    for (round, durability) in [
        Durability::Snapshot,
        INTERVAL,
        Durability::Snapshot,
        Durability::Always,
        INTERVAL,
    ]
    .into_iter()
    .enumerate()
    {
        let engine = start(&disk, durability).await.unwrap();
        engine.create_filter("urls", small()).await.unwrap();
        let seen = engine.query_batch("urls", expected.clone()).await.unwrap();
        assert!(seen.iter().all(|&seen| seen), "round {round}");
        let key = key(round as u64);
        engine.add("urls", &key).await.unwrap();
        if durability == Durability::Snapshot {
            engine.store("urls").await.unwrap();
        }
        expected.push(key);
    }
}

/// The number of power cuts of a run without `SEENSET_CUTS`.
const DEFAULT_CUTS: u64 = 5_000;

/// Returns the number of power cuts: `SEENSET_CUTS=1000000` for a long run.
pub(super) fn cuts() -> u64 {
    number("SEENSET_CUTS").unwrap_or(DEFAULT_CUTS)
}

/// Returns the number of seeds for tests that cut the power at every call of a seed: one, and in a
/// long run one for each [`DEFAULT_CUTS`].
pub(super) fn seeds() -> u64 {
    cuts().div_ceil(DEFAULT_CUTS)
}

/// Returns the first seed: `SEENSET_SEED=20000` to continue where another run has ended.
fn first_seed() -> u64 {
    number("SEENSET_SEED").unwrap_or(0)
}

/// Returns the number in an environment variable.
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The number of workloads at once: their threads wait for each other most of the time.
pub(super) const AT_ONCE: usize = 8;

/// One in this number of seeds has its tasks race on threads.
pub(super) const THREADED_IN: u64 = 4;

/// Returns a runtime with one thread: its tasks interleave only where they wait.
pub(super) fn one_thread() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

/// Returns a runtime with several threads: its tasks interleave anywhere.
pub(super) fn threads() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_time().build().unwrap()
}

/// A flag that a thread of a test sets when it panics. The other threads read it, and end early.
#[derive(Default)]
pub(super) struct Failed(AtomicBool);

impl Failed {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that sets the flag if this thread panics while it holds the guard.
    pub(super) fn on_panic(&self) -> impl Drop {
        struct OnPanic<'a>(&'a AtomicBool);

        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                if thread::panicking() {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }

        OnPanic(&self.0)
    }
}

/// Runs several threads, each with a runtime of either kind. Each calls `go_on` until it returns
/// `false`, or until a call has panicked on one of the threads.
fn at_once(go_on: impl Fn(&[Runtime; 2], &Failed) -> bool + Sync) {
    let failed = Failed::default();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let runtimes = [one_thread(), threads()];
                let _on_panic = failed.on_panic();
                while !failed.is_set() && go_on(&runtimes, &failed) {}
            });
        }
    });
}

/// Prints a line for a test that passes. It bypasses the test harness, which hides output then.
pub(super) fn note(line: impl Display) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

/// Cuts the power `cuts` times during `work`: for one seed after the other, at every `stride`th
/// call to the disk. `check` gets the disk after the cut, the result of `work`, and the name of the
/// case. For some seeds the tasks run on several threads and interleave anywhere. For the other
/// seeds they interleave only where they wait, which is the same each time. Returns the seeds.
pub(super) fn cut_power<T>(
    cuts: u64,
    stride: u64,
    work: impl Fn(&Runtime, &SimulatedDisk, u64) -> T + Sync,
    check: impl Fn(&Runtime, &SimulatedDisk, T, &str) + Sync,
) -> Range<u64> {
    let (first, done) = (first_seed(), AtomicU64::new(0));
    let seeds = AtomicU64::new(first);
    at_once(|runtimes, failed| {
        let seed = seeds.fetch_add(1, Ordering::Relaxed);
        let [one_thread, threads] = runtimes;
        let is_threaded = seed.is_multiple_of(THREADED_IN);
        let runtime = if is_threaded { threads } else { one_thread };
        let disk = SimulatedDisk::default();
        work(runtime, &disk, seed);
        // The first calls are those of a start: each seed begins at another call.
        for call in (seed % stride..disk.calls()).step_by(stride as usize) {
            if failed.is_set() || done.fetch_add(1, Ordering::Relaxed) >= cuts {
                return false;
            }
            let disk = SimulatedDisk::default();
            disk.fail(call, 1, Fault::PowerCut);
            let result = work(runtime, &disk, seed);
            let found = disk.cut(&mut Rng::with_seed(seed ^ call));
            check(
                runtime,
                &found,
                result,
                &format!("seed {seed}, call {call}"),
            );
        }
        true
    });
    first..seeds.into_inner()
}

#[test]
fn a_power_cut_anywhere_loses_nothing_that_was_acknowledged() {
    let (acknowledged, turns) = (AtomicU64::new(0), AtomicU64::new(0));
    let seeds = cut_power(
        cuts(),
        1,
        |runtime, disk, seed| {
            let told = Told::default();
            runtime.block_on(work(disk, Durability::Always, seed, told))
        },
        |runtime, found, told, case| {
            let answered = told.history.iter().filter(|call| call.is_answered());
            acknowledged.fetch_add(answered.count() as u64, Ordering::Relaxed);
            turns.fetch_add(told.generations.answered(), Ordering::Relaxed);
            runtime.block_on(check(found, Durability::Always, told, case));
        },
    );
    let (acknowledged, turns) = (acknowledged.into_inner(), turns.into_inner());
    let cuts = cuts();
    note(format_args!(
        "power cuts with `always`: {cuts} cuts, seeds {seeds:?}, {acknowledged} answers, {turns} \
         filters made or deleted"
    ));
    assert!(acknowledged > cuts, "next to nothing was acknowledged");
    assert!(turns > cuts / 4, "{turns} filters made or deleted");
}

#[test]
fn a_kill_anywhere_loses_nothing_that_was_acknowledged() {
    let runtime = one_thread();
    let (seeds, mut kills) = (0..5, 0);
    for seed in seeds.clone() {
        let disk = SimulatedDisk::default();
        runtime.block_on(work(&disk, INTERVAL, seed, Told::default()));
        for call in 0..disk.calls() {
            let disk = SimulatedDisk::default();
            disk.fail(call, 1, Fault::PowerCut);
            let told = runtime.block_on(work(&disk, INTERVAL, seed, Told::default()));
            let case = format!("seed {seed}, call {call}");
            runtime.block_on(check(&disk.kill(), INTERVAL, told, &case));
            kills += 1;
        }
    }
    note(format_args!(
        "kills with `interval`: {kills} kills, seeds {seeds:?}"
    ));
}

/// The files that a killed process has written are in the page cache only. The next start relies on
/// them, and a power cut can still lose them.
#[test]
fn a_power_cut_after_a_kill_loses_nothing_that_was_acknowledged() {
    let runtime = one_thread();
    let (seeds, mut cuts) = (0..seeds(), 0);
    for seed in seeds.clone() {
        let disk = SimulatedDisk::default();
        let work = |disk: &SimulatedDisk, seed, told| {
            runtime.block_on(work(disk, Durability::Always, seed, told))
        };
        work(&disk, seed, Told::default());
        for call in 0..disk.calls() {
            let mut chance = Rng::with_seed(seed ^ call);
            let disk = SimulatedDisk::default();
            disk.fail(call, 1, Fault::PowerCut);
            let told = work(&disk, seed, Told::default());
            let later = 14 + chance.u64(..60);
            for second in (0..14).chain([later]) {
                let case = format!("seed {seed}, call {call}, then call {second}");
                let disk = disk.kill();
                disk.fail(second, 1, Fault::PowerCut);
                let told = work(&disk, seed + 100, told.clone());
                let found = disk.cut(&mut chance);
                runtime.block_on(check(&found, Durability::Always, told, &case));
                cuts += 1;
            }
        }
    }
    note(format_args!(
        "power cuts after kills, with `always`: {cuts} cuts, seeds {seeds:?}"
    ));
}

/// The manifest that a start relies on may be in the page cache only. Files that it no longer names
/// must not be removed before it is on stable storage.
#[tokio::test]
async fn a_power_cut_after_a_kill_amid_a_store_finds_the_filter() {
    let mut chance = Rng::with_seed(1);
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = start(&disk, Durability::Snapshot).await.unwrap();
        // The filter has one shard: each store writes all of it to another file.
        engine.create_filter("urls", small()).await.unwrap();
        engine.add("urls", "a").await.unwrap();
        engine.store("urls").await.unwrap();
        engine.add("urls", "b").await.unwrap();
        disk.fail(disk.calls() + call, 1, Fault::PowerCut);
        let is_stored = engine.store("urls").await.is_ok();
        let killed = disk.kill();
        start(&killed, Durability::Snapshot).await.unwrap();
        for cut in 0..20 {
            let found = killed.cut(&mut chance);
            let engine = start(&found, Durability::Snapshot).await.unwrap();
            let seen = engine.query("urls", "a").await;
            assert!(matches!(seen, Ok(true)), "call {call}, cut {cut}: {seen:?}");
        }
        if is_stored {
            break;
        }
    }
}
