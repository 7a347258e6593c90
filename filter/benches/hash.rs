//! Compares the keyed hashes for the default: `cargo bench -p seenset-filter --bench hash`.
//!
//! Keys have 60 bytes, like a typical URL. The contenders take turns, so that other load on the
//! machine affects all of them alike. The result is the ratios of medians.
#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark prints its result, and is asked for by nobody else"
)]

use std::{hint::black_box, time::Instant};

use highway::{HighwayHash, HighwayHasher, Key};
use seenset_filter::hash::{HashFunction, KeyHasher, Secret};

type Keys<'a> = &'a [[u8; 60]];
/// The name of a contender, and its function for keys.
type Contender<'a> = (&'a str, &'a dyn Fn(Keys));

const KEYS: u64 = 4096;
/// The number of keys that are hashed at once, in place.
const BATCH: usize = 1000;
const ROUNDS: usize = 401;

fn main() {
    let keys: Vec<[u8; 60]> = (0..KEYS)
        .map(|i| {
            let mut key = [b'x'; 60];
            key[..8].copy_from_slice(&i.to_le_bytes());
            key
        })
        .collect();
    let hasher = |function| KeyHasher::new(function, &Secret::new([7; 16]));
    let (sip, xxh) = (
        hasher(HashFunction::SipHash13_128),
        hasher(HashFunction::Xxh3_128),
    );
    let contenders: [Contender; 4] = [
        ("SipHash-1-3-128", &|keys| {
            each(keys, |key| sip.hash(key).low);
        }),
        ("same, batches", &|keys| {
            for batch in keys.chunks(BATCH) {
                sip.hash_each(batch.iter().map(|key| &key[..]), |_, hash| {
                    black_box(hash);
                });
            }
        }),
        ("HighwayHash-128", &|keys| {
            each(keys, |key| HighwayHasher::new(Key([7; 4])).hash128(key)[0]);
        }),
        ("XXH3-128", &|keys| each(keys, |key| xxh.hash(key).low)),
    ];
    let mut times = contenders.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, hash), times) in contenders.iter().zip(&mut times) {
            let begun = Instant::now();
            hash(black_box(&keys));
            times.push(begun.elapsed().as_nanos() as f64 / KEYS as f64);
        }
    }
    times
        .iter_mut()
        .for_each(|times| times.sort_by(f64::total_cmp));
    let first = times[0][ROUNDS / 2];
    println!(
        "{:16} {:>9} {:>9} {:>9} {:>7}",
        "ns a key", "10 %", "median", "90 %", "ratio"
    );
    for ((name, _), times) in contenders.iter().zip(&times) {
        let at = |share: usize| times[ROUNDS * share / 100];
        let (low, median, high) = (at(10), at(50), at(90));
        println!(
            "{name:16} {low:9.1} {median:9.1} {high:9.1} {:7.2}",
            median / first
        );
    }
}

fn each(keys: Keys, hash: impl Fn(&[u8]) -> u64) {
    for key in keys {
        black_box(hash(black_box(key)));
    }
}
