//! The cost of a key in memory: `cargo bench -p seenset-server --bench filter [-- MIB... [huge]]`.
//! Other measurements have a word of their own:
//!
//! - `-- kinds [MIB...]`: filters of other kinds.
//! - `-- scaling [MIB...]`: filters in layers.
//! - `-- singles [MIB...]`: one call for each key, in filters of all kinds.
//! - `-- pages [MIB...]`: the gain of huge pages.
//! - `-- batches [MIB...]`: batches, with one lock for each key and with one lock for several keys.
//! - `-- layer [MIB...]`: one layer of a filter that can grow, compared with a plain filter.
//! - `-- first [MIB...]`: the first keys of a new filter.
//!
//! The filters have 1 MiB, 64 MiB, 1 GiB and 4 GiB, or the given sizes. Half of their bits are set.
//! Keys have 60 bytes.
//!
//! The contenders are seenset's engine, with one call for each key and in batches of 1,000; the
//! crates `fastbloom` and `sbbf-rs-safe` with as many bits for each key; and the limit. With `huge`
//! the crates get huge pages, like seenset's filters, even if the kernel does not provide them
//! unasked.
//!
//! The limit is the cost of hashing the key, and of reading and writing one random cache line that
//! was prefetched. Its keys are hashed one by one, several at once, and by a hash without a secret.
//! The limit is measured in the memory of seenset's filter, because the speed of memory differs
//! from one allocation to the next. For the same reason the free memory is mixed before, so that
//! all contenders get some of each kind. The last measurement is the gain of a second thread.
//!
//! Kinds are compared with a plain filter of `MIB` MiB, in batches of 1,000. They have as many
//! bits, or as many counters instead. Four layers of a filter that grows are compared with a plain
//! filter for as many keys at the same rate, both without locks.
//!
//! All contenders take the same keys in turns, so that other activity of the machine affects all of
//! them alike. Only the ratios within one run are meaningful. The keys are read once before each
//! turn, so that no contender pays for the cache misses of another.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

mod allocator;
mod batch_sizes;
mod first;
mod kinds;
mod limit;
mod memory;
mod ours;
mod pages;
mod scaling;
mod singles;
mod turns;
mod two_threads;

use std::{env, hint::black_box, sync::atomic::Ordering::SeqCst};

use fastbloom::BloomFilter;
use foldhash::fast::FixedState;
use sbbf_rs_safe::Filter as Sbbf;
use seenset_server::filter::hash::{HashFunction, KeyHash};
use xxhash_rust::xxh3::xxh3_64;

use self::{
    allocator::{Allocator, HUGE_PAGES},
    limit::limit_hash,
    ours::Ours,
    turns::{Contender, print, turns},
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const SIZES_MIB: [usize; 4] = [1, 64, 1024, 4096];
const HASH_COUNT: u32 = 8;
const BATCH: usize = 1000;
const BATCHES: usize = 10;
const ROUNDS: usize = 41;
/// The number of contenders with a filter of their own, plus one for a temporary copy.
const CONTENDERS: usize = 5;

type Keys<'a> = &'a [&'static str];

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
    let of_two = || keys("two", two_threads::KEYS);
    let chosen = env::args().find_map(|arg| {
        let compare: Box<dyn Fn(usize)> = match &*arg {
            "kinds" => Box::new(|mib| kinds::compare(mib, &new, &absent)),
            "scaling" => Box::new(|mib| scaling::compare(mib, &new, &absent)),
            "singles" => Box::new(|mib| singles::compare(mib, &new, &of_two())),
            "pages" => Box::new(|mib| pages::compare(mib, &new, &absent)),
            "first" => Box::new(first::measure),
            "layer" => Box::new(|mib| scaling::compare_one(mib, &new, &absent)),
            "batches" => Box::new(|mib| batch_sizes::compare(mib, &of_two())),
            _ => return None,
        };
        Some(compare)
    });
    if let Some(compare) = chosen {
        sizes.into_iter().for_each(compare);
        return;
    }
    let of_two = of_two();
    for mib in sizes {
        println!("\n{mib} MiB, half full; ns a key");
        memory::mix(mib * CONTENDERS);
        let (first, second) = (Ours::new(mib), Ours::new(mib));
        let mut sbbf = half_full_sbbf(mib);
        let mut fast = BloomFilter::from_vec(words(mib << 17).collect())
            .hasher(FixedState::with_seed(7))
            .hashes(HASH_COUNT);
        let limit = &first.limit;

        let mut contenders: [Contender<'_>; 8] = [
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
        ];
        let before = first_keys(mib);
        for (_, insert) in &mut contenders {
            insert(&before);
        }
        print("insert", &turns(&new, &mut contenders));
        drop(contenders);
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
        two_threads::compare(
            &of_two,
            &[
                ("limit", &|keys| limit.touch(HashFunction::default(), keys)),
                ("seenset, batch", &|keys| first.add_batch(keys)),
                ("seenset, single", &|keys| second.add(keys)),
            ],
        );
    }
}

/// Returns the keys that are added first: a few for each page of a filter's memory. On some
/// machines the first write to a page after it was filled takes far longer than all later ones. A
/// filter is used for more than these first writes.
fn first_keys(mib: usize) -> Vec<&'static str> {
    const PER_PAGE: usize = 2;
    keys("first", PER_PAGE * (mib << 20) / 4096)
}

/// Returns the given number of keys, 60 bytes each.
fn keys(prefix: &str, count: usize) -> Vec<&'static str> {
    let host = format!("https://{prefix}.example.com/");
    let key = |i: usize| format!("{host}{i:0width$}", width = 60 - host.len());
    (0..count).map(|i| &*key(i).leak()).collect()
}

/// Returns random words with half of their bits set.
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

fn batches(keys: Keys, ask: impl FnMut(Vec<&'static str>) -> Vec<bool>) -> usize {
    batches_of(BATCH, keys, ask)
}

fn batches_of(
    size: usize,
    keys: Keys,
    mut ask: impl FnMut(Vec<&'static str>) -> Vec<bool>,
) -> usize {
    keys.chunks(size)
        .flat_map(|batch| ask(batch.to_vec()))
        .filter(|&seen| seen)
        .count()
}

fn half_full_sbbf(mib: usize) -> Sbbf {
    let bytes: Vec<u8> = words(mib << 17).flat_map(u64::to_le_bytes).collect();
    Sbbf::from_bytes(&bytes).unwrap()
}

/// Reads the keys, so that they are in the cache.
fn read(keys: Keys) {
    let sum: usize = keys.iter().map(|key| usize::from(key.as_bytes()[59])).sum();
    black_box(sum);
}
