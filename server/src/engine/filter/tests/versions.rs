//! The versions that calls get, and the changes that are stored at a version.

use super::*;
use crate::engine::commit;

/// The version advances once for a call or batch, and only if the call has changed anything.
#[test]
fn versions_count_changes() {
    let filter = filter(Layout::Blocked, 1000);
    let version = || filter.status().version;
    filter
        .add_batch(&vec!["a", "b", "c"], WriteContext::default())
        .unwrap();
    assert_eq!(version(), 1);
    filter
        .add_batch(&vec!["a", "b", "c"], WriteContext::default())
        .unwrap();
    filter.query_and_add(b"a", WriteContext::default()).unwrap();
    filter.query(b"zz", None);
    assert_eq!(version(), 1);
    filter.query_and_add(b"d", WriteContext::default()).unwrap();
    filter.add(b"e", WriteContext::default()).unwrap();
    assert_eq!(version(), 3);
}

/// This holds even if a thread has leased versions that it has not used.
#[test]
fn each_change_advances_the_version_that_is_told() {
    for kind in [Kind::Plain, Kind::Counting] {
        let filter = filter_of(&SpecRequest {
            kind,
            ..SpecRequest::new(1000, 0.01)
        });
        for index in 0..10 {
            filter.lease_versions();
            let before = filter.status().version;
            let added = filter.add(key(index).as_bytes(), WriteContext::default());
            added.unwrap();
            let version = filter.status().version;
            assert!(version > before, "{index}: {version}, {before} before");
        }
    }
}

/// A version that a thread leased before a merge, or before the last step of a rebuild, is not used
/// for a change after it.
#[test]
fn what_is_held_is_of_no_change_behind_what_is_stored() {
    let directory = DataDirectory::on(Arc::new(SimulatedDisk::default())).unwrap();
    let (barrier, budget) = (WriteBarrier::default(), MemoryBudget::new(1 << 30));
    let name = |name: &str| name.parse::<FilterName>().unwrap();
    let filter = filter(Layout::Blocked, 1000);
    store(&filter, &directory);
    let copied = filter.copy(FilterId(2), name("copy"), &budget, &barrier, None);
    let copy = copied.unwrap();
    copy.add(b"a", WriteContext::default()).unwrap();
    let stored = copy.stored(&directory, &barrier, block_on(copy.snapshot_lock()));
    let stored = stored.unwrap().unwrap();
    filter.lease_versions();
    let lock = block_on(filter.snapshot_lock());
    let merged = filter.merge(&stored, &directory, &barrier, None, lock);
    assert!(merged.unwrap() && !filter.has_changed());
    filter.add(b"b", WriteContext::default()).unwrap();
    assert!(filter.has_changed());

    let (spec, now) = (filter.spec().clone(), SystemTime::now());
    let mirror = filter.mirror(FilterId(3), name("new"), spec, now, &budget);
    let mirror = mirror.unwrap();
    store(&mirror, &directory);
    mirror.lease_versions();
    let [mut its_lock, mut lock] =
        [&filter, &mirror].map(|filter| block_on(filter.snapshot_lock()));
    let taken = mirror.take_place_of(&filter, &mut its_lock, &directory, &mut lock);
    assert!(taken.unwrap().is_some() && !mirror.has_changed());
    mirror.add(b"b", WriteContext::default()).unwrap();
    assert!(mirror.has_changed());
}

/// A batch gets at most as many versions as it has reserved records in the log. An answer depends
/// on removals too.
#[test]
fn a_filter_that_counts_gives_versions_to_each_lock() {
    let counting = SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(2_000_000, 1e-9)
    };
    let journal = commit::tests::start_with(&SimulatedDisk::default(), 1 << 20);
    let mut filter = filter_of(&counting);
    filter.set_log(&journal);
    let change = |filter: &Filter, keys: usize| WriteContext {
        reservation: Some(block_on(journal.reserve(keys, filter.records_of_a_call(keys))).unwrap()),
        ..WriteContext::default()
    };
    let stripes = filter.body.shards().unwrap().locks().len();
    assert!(stripes > 4);
    for count in 1..4 * stripes {
        let keys: Vec<String> = (0..count).map(|i| format!("{count} {i}")).collect();
        let before = filter.status().version;
        let added = filter.add_batch(&keys, change(&filter, count));
        let versions = filter.status().version - before;
        let most = filter.records_of_a_call(count);
        assert!(
            (1..=most as u64).contains(&versions),
            "{versions} of {most}"
        );
        let of_keys = keys.iter().map(|key| {
            let shard = filter.shape.shard(filter.hash(key.as_bytes()));
            filter.body.shards().unwrap().stripe_of(shard)
        });
        assert_eq!(versions as usize, of_keys.collect::<HashSet<_>>().len());
        assert_eq!(added.unwrap().depends_on, before + versions);

        let removed = filter.remove_batch(&keys, change(&filter, count)).unwrap();
        assert!(removed.value.iter().all(|&removed| removed));
        let Answer { value, depends_on } = filter.query_batch(&keys, None);
        assert!(value.iter().all(|&seen| !seen));
        assert_eq!(depends_on, removed.depends_on);
        let last = filter.query(keys[0].as_bytes(), None);
        assert!(!last.value && last.depends_on > before + versions);
    }
}

#[test]
fn a_filter_that_counts_without_a_log_gives_each_call_a_version() {
    let filter = filter_of(&SpecRequest {
        kind: Kind::Counting,
        ..SpecRequest::new(2_000_000, 1e-9)
    });
    let keys: Vec<String> = (0..100).map(key).collect();
    for version in [1, 3] {
        let added = filter.add_batch(&keys, WriteContext::default()).unwrap();
        assert_eq!(
            (added.depends_on, filter.status().version),
            (version, version)
        );
        let removed = filter.remove_batch(&keys, WriteContext::default()).unwrap();
        assert_eq!(removed.depends_on, version + 1);
    }
}
