//! The bits of a key, and the keys of a format.

use super::*;
use crate::{
    blocked::{BLOCK_BITS, Blocked, LANES},
    cells::Values,
    classic::Classic,
    counters::Counters,
    key_set::KeySet,
    shape::MAX_SHARD_BITS,
};

/// Runs a test with each of some formats.
macro_rules! with_each {
    ($format:ident in [$($one:ident),+] => $test:block) => {
        $({
            type $format = $one;
            $test
        })+
    };
}
pub(crate) use with_each;

fn in_shards<F: Format>(shard_count: u64, hash_count: u32) -> F {
    F::from(Dimensions {
        shard_count,
        shard_bits: MAX_SHARD_BITS,
        hash_count,
    })
}

#[test]
fn many_keys_at_once_are_as_one_after_the_other() {
    with_each!(F in [Blocked, Classic] => {
        for hash_count in [1, 5, 8, 13, 64] {
            // Of five shards, those from the second on.
            let filter: F = in_shards(5, hash_count);
            let shape = filter.shape();
            let seed = KeyHash { low: 3, high: 5 };
            let keys: Vec<(usize, KeyHash)> = (0..500)
                .map(|number| {
                    let low = seed.value(number as u32 % 400 + 1);
                    let high = low.rotate_left(9).max(u64::MAX / 4);
                    (number, KeyHash { low, high })
                })
                .collect();
            let mut one_by_one = vec![vec![0; shape.shard_words()]; 4];
            let mut at_once = one_by_one.clone();
            let mut told = Vec::new();
            filter.insert_each(&mut at_once, 1, keys.iter().copied(), |key, _, added| {
                told.push((key, added));
            });
            for (&key, told) in keys.iter().zip(told) {
                let (_, hash) = key;
                let shard = &mut one_by_one[shape.shard(hash) - 1];
                assert_eq!(told, (key, filter.insert(shard, hash)));
            }
            assert!(at_once == one_by_one);
            for shard in &mut one_by_one {
                shard[..shape.shard_words() / 2].fill(0);
            }
            let mut told = Vec::new();
            filter.contains_each(&one_by_one, 1, keys.iter().copied(), |number, _, there| {
                told.push((number, there));
            });
            for (&(number, hash), told) in keys.iter().zip(told) {
                let shard = &one_by_one[shape.shard(hash) - 1];
                assert_eq!(told, (number, filter.contains(shard, hash)));
            }
        }
    });
}

#[test]
fn the_bits_of_a_key_are_those_that_insert_sets() {
    with_each!(F in [Blocked, Classic, Counters] => {
        for hash_count in [1, 5, 8, 13, 64] {
            // A shape with few bits, so that some values choose the same bit.
            let filter = F::new(1500, hash_count);
            let shape = filter.shape();
            let seed = KeyHash { low: 3, high: 5 };
            for i in 1..200 {
                let hash = KeyHash {
                    low: seed.value(i),
                    high: seed.value(i + 500),
                };
                let mut words = vec![0; shape.shard_words()];
                filter.insert(&mut words, hash);
                let is_set = |bit: &u64| shape.is_set(&words, *bit, Values::SET);
                let set: Vec<u64> = (0..shape.shard_bits()).filter(is_set).collect();
                assert_eq!(filter.bits(hash), set);
                assert_eq!(shape.bits_set(&words), set.len() as u64);
                let mut lines = Vec::new();
                filter.visit_lines(hash, |word| lines.push((word / LANES) as u64));
                let of_line = BLOCK_BITS / F::GRAIN.cell.bits();
                assert!(set.iter().all(|bit| lines.contains(&(bit / of_line))));
            }
        }
    });
}

#[test]
fn keys_spread_over_shards_and_blocks() {
    let blocked: Blocked = in_shards(3, 8);
    let shape = blocked.shape();
    let seed = KeyHash { low: 1, high: 1 };
    let mut shards = [0_u32; 3];
    let mut halves = [0_u32; 2];
    for i in 1..6000 {
        let hash = KeyHash {
            low: 0,
            high: seed.value(i),
        };
        shards[shape.shard(hash)] += 1;
        blocked.visit_lines(hash, |word| halves[word / (shape.shard_words() / 2)] += 1);
    }
    assert!(
        shards.iter().all(|&count| (1800..2200).contains(&count)),
        "{shards:?}"
    );
    assert!(
        halves.iter().all(|&count| (2800..3200).contains(&count)),
        "{halves:?}"
    );
}

#[test]
fn the_lines_to_fetch_are_those_that_insert_writes() {
    with_each!(F in [Blocked, Classic, Counters] => {
        let filter = F::new(100_000, 6);
        let seed = KeyHash { low: 1, high: 1 };
        for i in 1..200 {
            let hash = KeyHash {
                low: seed.value(i),
                high: seed.value(i + 500),
            };
            let mut words = vec![0; filter.shape().shard_words()];
            filter.insert(&mut words, hash);
            let mut lines = Vec::new();
            filter.visit_lines(hash, |word| lines.push(word / LANES));
            let written = words.iter().enumerate().filter(|(_, word)| **word != 0);
            assert!(
                written
                    .into_iter()
                    .all(|(word, _)| lines.contains(&(word / LANES)))
            );
        }
    });
}
