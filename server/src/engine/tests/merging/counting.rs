//! Merges of filters that count: the count of each key is the sum of both.

use super::{super::kinds::counts, *};

fn spec() -> SpecRequest {
    SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(1000, 1e-9)
    }
}

/// Adds each key of the range `times` times.
async fn add(engine: &Engine, filter: &str, range: Range<u64>, times: u32) {
    for _ in 0..times {
        engine.add_batch(filter, keys(range.clone())).await.unwrap();
    }
}

#[tokio::test]
async fn counts_of_both_add_up() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", spec()).await.unwrap();
    add(&engine, "urls", 0..10, 2).await;
    engine.copy_filter("urls", "copy").await.unwrap();
    add(&engine, "urls", 5..20, 1).await;
    add(&engine, "copy", 15..30, 3).await;
    let removed = engine.remove_batch("copy", keys(0..3)).await.unwrap();
    assert_eq!(removed, [true; 3]);
    let merged = engine.merge_filters("copy", "urls").await.unwrap();
    assert_eq!(merged.last_store.unwrap().version, merged.version);
    // Later changes are counted on top of that, once.
    add(&engine, "urls", 25..35, 1).await;
    let mut expected = Vec::new();
    for (count, times) in [
        // The key was added twice here, and once there.
        (3, 3),
        (2 + 2, 2),
        (3 + 2, 5),
        (1, 5),
        (1 + 3, 5),
        (3, 5),
        (3 + 1, 5),
        (1, 5),
        (0, 5),
    ] {
        expected.extend(vec![count; times]);
    }
    let again = start(&disk.kill(), Durability::Always).await.unwrap();
    engine.store("urls").await.unwrap();
    let stored = start(&disk.kill(), Durability::Always).await.unwrap();
    for engine in [&engine, &again, &stored] {
        assert_eq!(counts(engine, "urls", 0..40).await, expected);
        let empty = engine.get_filter("urls").await.unwrap();
        assert_eq!(empty.fill_ratio, 0.0);
        // The source has not changed.
        let own = [vec![1; 3], vec![2; 7], vec![0; 5], vec![3; 15]].concat();
        assert_eq!(counts(engine, "copy", 0..30).await, own);
    }
}

/// A repeated merge counts again. A counter at its maximum stays there.
#[tokio::test]
async fn counters_that_come_to_their_end_are_told_of() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    engine.create_filter("urls", spec()).await.unwrap();
    // Only one key: two can share a counter by chance.
    add(&engine, "urls", 0..1, 4).await;
    engine.copy_filter("urls", "copy").await.unwrap();
    let mut saturated = Vec::new();
    for _ in 0..3 {
        let merged = engine.merge_filters("copy", "urls").await.unwrap();
        saturated.push(merged.saturated_counters);
    }
    assert_eq!(saturated[..2], [0, 0]);
    assert!(saturated[2] > 0);
    let again = start(&disk.kill(), Durability::Always).await.unwrap();
    for engine in [&engine, &again] {
        let status = engine.get_filter("urls").await.unwrap();
        assert_eq!(status.saturated_counters, saturated[2]);
        assert!(!engine.remove("urls", &key(0)).await.unwrap());
        assert_eq!(seen(engine, "urls", 0..1).await, 1);
    }
}

/// Keys are counted up and down while the power is cut at any call of a merge. After it each key
/// has its count. The keys of the other filter were counted once, or none of them was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_leaves_all_counts_of_a_merge_or_none() {
    let mut chance = Rng::with_seed(2);
    let mut found = [0, 0];
    for call in 0.. {
        let disk = SimulatedDisk::default();
        let engine = filled(&disk, &Sample::counting()).await;
        let before = disk.calls();
        disk.fail(before + call, 1, Fault::PowerCut);
        let merge = {
            let engine = engine.clone();
            tokio::spawn(async move { engine.merge_filters("copy", "urls").await })
        };
        // The keys 40 to 49 are counted up. The keys 20 to 29, which only this filter has, are
        // counted down and up. The last call is in doubt.
        let mut up = Vec::new();
        let mut doubted = None;
        for index in (0..10).cycle() {
            match engine.add("urls", &key(40 + index)).await {
                Ok(()) => up.push(index),
                Err(_) => {
                    doubted = Some(index);
                    break;
                }
            }
            if engine.remove("urls", &key(20 + index)).await.is_ok() {
                let _ = engine.add("urls", &key(20 + index)).await;
            }
            // The counters cannot hold more.
            if merge.is_finished() || up.len() == 100 {
                break;
            }
        }
        let merged = merge.await.unwrap();
        let used = disk.calls() - before;
        drop(engine);
        for cut in 0..8 {
            let after = match cut % 2 {
                0 => disk.cut(&mut chance),
                _ => disk.kill().cut(&mut chance),
            };
            let case = format!("call {call}, cut {cut}");
            let engine = start(&after, Durability::Always).await.unwrap();
            let taken = counts(&engine, "urls", 30..40).await;
            let times = taken[0];
            assert_eq!(taken, [times; 10], "{case}");
            assert!(times == 1 || times == 0 && merged.is_err(), "{case}");
            found[times as usize] += 1;
            let counted = counts(&engine, "urls", 40..50).await;
            for (index, count) in (0..).zip(counted) {
                let known = up.iter().filter(|&&other| other == index).count() as u32;
                let known = known + times;
                let most = known + u32::from(doubted == Some(index));
                let holds = count >= known && count <= most;
                assert!(holds, "{case}: {index}: {count} of {known}");
            }
            let both = counts(&engine, "urls", 0..10).await;
            assert_eq!(both, [1 + times; 10], "{case}");
            assert_eq!(counts(&engine, "urls", 10..20).await, [1; 10], "{case}");
            // At most one call for these keys was not answered.
            let moved = counts(&engine, "urls", 20..30).await;
            let changed = moved.iter().filter(|&&count| count != 1).count();
            assert!(
                changed <= 1 && moved.iter().all(|&count| count <= 2),
                "{case}: {moved:?}"
            );
        }
        if merged.is_ok() && used < call {
            break;
        }
    }
    assert!(found[0] > 0 && found[1] > 0, "{found:?}");
}

/// Both filters are counted up and down, and merged again and again. No key is counted twice or
/// forgotten, neither here nor after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_go_on_while_filters_are_merged() {
    const MERGES: u32 = 3;
    let disk = SimulatedDisk::default();
    let engine = start(&disk, INTERVAL).await.unwrap();
    let spec = SpecRequest {
        capacity: 200_000,
        ..spec()
    };
    engine.create_filter("urls", spec).await.unwrap();
    engine.copy_filter("urls", "copy").await.unwrap();
    add(&engine, "copy", 0..100, 1).await;
    let writer = |first: u64| {
        let engine = engine.clone();
        tokio::spawn(async move {
            // Each key ends with its first count, except one key that stays.
            for round in 0..400 {
                let batch = keys(first + round..first + round + 20);
                engine.add_batch("urls", batch.clone()).await.unwrap();
                let removed = engine.remove_batch("urls", batch).await.unwrap();
                assert_eq!(removed, [true; 20]);
                engine.add("urls", &key(first + round)).await.unwrap();
            }
        })
    };
    // The first writer uses keys of the other filter.
    let writers = [writer(0), writer(1000), writer(2000)];
    for _ in 0..MERGES {
        engine.merge_filters("copy", "urls").await.unwrap();
    }
    for joined in join_all(writers).await {
        joined.unwrap();
    }
    let again = start(&disk.kill(), INTERVAL).await.unwrap();
    engine.store("urls").await.unwrap();
    let stored = start(&disk.kill(), INTERVAL).await.unwrap();
    for engine in [&engine, &again, &stored] {
        for first in [0, 1000, 2000] {
            let found = counts(engine, "urls", first..first + 500).await;
            for (index, count) in (0..).zip(found) {
                let merged = if first + index < 100 { MERGES } else { 0 };
                assert_eq!(count, merged + u32::from(index < 400), "{first} + {index}");
            }
        }
    }
}
