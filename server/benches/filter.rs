//! What a key costs in memory: `cargo bench -p seenset-server --bench filter [-- MIB... [huge]]`.
//!
//! Filters of 1 MiB, 64 MiB, 1 GiB and 4 GiB (or those given), half of their bits set, keys of
//! 60 bytes. seenset's engine, one call for each key and in batches of 1,000, against the
//! crates `fastbloom` and `sbbf-rs-safe` with as many bits for each key (with `huge` in memory
//! of huge pages, like seenset's, where the system does not give them unasked), and against the
//! limit: hashing the key, and reading and writing one random cache line that was fetched ahead
//! (its keys hashed one by one, several at once, and by a hash that is not keyed). The limit is
//! taken in the memory of seenset's filter, for how fast memory is differs from one allocation
//! to the next. Last, how much more two threads do than one.
//!
//! All contenders take the same keys in turns, so that what the machine does besides falls on
//! all of them alike; what counts is the ratios within one run. The keys are read once before
//! each turn, so that none pays for another's cache misses.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    env, fs,
    hint::{black_box, spin_loop},
    ops::Range,
    slice,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Instant, SystemTime},
};

use fastbloom::BloomFilter;
use foldhash::fast::FixedState;
use futures_util::FutureExt;
use mimalloc::MiMalloc;
use rustix::thread::{CpuSet, sched_setaffinity};
use sbbf_rs_safe::Filter as Sbbf;
use seenset_server::{
    engine::{Durability, Engine, Limits, RequestLimits, Settings},
    filter::{
        hash::{HashFunction, KeyHash, KeyHasher, Secret},
        shape::Shape,
        spec::SpecRequest,
    },
    store::{DataDirectory, FilterId, ShardState, SnapshotFiles, SnapshotHeader},
};
use xxhash_rust::xxh3::xxh3_64;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;
/// Whether the other crates' filters get huge pages.
static HUGE_PAGES: AtomicBool = AtomicBool::new(false);

const SIZES_MIB: [usize; 4] = [1, 64, 1024, 4096];
const HASH_COUNT: u32 = 8;
const BATCH: usize = 1000;
const BATCHES: usize = 10;
const ROUNDS: usize = 41;
/// The keys of a turn of a thread that are not timed: what it takes first it takes from the
/// allocator, and that from the system.
const WARM_UP: usize = 10 * BATCH;
/// What each of two threads takes in a turn.
const TURN_OF_TWO: usize = WARM_UP + 50 * BATCH;
const ROUNDS_OF_TWO: usize = 101;
/// How many keys ahead the limit fetches.
const AHEAD: usize = 16;

type Keys<'a> = &'a [&'static str];
/// What takes keys, and tells how many of them were there.
type Contender<'a> = (&'a str, Box<dyn FnMut(Keys) -> usize + 'a>);

/// The same, for several threads.
type Shared<'a> = &'a (dyn Fn(Keys) -> usize + Sync);

fn main() {
    HUGE_PAGES.store(env::args().any(|arg| arg == "huge"), SeqCst);
    let given: Vec<usize> = env::args().filter_map(|size| size.parse().ok()).collect();
    let sizes = if given.is_empty() {
        SIZES_MIB.to_vec()
    } else {
        given
    };
    let count = BATCH * BATCHES * ROUNDS;
    let (new, absent) = (keys("new", count), keys("absent", count));
    let of_two = keys("two", ROUNDS_OF_TWO * 4 * TURN_OF_TWO);
    for mib in sizes {
        println!("\n{mib} MiB, half full; ns a key");
        let (first, second) = (Ours::new(mib), Ours::new(mib));
        let mut sbbf = half_full_sbbf(mib);
        let mut fast = BloomFilter::from_vec(words(mib << 17).collect())
            .hasher(FixedState::with_seed(7))
            .hashes(HASH_COUNT);
        let limit = &first.limit;

        let rows = turns(
            &new,
            &mut [
                (
                    "limit",
                    Box::new(|keys| limit.touch(HashFunction::default(), keys)),
                ),
                ("limit, at once", Box::new(|keys| limit.touch_at_once(keys))),
                (
                    "limit, XXH3",
                    Box::new(|keys| limit.touch(HashFunction::Xxh3_128, keys)),
                ),
                ("hash alone", Box::new(limit_hash)),
                ("seenset, batch", Box::new(|keys| first.add_batch(keys))),
                ("seenset, single", Box::new(|keys| second.add(keys))),
                (
                    "sbbf-rs-safe",
                    Box::new(|keys| {
                        let mut there = |key: &&str| sbbf.insert_hash(xxh3_64(key.as_bytes()));
                        keys.iter().filter(|key| there(key)).count()
                    }),
                ),
                (
                    "fastbloom",
                    Box::new(|keys| keys.iter().filter(|key| fast.insert(**key)).count()),
                ),
            ],
        );
        print("insert", &rows);
        for (what, keys) in [("hit", &new), ("miss", &absent)] {
            let rows = turns(
                keys,
                &mut [
                    ("seenset, batch", Box::new(|keys| first.query_batch(keys))),
                    ("seenset, single", Box::new(|keys| second.query(keys))),
                    (
                        "sbbf-rs-safe",
                        Box::new(|keys| {
                            let there = |key: &&str| sbbf.contains_hash(xxh3_64(key.as_bytes()));
                            keys.iter().filter(|key| there(key)).count()
                        }),
                    ),
                    (
                        "fastbloom",
                        Box::new(|keys| keys.iter().filter(|key| fast.contains(**key)).count()),
                    ),
                ],
            );
            print(what, &rows);
        }
        two_threads(
            &of_two,
            &[
                ("limit", &|keys| limit.touch(HashFunction::default(), keys)),
                ("seenset, batch", &|keys| first.add_batch(keys)),
            ],
        );
    }
}

/// That of the server, mimalloc, but for blocks of a filter's size: those come from the system's,
/// as they do in a program that has not thought of it. mimalloc asks for huge pages for them.
struct Allocator;

impl Allocator {
    const LARGE: usize = 1 << 20;

    fn of(layout: Layout) -> &'static dyn GlobalAlloc {
        if layout.size() < Self::LARGE || HUGE_PAGES.load(Relaxed) {
            &MiMalloc
        } else {
            &System
        }
    }
}

#[allow(unsafe_code, reason = "hands on what it is given")]
// SAFETY: a block is freed where it came from, for its layout says where that was, and
// `HUGE_PAGES` is set before there is a large one.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as demanded of the caller.
        unsafe { Self::of(layout).alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as demanded of the caller.
        unsafe { Self::of(layout).alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as demanded of the caller.
        unsafe { Self::of(layout).dealloc(block, layout) }
    }
}

/// So many keys, 60 bytes each.
fn keys(prefix: &str, count: usize) -> Vec<&'static str> {
    let host = format!("https://{prefix}.example.com/");
    let key = |i: usize| format!("{host}{i:0width$}", width = 60 - host.len());
    (0..count).map(|i| &*key(i).leak()).collect()
}

/// Random words, half of whose bits are set.
fn words(count: usize) -> impl Iterator<Item = u64> {
    let seed = KeyHash { low: 1, high: 3 };
    (0..count).map(move |i| {
        KeyHash {
            low: seed.low ^ i as u64,
            high: seed.high,
        }
        .value(1)
    })
}

/// seenset's engine with one filter.
struct Ours {
    engine: Engine,
    limit: Limit,
    _dir: tempfile::TempDir,
}

impl Ours {
    /// A filter half of whose bits are set: restored from a snapshot that says so.
    fn new(mib: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(dir.path()).unwrap();
        let spec = SpecRequest {
            bit_count: Some((mib as u64) << 23),
            hash_count: Some(HASH_COUNT),
            false_positive_rate: None,
            ..SpecRequest::new((mib as u64) << 19, 0.5)
        };
        let header = SnapshotHeader {
            filter: FilterId(directory.new_number()),
            number: directory.new_number(),
            name: "default".parse().unwrap(),
            spec: spec.resolve().unwrap(),
            secret: Secret::new([7; 16]),
            version: 1,
            create_time: SystemTime::now(),
            store_time: SystemTime::now(),
        };
        let shape = Shape::of(&header.spec);
        let mut random = words(shape.shard_words() * 100_000);
        let shards: Vec<usize> = (0..shape.shard_count()).collect();
        let written = directory
            .write_snapshot(&header, &shards, |_, to| {
                to.iter_mut()
                    .zip(&mut random)
                    .for_each(|(to, word)| *to = word);
                ShardState {
                    version: 1,
                    keys_added: 0,
                    bits_set: to.iter().map(|word| u64::from(word.count_ones())).sum(),
                }
            })
            .unwrap();
        let files = SnapshotFiles::default().with(&written);
        directory
            .set_filter(&header.name, header.filter, &files, 0)
            .unwrap();
        let limits = Limits {
            max_key_bytes: 100,
            max_batch_keys: BATCH,
        };
        let engine = Engine::new(
            directory,
            Settings {
                limits,
                max_memory_bytes: u64::MAX,
                durability: Durability::Snapshot,
                segment_bytes: Settings::SEGMENT_BYTES,
                requests: RequestLimits::default(),
            },
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mapped_before = mapped();
        runtime.block_on(engine.recover(None)).unwrap();
        Self {
            engine,
            limit: Limit::new(&mapped_before, mib),
            _dir: dir,
        }
    }

    fn add(&self, keys: Keys) -> usize {
        keys.iter()
            .filter(|key| now(self.engine.query_and_add("", key)))
            .count()
    }

    fn add_batch(&self, keys: Keys) -> usize {
        batches(keys, |batch| {
            now(self.engine.query_and_add_batch("", batch))
        })
    }

    fn query(&self, keys: Keys) -> usize {
        keys.iter()
            .filter(|key| now(self.engine.query("", key)))
            .count()
    }

    fn query_batch(&self, keys: Keys) -> usize {
        batches(keys, |batch| now(self.engine.query_batch("", batch)))
    }
}

fn batches(keys: Keys, mut ask: impl FnMut(Vec<&'static str>) -> Vec<bool>) -> usize {
    keys.chunks(BATCH)
        .flat_map(|batch| ask(batch.to_vec()))
        .filter(|&seen| seen)
        .count()
}

/// Calls of this size are answered without waiting.
fn now<T, E: std::fmt::Debug>(call: impl Future<Output = Result<T, E>>) -> T {
    call.now_or_never().unwrap().unwrap()
}

/// The least that a filter can do: hash a key, and read and write one cache line.
struct Limit {
    lines: &'static [[AtomicU64; 8]],
}

impl Limit {
    /// Over the memory of a filter of so many MiB, which has been mapped since then.
    fn new(mapped_before: &[Range<usize>], mib: usize) -> Self {
        let new = |range: Range<usize>| {
            let overlaps = mapped_before
                .iter()
                .filter(|old| old.start < range.end && range.start < old.end);
            // What is mapped next to another mapping becomes one with it.
            overlaps.fold(range.clone(), |range, old| {
                if old.start <= range.start {
                    old.end..range.end
                } else {
                    range.start..old.start
                }
            })
        };
        let bytes = mib << 20;
        let large = mapped().into_iter().map(new);
        let large = large.filter(|range| range.len() >= bytes);
        #[allow(unsafe_code, reason = "the engine gives its memory to nobody")]
        // SAFETY: the memory is mapped for as long as `Ours`. Whatever lies in it is read, and
        // written as it was, while nobody else changes it; nothing follows from what is read.
        let mut large = large.map(|range| unsafe {
            slice::from_raw_parts(range.start as *const [AtomicU64; 8], bytes / 64)
        });
        let is_filled = |line: &[AtomicU64; 8]| line.iter().any(|word| word.load(Relaxed) != 0);
        let lines = large
            .find(|lines| lines.iter().all(is_filled))
            .expect("the memory of the filter");
        Self { lines }
    }

    fn touch(&self, function: HashFunction, keys: Keys) -> usize {
        // The secret of no other contender, or it would touch lines that are in the cache from
        // the turn before.
        let hasher = KeyHasher::new(function, &Secret::new([8; 16]));
        batches(keys, |batch| {
            let hashes = batch.iter().map(|key| hasher.hash(key.as_bytes()));
            self.touch_lines(&hashes.collect::<Vec<_>>())
        })
    }

    /// With the keys hashed several at once.
    fn touch_at_once(&self, keys: Keys) -> usize {
        let hasher = KeyHasher::new(HashFunction::default(), &Secret::new([9; 16]));
        batches(keys, |batch| {
            let mut hashes = vec![KeyHash::default(); batch.len()];
            let keys = batch.iter().map(|key| key.as_bytes());
            hasher.hash_each(keys, |place, hash| hashes[place] = hash);
            self.touch_lines(&hashes)
        })
    }

    fn touch_lines(&self, hashes: &[KeyHash]) -> Vec<bool> {
        let count = self.lines.len() as u128;
        let line = |hash: &KeyHash| ((u128::from(hash.high) * count) >> 64) as usize;
        let touched = hashes.iter().enumerate().map(|(index, hash)| {
            if let Some(next) = hashes.get(index + AHEAD) {
                prefetch(&self.lines[line(next)]);
            }
            let word = &self.lines[line(hash)][0];
            let value = word.load(Relaxed);
            word.store(black_box(value), Relaxed);
            value & hash.low == hash.low
        });
        touched.collect()
    }
}

/// The memory of the process that can be written to.
fn mapped() -> Vec<Range<usize>> {
    let address = |digits| usize::from_str_radix(digits, 16).unwrap();
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|line| line.contains(" rw"))
        .map(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            address(start)..address(end)
        })
        .collect()
}

fn limit_hash(keys: Keys) -> usize {
    let hasher = KeyHasher::new(HashFunction::default(), &Secret::new([7; 16]));
    keys.iter()
        .filter(|key| black_box(hasher.hash(key.as_bytes())).low == 0)
        .count()
}

#[allow(unsafe_code, reason = "prefetching dereferences nothing")]
fn prefetch(line: &[AtomicU64; 8]) {
    // SAFETY: a hint, which faults at no address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

fn half_full_sbbf(mib: usize) -> Sbbf {
    let bytes: Vec<u8> = words(mib << 17).flat_map(u64::to_le_bytes).collect();
    Sbbf::from_bytes(&bytes).unwrap()
}

/// Nanoseconds for each key of each contender, one value a round, sorted.
fn turns<'a>(keys: Keys, contenders: &mut [Contender<'a>]) -> Vec<(&'a str, Vec<f64>)> {
    let mut rows: Vec<(&str, Vec<f64>)> = contenders.iter().map(|c| (c.0, Vec::new())).collect();
    for keys in keys.chunks(BATCH * BATCHES) {
        for ((_, take), (_, times)) in contenders.iter_mut().zip(&mut rows) {
            read(keys);
            let begun = Instant::now();
            black_box(take(black_box(keys)));
            times.push(begun.elapsed().as_nanos() as f64 / keys.len() as f64);
        }
    }
    rows.iter_mut()
        .for_each(|(_, times)| times.sort_by(f64::total_cmp));
    rows
}

/// Has the keys in the cache.
fn read(keys: Keys) {
    let sum: usize = keys.iter().map(|key| usize::from(key.as_bytes()[59])).sum();
    black_box(sum);
}

fn print(what: &str, rows: &[(&str, Vec<f64>)]) {
    let median = |times: &[f64]| times[times.len() / 2];
    let first = median(&rows[0].1);
    println!(
        "  {what:16} {:>8} {:>8} {:>8} {:>7}",
        "10 %", "median", "90 %", "ratio"
    );
    for (name, times) in rows {
        let at = |share: usize| times[times.len() * share / 100];
        println!(
            "    {name:16} {:6.1} {:8.1} {:8.1} {:7.2}",
            at(10),
            median(times),
            at(90),
            median(times) / first
        );
    }
}

/// Keys are taken by one thread and by two, in turns: how much more two do. Each of the two has
/// a core of its own, and what one does is the mean of both cores.
fn two_threads(keys: Keys, contenders: &[(&str, Shared)]) {
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
    // At times a host has two processors share a core.
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

/// Keys a second, of all threads: each has a core and its own keys, they begin together, and all
/// end when the first has no more.
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

/// Has this thread run on one core.
fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).unwrap();
}
