//! The bits of a key, and their shards.

use super::*;
use crate::{
    blocked::{BLOCK_BITS, LANES},
    cells::LINE_CELLS,
};

const FORMS: [CellFormat; 3] = [
    CellFormat::Blocked,
    CellFormat::Classic,
    CellFormat::Counting,
];

#[test]
fn many_keys_at_once_are_as_one_after_the_other() {
    for cell_format in [CellFormat::Blocked, CellFormat::Classic] {
        for hash_count in [1, 5, 8, 13, 64] {
            // Of five shards, those from the second on.
            let shape = Shape::divided(cell_format, 5, MAX_SHARD_BITS, hash_count);
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
            shape.insert_each(&mut at_once, 1, keys.iter().copied(), |key, _, added| {
                told.push((key, added));
            });
            for (&key, told) in keys.iter().zip(told) {
                let (_, hash) = key;
                let shard = &mut one_by_one[shape.shard(hash) - 1];
                assert_eq!(told, (key, shape.insert(shard, hash)));
            }
            assert!(at_once == one_by_one);
            for shard in &mut one_by_one {
                shard[..shape.shard_words() / 2].fill(0);
            }
            let mut told = Vec::new();
            shape.contains_each(&one_by_one, 1, keys.iter().copied(), |number, _, there| {
                told.push((number, there));
            });
            for (&(number, hash), told) in keys.iter().zip(told) {
                let shard = &one_by_one[shape.shard(hash) - 1];
                assert_eq!(told, (number, shape.contains(shard, hash)));
            }
        }
    }
}

/// For every cell format and any number of bits: no shard is too large or, if there are several,
/// too small. A request for more bits never gets fewer, and a request for the resulting number
/// gives the same again.
#[test]
fn bits_are_divided_evenly_and_never_short() {
    for cell_format in FORMS.into_iter().chain([CellFormat::Foreign]) {
        let least = MIN_SHARD_BYTES * 8 / cell_format.cell_bits();
        let steps = (0..14).map(|step| least << step);
        let around = |bits: u64| [-513_i64, -1, 0, 1, 513].map(|by| bits.saturating_add_signed(by));
        let uneven = [
            1,
            63,
            64,
            511,
            3 * least - 7,
            100 * least + 9,
            1000 * least + 5,
        ];
        let mut sizes: Vec<u64> = steps.flat_map(around).chain(uneven).collect();
        sizes.sort_unstable();
        let mut last = 0;
        for bit_count in sizes {
            let shape = Shape::new(cell_format, bit_count, 8);
            assert!(shape.bit_count() >= bit_count && shape.bit_count() >= last);
            assert!(
                shape.has_good_shards() || cell_format == CellFormat::Foreign,
                "{shape:?}"
            );
            assert_eq!(shape.shard_words() as u64 * 8, shape.shard_bytes());
            assert_eq!(Shape::new(cell_format, shape.bit_count(), 8), shape);
            last = shape.bit_count();
        }
    }
}

#[test]
fn there_are_many_shards_where_they_are_not_too_small() {
    let shards = |cell_format, bits| Shape::new(cell_format, bits, 8).shard_count();
    let bits = |mib: u64| mib << 23;
    let blocked = [1, 4, 64, 1024, 1025].map(|mib| shards(CellFormat::Blocked, bits(mib)));
    assert_eq!(blocked, [64, 256, 256, 256, 257]);
    assert_eq!(shards(CellFormat::Classic, bits(1)), 64);
    // With four bits each.
    assert_eq!(shards(CellFormat::Counting, bits(1)), 256);
    assert_eq!(
        shards(CellFormat::Blocked, MIN_SHARD_BYTES * 16 - 512 * 2),
        1
    );
    assert_eq!(shards(CellFormat::Blocked, MIN_SHARD_BYTES * 16), 2);
    assert_eq!(shards(CellFormat::Foreign, bits(64)), 16);
}

#[test]
fn the_bits_of_a_key_are_those_that_insert_sets() {
    for cell_format in FORMS {
        for hash_count in [1, 5, 8, 13, 64] {
            // A shape with few bits, so that some values choose the same bit.
            let shape = Shape::new(cell_format, 1500, hash_count);
            let seed = KeyHash { low: 3, high: 5 };
            for i in 1..200 {
                let hash = KeyHash {
                    low: seed.value(i),
                    high: seed.value(i + 500),
                };
                let mut words = vec![0; shape.shard_words()];
                shape.insert(&mut words, hash);
                let is_set = |bit: &u64| shape.is_set(&words, *bit, Values::SET);
                let set: Vec<u64> = (0..shape.shard_bits()).filter(is_set).collect();
                assert_eq!(shape.bits(hash), set);
                assert_eq!(shape.bits_set(&words), set.len() as u64);
                let block = shape.block_of(hash);
                assert_eq!(block.is_some(), cell_format == CellFormat::Blocked);
                assert!(block.is_none_or(|block| set[0] / BLOCK_BITS == block as u64));
            }
        }
    }
}

#[test]
fn keys_spread_over_shards_and_blocks() {
    let shape = Shape::divided(CellFormat::Blocked, 3, MAX_SHARD_BITS, 8);
    let seed = KeyHash { low: 1, high: 1 };
    let mut shards = [0_u32; 3];
    let mut halves = [0_u32; 2];
    for i in 1..6000 {
        let hash = KeyHash {
            low: 0,
            high: seed.value(i),
        };
        shards[shape.shard(hash)] += 1;
        shape.visit_lines(hash, |word| halves[word / (shape.shard_words() / 2)] += 1);
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
    for cell_format in FORMS {
        let shape = Shape::new(cell_format, 100_000, 6);
        let seed = KeyHash { low: 1, high: 1 };
        for i in 1..200 {
            let hash = KeyHash {
                low: seed.value(i),
                high: seed.value(i + 500),
            };
            let mut words = vec![0; shape.shard_words()];
            shape.insert(&mut words, hash);
            let mut lines = Vec::new();
            shape.visit_lines(hash, |word| lines.push(word / LANES));
            let written = words.iter().enumerate().filter(|(_, word)| **word != 0);
            assert!(
                written
                    .into_iter()
                    .all(|(word, _)| lines.contains(&(word / LANES)))
            );
        }
    }
}

/// Checked in the smallest shard too, and past its end.
#[test]
fn two_lines_are_two_near_each_other_and_all_are_chosen_alike() {
    for (cells, reach) in [(512, 3), (3 * 512, 11), (1 << 15, 15)] {
        let shape = Shape::new(CellFormat::Counting, cells, 8);
        let lines = (cells / LINE_CELLS) as usize;
        let mut counts = vec![0_u32; lines];
        let mut distances = vec![0_u32; reach];
        let seed = KeyHash { low: 1, high: 1 };
        let keys = 2000 * lines as u32;
        for i in 0..keys {
            let hash = KeyHash {
                low: 0,
                high: seed.value(i + 1),
            };
            let [first, second] = shape.two_lines(hash);
            counts[first] += 1;
            counts[second] += 1;
            distances[(second + lines - first) % lines - 1] += 1;
        }
        let all_near = |counts: &[u32], mean: u32| {
            let near = |count: &u32| count.abs_diff(mean) < 6 * mean.isqrt();
            assert!(counts.iter().all(near), "{cells}: {counts:?}, not {mean}");
        };
        all_near(&counts, 4000);
        all_near(&distances, keys / reach as u32);
    }
}
