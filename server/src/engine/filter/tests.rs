//! One winner, versions, and snapshots under load.

use std::{
    collections::HashSet,
    io,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    task::{Context, Waker},
    thread,
};

mod merge_plan;
mod shards;
mod status;
mod tally;
mod versions;

use super::{counters::Usage, *};
use crate::{
    engine::call::{Action, barrier::WriteBarrier},
    filter::spec::{BodySpec, Kind, Layout, SpecRequest},
    store::{
        Counted, DataDirectory, Direction, Disk, RecordHead, RecordKind,
        simulated::{Fault, SimulatedDisk},
    },
};

/// The writes by their names.
impl Filter {
    fn query_and_add(
        &self,
        key: &[u8],
        change: WriteContext<'_>,
    ) -> Result<Answer<bool>, EngineError> {
        self.write(key, Action::QueryAndAdd, change)
    }

    fn add(&self, key: &[u8], change: WriteContext<'_>) -> Result<Answer<bool>, EngineError> {
        self.write(key, Action::Add, change)
    }

    fn remove(&self, key: &[u8], change: WriteContext<'_>) -> Result<Answer<bool>, EngineError> {
        self.write(key, Action::Remove, change)
    }

    fn query_and_add_batch(
        &self,
        keys: &impl crate::engine::Keys,
        change: WriteContext<'_>,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        self.write_batch(keys, Action::QueryAndAdd, change)
    }

    fn add_batch(
        &self,
        keys: &impl crate::engine::Keys,
        change: WriteContext<'_>,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        self.write_batch(keys, Action::Add, change)
    }

    fn remove_batch(
        &self,
        keys: &impl crate::engine::Keys,
        change: WriteContext<'_>,
    ) -> Result<Answer<Vec<bool>>, EngineError> {
        self.write_batch(keys, Action::Remove, change)
    }
}

fn filter(layout: Layout, capacity: u64) -> Filter {
    filter_of(&SpecRequest {
        layout,
        ..SpecRequest::new(capacity, 0.001)
    })
}

fn filter_of(request: &SpecRequest) -> Filter {
    filter_with(request.resolve().unwrap())
}

fn filter_with(spec: FilterSpec) -> Filter {
    Filter::new(
        FilterId(1),
        "urls".parse().unwrap(),
        spec,
        Secret::new([9; 16]),
        SystemTime::now(),
        &MemoryBudget::new(1 << 30),
        &Clock::default(),
    )
    .unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn store(filter: &Filter, directory: &DataDirectory) -> Option<StoreReport> {
    store_while(filter, directory, &WriteBarrier::default())
}

fn store_while(
    filter: &Filter,
    directory: &DataDirectory,
    barrier: &WriteBarrier,
) -> Option<StoreReport> {
    let lock = block_on(filter.snapshot_lock());
    filter.store(directory, barrier, lock).unwrap()
}

fn key(index: usize) -> String {
    format!("https://example.com/{index}")
}

#[test]
fn every_way_to_ask_agrees() {
    for layout in Layout::OWN {
        let filter = filter(layout, 1000);
        assert!(!filter.query(b"a", None).value);
        assert!(
            !filter
                .query_and_add(b"a", WriteContext::default())
                .unwrap()
                .value
        );
        assert!(
            filter
                .query_and_add(b"a", WriteContext::default())
                .unwrap()
                .value
        );
        assert!(filter.query(b"a", None).value);
        filter.add(b"b", WriteContext::default()).unwrap();
        assert_eq!(
            filter.query_batch(&vec!["a", "b", "c"], None).value,
            [true, true, false]
        );
        filter
            .add_batch(&vec!["c", "a"], WriteContext::default())
            .unwrap();
        assert_eq!(
            filter
                .query_and_add_batch(&vec!["c", "d", "d", "a"], WriteContext::default())
                .unwrap()
                .value,
            [true, false, true, true]
        );
        assert!(
            filter
                .query_and_add_batch(&Vec::<&str>::new(), WriteContext::default())
                .unwrap()
                .value
                .is_empty()
        );
        let status = filter.status();
        assert_eq!(status.keys_added, 4);
        assert_eq!(
            status.usage,
            Usage {
                queries: 4 + 3 + 4,
                hits: 2 + 2 + 3
            }
        );
    }
}

/// Threads race with single calls and with batches in opposite orders. For each key, exactly one
/// call gets the answer that it is new.
#[test]
fn one_winner() {
    for layout in Layout::OWN {
        let filter = filter(layout, 1_000_000);
        let keys: Vec<String> = (0..20_000).map(key).collect();
        let backwards: Vec<String> = keys.iter().rev().cloned().collect();
        let wins: Vec<AtomicUsize> = keys.iter().map(|_| AtomicUsize::new(0)).collect();
        let won = |index: usize| {
            wins[index].fetch_add(1, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for racer in 0..8 {
                let (filter, keys, backwards, won) = (&filter, &keys, &backwards, &won);
                scope.spawn(move || match racer % 3 {
                    0 => (0..keys.len())
                        .filter(|&i| {
                            !filter
                                .query_and_add(keys[i].as_bytes(), WriteContext::default())
                                .unwrap()
                                .value
                        })
                        .for_each(won),
                    1 => (0..keys.len())
                        .zip(keys.chunks(100).flat_map(|keys| {
                            filter
                                .query_and_add_batch(&keys.to_vec(), WriteContext::default())
                                .unwrap()
                                .value
                        }))
                        .for_each(|(i, seen)| {
                            if !seen {
                                won(i)
                            }
                        }),
                    _ => (0..keys.len())
                        .rev()
                        .zip(backwards.chunks(77).flat_map(|keys| {
                            filter
                                .query_and_add_batch(&keys.to_vec(), WriteContext::default())
                                .unwrap()
                                .value
                        }))
                        .for_each(|(i, seen)| {
                            if !seen {
                                won(i)
                            }
                        }),
                });
            }
        });
        let lost = wins
            .iter()
            .filter(|wins| wins.load(Ordering::Relaxed) == 0)
            .count();
        assert!(
            wins.iter().all(|wins| wins.load(Ordering::Relaxed) <= 1),
            "{layout}: two winners"
        );
        // A key that is new to nobody is a false positive. There are almost none in a filter so
        // empty.
        assert!(lost <= 1, "{layout}: {lost} keys without a winner");
        assert_eq!(filter.status().keys_added as usize, keys.len() - lost);
    }
}

/// Two threads ask for the same `keys_at_once` keys at the same moment, and then for the next.
fn race_in_step(keys_at_once: usize, ask: impl Fn(&Filter, Vec<String>) -> Vec<bool> + Sync) {
    const KEYS: usize = 20_000;
    let filter = filter(Layout::Blocked, 1_000_000);
    let arrived = AtomicUsize::new(0);
    let race = || {
        let mut won = HashSet::new();
        for (step, first) in (0..KEYS).step_by(keys_at_once).enumerate() {
            arrived.fetch_add(1, Ordering::AcqRel);
            let mut patience = 200;
            while arrived.load(Ordering::Acquire) < 2 * (step + 1) {
                match patience {
                    0 => thread::yield_now(),
                    _ => patience -= 1,
                }
            }
            let keys = first..first + keys_at_once;
            let seen = ask(&filter, keys.clone().map(key).collect());
            let new = keys.zip(seen).filter(|(_, seen)| !seen);
            won.extend(new.map(|(index, _)| index));
        }
        won
    };
    let [one, other] = thread::scope(|scope| {
        let [one, other] = [scope.spawn(race), scope.spawn(race)];
        [one.join().unwrap(), other.join().unwrap()]
    });
    let twice = one.intersection(&other).count();
    assert_eq!(twice, 0, "keys with two winners");
    // A key that is new to nobody is a false positive.
    assert!(one.len() + other.len() >= KEYS - 1);
}

#[test]
fn one_winner_of_two_in_step() {
    race_in_step(1, |filter, keys| {
        let ask = |key: &String| {
            filter
                .query_and_add(key.as_bytes(), WriteContext::default())
                .unwrap()
                .value
        };
        keys.iter().map(ask).collect()
    });
}

#[test]
fn one_winner_of_two_batches_in_step() {
    race_in_step(8, |filter, keys| {
        filter
            .query_and_add_batch(&keys, WriteContext::default())
            .unwrap()
            .value
    });
}

/// Snapshots that are taken while writers work hold every key that was acknowledged before they
/// began. The versions of the shards show which shards have changed since.
#[test]
fn a_snapshot_holds_all_that_came_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let budget = MemoryBudget::new(1 << 30);
    let (filter, barrier) = (filter(Layout::Blocked, 10_000_000), WriteBarrier::default());
    assert!(filter.shape.shard_count() > 4);
    let (acknowledged, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The number is bounded, because otherwise the checks below would fall further and
            // further behind.
            for batch in 0..3000 {
                let keys: Vec<String> = (batch * 100..(batch + 1) * 100).map(key).collect();
                let pass = barrier.pass().unwrap();
                filter.add_batch(&keys, WriteContext::default()).unwrap();
                drop(pass);
                acknowledged.store((batch + 1) * 100, Ordering::Release);
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..10 {
            let before = acknowledged.load(Ordering::Acquire);
            let version = store_while(&filter, &directory, &barrier).unwrap().version;
            let stored = directory.read_filter(&filter.name()).unwrap().unwrap();
            let restored = Filter::restore(stored, &budget, &Clock::default(), |_| Ok(())).unwrap();
            for index in 0..before {
                assert!(
                    restored.query(key(index).as_bytes(), None).value,
                    "key {index} of {before}"
                );
            }
            assert!(restored.status().version >= version);
            assert!(version as usize >= before / 100);
        }
        done.store(true, Ordering::Relaxed);
    });

    let version = store(&filter, &directory).unwrap().version;
    assert!(!filter.has_changed());
    let stale = |filter: &Filter| -> HashSet<usize> {
        (0..filter.shape.shard_count())
            .filter(|&index| filter.body.shards().unwrap().read(index).state.version > version)
            .collect()
    };
    assert!(stale(&filter).is_empty());
    filter.add(b"one more", WriteContext::default()).unwrap();
    assert!(filter.has_changed());
    let hash = filter.hasher.hash(b"one more");
    assert_eq!(stale(&filter), HashSet::from([filter.shape.shard(hash)]));
}

/// A call in progress may still add keys with a version that the snapshot claims to hold. No later
/// snapshot would look for them.
#[test]
fn a_store_waits_for_the_calls_that_are_under_way_and_they_do_not_for_it() {
    let disk = SimulatedDisk::default();
    let directory = DataDirectory::on(Arc::new(disk.clone())).unwrap();
    let (filter, barrier) = (filter(Layout::Blocked, 1000), WriteBarrier::default());
    store(&filter, &directory);
    let files = disk.names().unwrap();
    thread::scope(|scope| {
        let permit = barrier.pass().unwrap();
        let first = filter
            .add(b"the first of a batch", WriteContext::default())
            .unwrap();
        let storing = scope.spawn(|| store_while(&filter, &directory, &barrier).unwrap());
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(disk.names().unwrap(), files);
        // A call that begins meanwhile.
        drop(barrier.pass().unwrap());
        drop(permit);
        assert_eq!(storing.join().unwrap().version, first.depends_on);
    });
}

/// A snapshot after a small change holds the changed shards and one or two old ones. It is read
/// together with the earlier snapshots.
#[test]
fn a_snapshot_holds_what_has_changed() {
    let disk = SimulatedDisk::default();
    let directory = DataDirectory::on(Arc::new(disk)).unwrap();
    let filter = filter(Layout::Blocked, 100_000_000);
    let shards = filter.shape.shard_count() as u64;
    assert!(shards > 40);
    filter
        .add_batch(
            &(0..10_000).map(key).collect::<Vec<_>>(),
            WriteContext::default(),
        )
        .unwrap();
    let all = store(&filter, &directory).unwrap();
    filter.add(b"one more", WriteContext::default()).unwrap();
    let change = store(&filter, &directory).unwrap();
    assert!(change.written_bytes > 0);
    let is_small = |change: StoreReport| {
        let copied = 1 + shards.div_ceil(100);
        change.written_bytes * shards < all.written_bytes * copied * 11 / 10
    };
    assert!(is_small(change));
    let nothing = store(&filter, &directory).unwrap();
    assert_eq!((nothing.version, nothing.written_bytes), (2, 0));

    let stored = directory.read_filter(&filter.name()).unwrap().unwrap();
    let restored = Filter::restore(
        stored,
        &MemoryBudget::new(1 << 30),
        &Clock::default(),
        |_| Ok(()),
    )
    .unwrap();
    assert!(!restored.has_changed());
    assert_eq!(restored.status().keys_added, filter.status().keys_added);
    assert!(restored.query(b"one more", None).value);
    assert!((0..10_000).all(|index| restored.query(key(index).as_bytes(), None).value));
    // The restored filter knows which shards are on the disk.
    restored.add(b"another", WriteContext::default()).unwrap();
    let change = store(&restored, &directory).unwrap();
    assert!(is_small(change));
}

/// The changes of a store that failed are in the next one.
#[test]
fn a_store_that_fails_is_made_again_in_full() {
    let stored_once = || {
        let disk = SimulatedDisk::default();
        let directory = DataDirectory::on(Arc::new(disk.clone())).unwrap();
        let filter = filter(Layout::Blocked, 1000);
        store(&filter, &directory);
        filter.add(b"a", WriteContext::default()).unwrap();
        (disk, directory, filter)
    };
    let again = |filter: &Filter, directory: &DataDirectory| {
        filter.store(
            directory,
            &WriteBarrier::default(),
            block_on(filter.snapshot_lock()),
        )
    };
    let (disk, directory, filter) = stored_once();
    let before = disk.calls();
    again(&filter, &directory).unwrap();
    let (calls, mut failed) = (disk.calls() - before, 0);
    for call in 0..calls {
        let (disk, directory, filter) = stored_once();
        disk.fail(before + call, 1, Fault::Error(io::ErrorKind::Other));
        if again(&filter, &directory).is_err() {
            failed += 1;
            assert!(filter.has_changed(), "call {call}");
            again(&filter, &directory).unwrap();
        }
        let reader = directory.read_filter(&filter.name()).unwrap().unwrap();
        let restored = Filter::restore(
            reader,
            &MemoryBudget::new(1 << 30),
            &Clock::default(),
            |_| Ok(()),
        );
        assert!(restored.unwrap().query(b"a", None).value, "call {call}");
    }
    assert!(failed > 5, "{failed} of {calls} calls");
}

#[test]
fn a_deleted_filter_is_not_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let filter = filter(Layout::Blocked, 1000);
    assert!(store(&filter, &directory).is_some());
    assert!(
        filter
            .delete(&directory, block_on(filter.snapshot_lock()))
            .unwrap()
    );
    assert!(store(&filter, &directory).is_none());
    assert!(directory.filters().is_empty());

    // The snapshot of another filter that has the name now is not removed either.
    let another = self::filter(Layout::Classic, 1000);
    store(&another, &directory).unwrap();
    assert!(
        !filter
            .delete(&directory, block_on(filter.snapshot_lock()))
            .unwrap()
    );
    assert_eq!(directory.filters(), [another.name().clone()]);
}

/// A caller that asked before a snapshot began shares it. A caller that asks later does not.
#[test]
fn callers_share_a_snapshot_that_holds_what_they_were_told() {
    let dir = tempfile::tempdir().unwrap();
    let directory = DataDirectory::open(dir.path()).unwrap();
    let filter = filter(Layout::Blocked, 1000);
    filter.add(b"a", WriteContext::default()).unwrap();
    let first = block_on(filter.snapshot_lock());
    let mut second = Box::pin(filter.snapshot_lock());
    let polled = second
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "two have a lock");

    let barrier = WriteBarrier::default();
    let written = filter.store(&directory, &barrier, first).unwrap();
    let second = block_on(second);
    let shared = filter.store(&directory, &barrier, second).unwrap();
    // Equal to the nanosecond of its duration.
    assert_eq!(shared, written);

    let again = store(&filter, &directory);
    assert_eq!(again.as_ref().map(|report| report.version), Some(1));
    assert_ne!(again, written);
}

/// A shard that has no keys any more keeps its version. Otherwise replay would count its old
/// changes again.
#[test]
fn a_shard_that_is_empty_again_is_stored_as_such() {
    let disk = SimulatedDisk::default();
    let directory = DataDirectory::on(Arc::new(disk)).unwrap();
    let filter = filter_of(&SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(1000, 1e-9)
    });
    filter.add(b"a", WriteContext::default()).unwrap();
    store(&filter, &directory).unwrap();
    let removed = filter
        .remove_batch(&vec!["a"], WriteContext::default())
        .unwrap();
    assert_eq!((removed.value, removed.depends_on), (vec![true], 2));
    store(&filter, &directory).unwrap();

    let stored = directory.read_filter(&filter.name()).unwrap().unwrap();
    let restored = Filter::restore(
        stored,
        &MemoryBudget::new(1 << 30),
        &Clock::default(),
        |_| Ok(()),
    )
    .unwrap();
    assert!(!restored.query(b"a", None).value);
    let hash = restored.hash(b"a");
    let replay = |version| {
        let direction = Direction::Up;
        let head = RecordHead {
            kind: RecordKind::Counted(Counted {
                direction,
                since: 0,
            }),
            ..RecordHead::added(restored.id(), version)
        };
        restored.replay(&head, &[hash]).unwrap();
    };
    for version in 1..=2 {
        replay(version);
        assert!(!restored.query(b"a", None).value, "version {version}");
    }
    replay(3);
    assert!(restored.query(b"a", None).value);
}
