//! Filters that were salvaged in part, and the keys that they keep.

use super::{
    durability::{key, start},
    kinds::{Sample, counts, keys},
    *,
};
use crate::store::{Disk, Inspection, Salvaged, simulated::SimulatedDisk};

/// Returns the disk of a killed server: a filter with the keys 0 to 9 in a snapshot and 10 to 19
/// only in the log, each added twice.
async fn left(sample: &Sample) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    sample.make(&engine, "urls").await.unwrap();
    for range in [0..10, 10..20] {
        for name in keys(range.clone()).into_iter().chain(keys(range.clone())) {
            engine.add("urls", &name).await.unwrap();
        }
        if range.start == 0 {
            engine.store("urls").await.unwrap();
        }
    }
    disk.kill()
}

/// Flips a bit of a file.
fn damage(disk: &SimulatedDisk, file: &str, at: usize) {
    let mut bytes = disk.contents(file).unwrap();
    bytes[at] ^= 1;
    disk.put(file, &bytes);
}

fn inspect(disk: &SimulatedDisk) -> Inspection {
    Inspection::on(Arc::new(disk.clone())).unwrap()
}

fn salvage(disk: &SimulatedDisk) -> Salvaged {
    inspect(disk).salvage(64 << 10).unwrap()
}

fn newest_snapshot(disk: &SimulatedDisk) -> String {
    let files = disk.names().unwrap().into_iter();
    let snapshots = files.filter(|name| name.contains(".snapshot"));
    snapshots.max().unwrap()
}

/// Damages the last page of the newest snapshot.
fn damage_page(disk: &SimulatedDisk) {
    let file = newest_snapshot(disk);
    let is_page = |at: &usize| {
        let tried = disk.kill();
        damage(&tried, &file, *at);
        let inspection = inspect(&tried);
        // Damage outside a page affects the whole file.
        let mut filters = inspection.filters();
        filters.any(|(_, found)| found.files > 0 && !found.damage.is_none())
    };
    let bytes = disk.contents(&file).unwrap().len();
    let at = (0..bytes).rev().step_by(64).find(is_page).unwrap();
    damage(disk, &file, at);
}

/// Returns the counts of the keys. Checks them again after another key and another kill.
async fn found(disk: &SimulatedDisk, sample: &Sample) -> Vec<u32> {
    let engine = start(disk, Durability::Always).await.unwrap();
    engine.add("urls", &key(20)).await.unwrap();
    let first = counts(&engine, "urls", 0..20).await;
    let engine = start(&disk.kill(), Durability::Always).await.unwrap();
    let again = counts(&engine, "urls", 0..21).await;
    // The count has removed the keys.
    let left = if sample.times(2) == 2 {
        vec![0; 20]
    } else {
        first.clone()
    };
    assert_eq!(again, [left, vec![1]].concat(), "{sample}");
    first
}

/// Keys of a damaged page that are in the log are there again. Counted keys of the page are not
/// counted again.
#[tokio::test]
async fn what_the_log_has_of_a_lost_page_is_there() {
    for sample in Sample::all() {
        let disk = left(&sample).await;
        damage_page(&disk);
        let salvaged = salvage(&disk);
        assert_eq!((salvaged.filters.len(), salvaged.log), (1, false));
        let counts = sample.times(2) == 2;
        let stored = u32::from(!counts);
        let expected = [vec![stored; 10], vec![sample.times(2); 10]].concat();
        assert_eq!(found(&disk, &sample).await, expected, "{sample}");
    }
}

/// The counts of counted keys are unknown if a part of the log is damaged.
#[tokio::test]
async fn what_is_whole_of_a_damaged_log_is_there() {
    for sample in Sample::all() {
        let disk = left(&sample).await;
        let file = "0000000000000001.log";
        let bytes = disk.contents(file).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        damage(&disk, file, end * 4 / 5);
        let salvaged = salvage(&disk);
        assert_eq!((salvaged.filters.len(), salvaged.log), (0, true));
        let found = found(&disk, &sample).await;
        let (stored, logged) = found.split_at(10);
        assert_eq!(stored, [sample.times(2); 10], "{sample}");
        // No batch has more than one key, and counted keys came twice.
        let lost = logged.iter().filter(|&&times| times == 0).count();
        assert!(
            logged.iter().all(|&times| times <= 1),
            "{sample}: {logged:?}"
        );
        let counts = sample.times(2) == 2;
        assert_eq!(lost, usize::from(!counts), "{sample}: {logged:?}");
    }
}

/// Only older snapshots are left of a filter, and the log begins later than they end.
#[tokio::test]
async fn what_the_log_has_behind_a_lost_snapshot_is_there() {
    let disk = SimulatedDisk::default();
    let engine = start(&disk, Durability::Always).await.unwrap();
    // The filter has several shards. One of them has not changed since the first snapshot.
    let spec = SpecRequest {
        kind: Kind::Counting,
        bit_count: Some(1 << 25),
        hash_count: Some(8),
        false_positive_rate: None,
        ..SpecRequest::new(1000, 0.5)
    };
    engine.create_filter("urls", spec).await.unwrap();
    engine.add_batch("urls", keys(0..100)).await.unwrap();
    engine.store("urls").await.unwrap();
    // More records than one segment has room for.
    for _ in 0..1000 {
        engine.add("urls", &key(0)).await.unwrap();
        engine.remove("urls", &key(0)).await.unwrap();
    }
    engine.store("urls").await.unwrap();
    engine.add_batch("urls", keys(100..200)).await.unwrap();
    let disk = disk.kill();
    damage(&disk, &newest_snapshot(&disk), 30);
    let salvaged = salvage(&disk);
    assert_eq!((salvaged.filters.len(), salvaged.log), (1, true));
    let engine = start(&disk, Durability::Always).await.unwrap();
    assert_eq!(counts(&engine, "urls", 100..200).await, [1; 100]);
}
