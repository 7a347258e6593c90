//! The cost of the first keys of a new filter: time, and memory.

use std::{fs, thread, time::Instant};

use seenset_server::{engine::Engine, filter::spec::SpecRequest, store::DataDirectory};

use crate::{
    BATCH, HASH_COUNT,
    ours::{engine, now},
};

const KEYS: usize = 10_000_000;
const ROUNDS: usize = 5;

/// Measures the first keys of new plain filters of `mib` MiB, with one thread that adds them, and
/// then with two.
pub fn measure(mib: usize) {
    let batches: Vec<Vec<String>> = (0..KEYS / BATCH)
        .map(|batch| {
            (0..BATCH)
                .map(|key| format!("https://example.com/{batch}/{key}"))
                .collect()
        })
        .collect();
    println!("\na new filter of {mib} MiB");
    for threads in [1, 2] {
        let mut rows = Vec::new();
        for _ in 0..ROUNDS {
            let dir = tempfile::tempdir().unwrap();
            let engine = new(mib, dir.path());
            let before = resident_kib();
            let begun = Instant::now();
            now(engine.add_batch("", batches[0].clone()));
            let first = begun.elapsed();
            let resident = resident_kib() - before;
            let begun = Instant::now();
            thread::scope(|scope| {
                for part in batches[1..].chunks(batches.len().div_ceil(threads)) {
                    let engine = &engine;
                    scope.spawn(move || {
                        part.iter()
                            .for_each(|batch| now(engine.add_batch("", batch.clone())));
                    });
                }
            });
            rows.push((begun.elapsed(), first, resident));
        }
        rows.sort();
        let (all, ..) = rows[ROUNDS / 2];
        let first = rows.iter().map(|row| row.1).max().unwrap();
        let resident = rows.iter().map(|row| row.2).max().unwrap();
        println!(
            "  {threads} threads: {KEYS} keys in {all:.2?} ({:.2?} to {:.2?}); the first {BATCH} in {first:.2?} \
             at most, {resident} KiB",
            rows[0].0,
            rows[ROUNDS - 1].0,
        );
    }
}

fn new(mib: usize, dir: &std::path::Path) -> Engine {
    let engine = engine(DataDirectory::open(dir).unwrap());
    let spec = SpecRequest {
        bit_count: Some((mib as u64) << 23),
        hash_count: Some(HASH_COUNT),
        false_positive_rate: None,
        ..SpecRequest::new((mib as u64) << 19, 0.5)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(engine.recover(Some(spec))).unwrap();
    engine
}

fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}
