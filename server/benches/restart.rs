//! The cost of a start and of a store: `cargo bench -p seenset-server --bench restart [-- ROUNDS]`.
//!
//! The data is a filter of 1 GiB, all of it in a snapshot, and 50 million keys in the log. A start
//! has to read both and to apply the keys. So it is compared with two steps one after the other:
//! reading the same files from the first byte to the last, as `cat` does, and adding the same keys
//! to such a filter in batches. The files are dropped from the page cache before each measurement,
//! because a machine that has just been started has none of them there.
//!
//! Then a hundredth of the filter's shards is changed and stored, again and again, in comparison
//! with a store of all shards.
//!
//! Needs 3 GiB of memory, and 3 GiB of disk space where `target/` is.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

use std::{
    env,
    fs::{self, File},
    io::Read,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::fs::{Advice, fadvise};
use seenset_server::{
    engine::{Durability, Engine, Layout, Limits, RequestLimits, Settings, SpecRequest},
    store::DataDirectory,
};

const FILTER_BYTES: u64 = 1 << 30;
const LOGGED_KEYS: usize = 50_000_000;
/// The keys of a batch: few enough to be answered by the calling thread.
const BATCH: usize = 1000;
/// The stored keys: enough for a bit in each shard.
const STORED_KEYS: usize = 1_000_000;
const ROUNDS: usize = 5;
/// The number of stores: more than the number of files of a filter.
const STORES: usize = 200;

fn engine(path: &Path, durability: Durability) -> Engine {
    let settings = Settings {
        limits: Limits {
            max_key_bytes: 100,
            max_batch_keys: BATCH,
            max_filters: Limits::MAX_FILTERS,
        },
        max_memory_bytes: 4 << 30,
        durability,
        segment_bytes: Settings::SEGMENT_BYTES,
        requests: RequestLimits::default(),
    };
    Engine::new(DataDirectory::open(path).unwrap(), settings)
}

async fn create(engine: &Engine) {
    let request = SpecRequest {
        layout: Layout::Blocked,
        bit_count: Some(FILTER_BYTES * 8),
        false_positive_rate: None,
        ..SpecRequest::new(500_000_000, 0.001)
    };
    engine.create_filter("urls", request).await.unwrap();
}

/// Returns keys of 60 bytes.
fn batch(name: &str, from: usize) -> Vec<String> {
    let key = |number| format!("https://example.com/{name:-<6}/{number:033}");
    (from..from + BATCH).map(key).collect()
}

/// Adds the given number of keys. Returns how long that took, without the time to make the keys.
async fn add(engine: &Engine, name: &str, count: usize) -> Duration {
    let mut time = Duration::ZERO;
    for from in (0..count).step_by(BATCH) {
        let keys = batch(name, from);
        let begun = Instant::now();
        engine.add_batch("urls", keys).await.unwrap();
        time += begun.elapsed();
    }
    time
}

/// Drops the files from the page cache. They must have reached the disk.
fn forget(path: &Path) {
    for entry in fs::read_dir(path).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// Reads all files. Returns how long that took, and the number of bytes.
fn cat(path: &Path) -> (Duration, u64) {
    let mut piece = vec![0; 128 << 10];
    let (begun, mut bytes) = (Instant::now(), 0);
    for entry in fs::read_dir(path).unwrap() {
        let mut file = File::open(entry.unwrap().path()).unwrap();
        loop {
            match file.read(&mut piece).unwrap() {
                0 => break,
                read => bytes += read as u64,
            }
        }
    }
    (begun.elapsed(), bytes)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    let rounds = env::args().find_map(|arg| arg.parse().ok());
    let rounds: usize = rounds.unwrap_or(ROUNDS);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = dir.path().join("data");

    let interval = Durability::Interval(Duration::from_secs(1));
    let running = engine(&data, interval);
    running.recover(None).await.unwrap();
    create(&running).await;
    add(&running, "stored", STORED_KEYS).await;
    running.store("urls").await.unwrap();
    add(&running, "logged", LOGGED_KEYS).await;
    drop(running);

    println!("    cat s   apply s   start s   of it snapshots   (cat + apply) / start");
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        forget(&data);
        let (cat, bytes) = cat(&data);

        let other = dir.path().join("other");
        let applying = engine(&other, Durability::Snapshot);
        applying.recover(None).await.unwrap();
        create(&applying).await;
        // The memory must already be touched, as a start finds it after it has read the snapshots.
        add(&applying, "stored", STORED_KEYS).await;
        let apply = add(&applying, "logged", LOGGED_KEYS).await;
        drop(applying);
        fs::remove_dir_all(&other).unwrap();

        forget(&data);
        let begun = Instant::now();
        let started = engine(&data, interval);
        let (told, log) = mpsc::channel();
        let recovering = started.recover_telling(None, move |progress| {
            if progress.filter.is_none() {
                // Only the first message counts.
                let _ = told.send(begun.elapsed());
            }
        });
        let recovered = recovering.await.unwrap();
        let (start, snapshots) = (begun.elapsed(), log.recv().unwrap());
        assert!(recovered.replayed_keys >= LOGGED_KEYS as u64 * 99 / 100);
        drop(started);

        let [cat, apply, start, snapshots] =
            [cat, apply, start, snapshots].map(|time| time.as_secs_f64());
        let ratio = (cat + apply) / start;
        ratios.push(ratio);
        println!(
            "{cat:>9.2} {apply:>9.2} {start:>9.2} {snapshots:>14.2} {ratio:>23.2}   ({bytes} bytes)"
        );
    }
    println!("median {:.2}", median(ratios));
    store_changes(&dir.path().join("changes")).await;
}

/// Changes three of the 256 shards and stores them, repeatedly, until the files of the first stores
/// are gone.
async fn store_changes(data: &Path) {
    let changing = engine(data, Durability::Interval(Duration::from_secs(1)));
    changing.recover(None).await.unwrap();
    create(&changing).await;
    add(&changing, "stored", STORED_KEYS).await;
    let full = changing.store("urls").await.unwrap()[0].written_bytes;
    let mut shares = Vec::new();
    for round in 0..STORES {
        for key in 0..3 {
            let key = format!("{round} {key}");
            changing.add("urls", &key).await.unwrap();
        }
        let part = changing.store("urls").await.unwrap()[0].written_bytes;
        shares.push(part as f64 / full as f64 * 100.0);
    }
    let most = shares.iter().copied().fold(0.0, f64::max);
    println!(
        "\n3 of {} shards changed, {STORES} times: stored, of {full} bytes in full, median {:.2} %, \
         at most {most:.2} %",
        FILTER_BYTES >> 22,
        median(shares),
    );
}
