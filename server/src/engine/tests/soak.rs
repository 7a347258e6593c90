//! Filters of every kind against an exact model: what must be there is, over any number of
//! operations, restarts and crashes.
//!
//! `SEENSET_SOAK_KEYS=100000000 cargo test --release -p seenset-server --lib -- --nocapture soak`
//! does a hundred million with each kind.

use std::{env, time::Duration};

use super::*;
use crate::store::simulated::{Chance, SimulatedDisk};

/// The keys that there are; the filters are made for as many.
const KEYS: u64 = 100_000;
const BATCH_KEYS: usize = 1000;
/// The operations where nothing else is said: keys that something is done with.
const OPERATIONS: u64 = 2_000_000;
/// Saturated counters would not be counted down.
const MOST_TIMES: u64 = 5;
const SLICE: Duration = Duration::from_secs(3600);

/// What is known of a key: how often it was added and not removed, or the epoch at which it was
/// added last, plus one. 0 if it need not be there.
type Known = u64;

/// An exact model of a filter, and what may be done with that.
struct Model {
    kind: Kind,
    known: Vec<Known>,
    epoch: u64,
    /// Keys that were asked for and need not be there, and those of them that were seen.
    absent: u64,
    false_positives: u64,
}

impl Model {
    fn is_there(&self, key: u64) -> bool {
        let known = self.known[key as usize];
        match self.kind {
            Kind::Plain | Kind::Counting | Kind::Scaling(_) => known > 0,
            Kind::Aging(aging) => known > 0 && known - 1 + u64::from(aging.slices) >= self.epoch,
        }
    }

    /// Adds a key that was told to be seen, or not, or nothing of.
    fn add(&mut self, key: u64, told: Option<bool>) {
        let known = &mut self.known[key as usize];
        match (self.kind, told) {
            // One that is seen by chance is not added, unless that renews it.
            (Kind::Plain | Kind::Counting | Kind::Scaling(_), Some(true)) => {}
            (Kind::Aging(aging), Some(true)) if !aging.refresh => {}
            (Kind::Plain | Kind::Scaling(_), _) => *known = 1,
            (Kind::Counting, _) => *known += 1,
            (Kind::Aging(_), _) => *known = self.epoch + 1,
        }
    }

    /// Notes what was told of a key.
    fn check(&mut self, key: u64, seen: bool) {
        if self.is_there(key) {
            assert!(seen, "{key} is forgotten: {:?}", self.known[key as usize]);
            return;
        }
        self.absent += 1;
        self.false_positives += u64::from(seen);
    }
}

fn name(key: u64) -> String {
    format!("https://example.com/{key}")
}

async fn start(disk: &SimulatedDisk, clock: &Clock) -> Engine {
    let directory = DataDirectory::on(Arc::new(disk.clone())).unwrap();
    let settings = Settings {
        segment_bytes: 4 << 20,
        ..super::durability::settings(INTERVAL)
    };
    let engine = Engine::with_clock(directory, settings, clock.clone());
    engine.recover(None).await.unwrap();
    engine
}

/// Keys that may have something done to them, each once.
fn pick(chance: &mut Chance, may: impl Fn(u64) -> bool) -> Vec<u64> {
    let most = 1 + chance.below(BATCH_KEYS as u64) as usize;
    let first = chance.below(KEYS);
    // Neighbours, with gaps.
    let step = 1 + chance.below(9);
    let keys = (0..most as u64 * 2).map(|place| (first + place * step) % KEYS);
    keys.filter(|&key| may(key)).take(most).collect()
}

async fn soak(request: SpecRequest, operations: u64) {
    let (clock, hand) = Clock::by_hand();
    hand.set(SLICE * 1000);
    let mut disk = SimulatedDisk::default();
    let mut engine = start(&disk, &clock).await;
    engine.create_filter("urls", request.clone()).await.unwrap();
    let mut chance = Chance::new(7);
    let mut model = Model {
        kind: request.kind,
        known: vec![0; KEYS as usize],
        epoch: 1000,
        absent: 0,
        false_positives: 0,
    };
    let (mut done, mut starts) = (0, 0);
    while done < operations {
        match chance.below(400) {
            0 => {
                engine.store("urls").await.unwrap();
            }
            1 => {
                // A clean stop.
                engine.close();
                engine.store("urls").await.unwrap();
                drop(engine);
                engine = start(&disk, &clock).await;
                starts += 1;
            }
            2 => {
                disk = disk.kill();
                engine = start(&disk, &clock).await;
                starts += 1;
            }
            3..7 => {
                model.epoch += 1;
                hand.advance(SLICE);
            }
            7..150 => {
                let keys = pick(&mut chance, |_| true);
                let names: Vec<String> = keys.iter().map(|&key| name(key)).collect();
                let seen = engine.query_batch("urls", names).await.unwrap();
                keys.iter()
                    .zip(seen)
                    .for_each(|(&key, seen)| model.check(key, seen));
                done += keys.len() as u64;
            }
            150..250 if request.kind == Kind::Counting => {
                let keys = pick(&mut chance, |key| model.is_there(key));
                let names: Vec<String> = keys.iter().map(|&key| name(key)).collect();
                let removed = engine.remove_batch("urls", names).await.unwrap();
                assert!(removed.iter().all(|&removed| removed));
                keys.iter().for_each(|&key| model.known[key as usize] -= 1);
                done += keys.len() as u64;
            }
            action => {
                let may = |key| {
                    // A plain filter would soon have all there are.
                    let is_kept = matches!(request.kind, Kind::Plain | Kind::Scaling(_));
                    let spares = !is_kept || key % 4 < 2;
                    let is_counted = request.kind == Kind::Counting;
                    spares && !(is_counted && model.known[key as usize] >= MOST_TIMES)
                };
                let keys = pick(&mut chance, may);
                let names: Vec<String> = keys.iter().map(|&key| name(key)).collect();
                done += keys.len() as u64;
                if action % 2 == 0 {
                    engine.add_batch("urls", names).await.unwrap();
                    keys.iter().for_each(|&key| model.add(key, None));
                    continue;
                }
                let seen = engine.query_and_add_batch("urls", names).await.unwrap();
                for (&key, seen) in keys.iter().zip(seen) {
                    model.check(key, seen);
                    model.add(key, Some(seen));
                }
            }
        }
    }
    let rate = model.false_positives as f64 / model.absent as f64;
    println!(
        "{}: {done} keys, {starts} starts; of {} that were not there {} seen, {rate:.2e}",
        request.kind, model.absent, model.false_positives
    );
    assert!(rate <= 0.001, "{}: {rate}", request.kind);
}

#[tokio::test]
async fn what_must_be_there_is_there_whatever_happens() {
    let operations = env::var("SEENSET_SOAK_KEYS").map_or(OPERATIONS, |keys| keys.parse().unwrap());
    let ages = |refresh| {
        Kind::Aging(Aging {
            max_age: SLICE * 8,
            slices: 8,
            refresh,
        })
    };
    for (kind, layout) in [
        (Kind::Plain, Layout::Blocked),
        (Kind::Plain, Layout::Classic),
        (Kind::Counting, Layout::Blocked),
        (ages(false), Layout::Blocked),
        (ages(true), Layout::Blocked),
        (Kind::Plain, Layout::Guava),
    ] {
        let request = SpecRequest {
            kind,
            layout,
            hash_function: layout.hash_function(),
            ..SpecRequest::new(KEYS, 0.001)
        };
        soak(request, operations).await;
    }
    let in_layers = SpecRequest {
        kind: Kind::Scaling(OnFull::Scale(Scaling::default())),
        ..SpecRequest::new(KEYS / 64, 0.001)
    };
    soak(in_layers, operations).await;
}
