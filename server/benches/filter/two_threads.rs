//! The gain of a second thread.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Instant,
};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{BATCH, Keys, read};

/// The keys of a turn of a thread that are not timed. The memory for the first keys comes from the
/// allocator, which gets it from the kernel.
const WARM_UP: usize = 10 * BATCH;
/// The number of keys of each of two threads in a turn.
const TURN_OF_TWO: usize = WARM_UP + 50 * BATCH;
const ROUNDS_OF_TWO: usize = 101;
/// The number of keys of all rounds.
pub const KEYS: usize = ROUNDS_OF_TWO * 4 * TURN_OF_TWO;

/// A function that takes keys, for several threads.
pub type Shared<'a> = &'a (dyn Fn(Keys) -> usize + Sync);

/// Gives keys to one thread and to two, in turns, and prints how much more two threads do. Each of
/// the two has a core of its own. The result of one thread is the mean of both cores.
pub fn compare(keys: Keys, contenders: &[(&str, Shared)]) {
    let mut ratios: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for keys in keys.chunks(4 * TURN_OF_TWO) {
        for ((_, take), ratios) in contenders.iter().zip(&mut ratios) {
            let mut turns = keys.chunks(TURN_OF_TWO);
            let mut alone = 0.0;
            for core in [0, 1] {
                alone += rate(take, &[(core, turns.next().unwrap())]) / 2.0;
            }
            let together = [(0, turns.next().unwrap()), (1, turns.next().unwrap())];
            ratios.push(rate(take, &together) / alone);
        }
    }
    println!("  two threads do as much as one, times");
    print_ratios(contenders, &ratios);
    // A host sometimes runs two virtual processors on one core.
    let [limits, ..] = &*ratios else { return };
    let had_two_cores: Vec<bool> = limits.iter().map(|&ratio| ratio >= 1.8).collect();
    for ratios in &mut ratios {
        let mut rounds = had_two_cores.iter();
        ratios.retain(|_| rounds.next() == Some(&true));
    }
    println!(
        "  in the {} of {ROUNDS_OF_TWO} rounds in which the {} does 1.8",
        ratios[0].len(),
        contenders[0].0
    );
    print_ratios(contenders, &ratios);
}

fn print_ratios(contenders: &[(&str, Shared)], ratios: &[Vec<f64>]) {
    for ((name, _), ratios) in contenders.iter().zip(ratios) {
        let mut ratios = ratios.clone();
        ratios.sort_by(f64::total_cmp);
        let at = |share: usize| ratios.get(ratios.len() * share / 100).unwrap_or(&f64::NAN);
        println!("    {name:16} {:6.2} {:8.2} {:8.2}", at(10), at(50), at(90));
    }
}

/// Returns the keys per second of all threads. Each thread has a core and keys of its own. They
/// begin together, and all end when the first has no more keys.
fn rate(take: Shared, threads: &[(usize, Keys)]) -> f64 {
    let (ready, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> = threads
            .iter()
            .map(|&(core, keys)| {
                let (ready, ended) = (&ready, &ended);
                scope.spawn(move || {
                    pin(core);
                    read(keys);
                    let (first, keys) = keys.split_at(WARM_UP);
                    for batch in first.chunks(BATCH) {
                        black_box(take(batch));
                    }
                    ready.fetch_add(1, SeqCst);
                    while ready.load(SeqCst) < threads.len() {
                        spin_loop();
                    }
                    let begun = Instant::now();
                    let mut taken = 0;
                    for batch in keys.chunks(BATCH) {
                        black_box(take(batch));
                        taken += batch.len();
                        if ended.load(Relaxed) {
                            break;
                        }
                    }
                    ended.store(true, Relaxed);
                    taken as f64 / begun.elapsed().as_secs_f64()
                })
            })
            .collect();
        let rates = threads.into_iter().map(|thread| thread.join().unwrap());
        rates.sum()
    })
}

/// Pins this thread to one core.
fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).unwrap();
}
