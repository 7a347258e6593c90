//! What a power cut takes if answers do not wait for the disk.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    durability::{key, start},
    *,
};
use crate::store::simulated::{Chance, SimulatedDisk};

/// Many times what a busy machine may keep a thread waiting.
const INTERVAL: Duration = Duration::from_millis(400);

/// Of a disk that is quick enough no answer is lost that is older than the interval. Of one that is
/// not they may be older, for nobody can sync what it does not; but they were all given within the
/// interval. Both by a bound of two, for what a busy machine keeps a thread waiting.
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
        let large = SpecRequest::new(10_000, 1e-9);
        runtime
            .block_on(engine.create_filter("urls", large))
            .unwrap();
        disk.slow_down(sync_time);
        let (answered, mut lost) = (parking_lot::Mutex::new(Vec::new()), 0);
        let end = Instant::now() + 6 * INTERVAL;
        thread::scope(|scope| {
            scope.spawn(|| {
                for index in 0.. {
                    runtime.block_on(engine.add("urls", &key(index))).unwrap();
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
            let mut chance = Chance::new(1);
            while Instant::now() < end {
                thread::sleep(INTERVAL / 20);
                let answered = answered.lock().clone();
                let cut_at = Instant::now();
                let found = disk.cut(&mut chance);
                let keys: Vec<String> = (0..answered.len() as u64).map(key).collect();
                let engine = runtime.block_on(start(&found, durability)).unwrap();
                let seen: Vec<bool> = runtime.block_on(engine.query_batch("urls", keys)).unwrap();
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
