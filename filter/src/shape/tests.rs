//! The division into shards.

use super::*;
use crate::{blocked::Blocked, classic::Classic, counters::Counters, format::Format};

/// For every grain and any number of bits: no shard is too large or, if there are several,
/// too small. A request for more bits never gets fewer, and a request for the resulting number
/// gives the same again.
#[test]
fn bits_are_divided_evenly_and_never_short() {
    let grains = [Blocked::GRAIN, Classic::GRAIN, Counters::GRAIN].map(|grain| (grain, false));
    for (grain, is_array) in grains.into_iter().chain([(Grain::WORDS, true)]) {
        let divide = |bits| match is_array {
            true => Shape::of_array(bits, 8),
            false => Shape::new(grain, bits, 8),
        };
        let least = MIN_SHARD_BYTES * 8 / grain.cell.bits();
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
            let shape = divide(bit_count);
            assert!(shape.bit_count() >= bit_count && shape.bit_count() >= last);
            assert!(shape.has_good_shards() || is_array, "{shape:?}");
            assert_eq!(shape.shard_words() as u64 * 8, shape.shard_bytes());
            assert_eq!(divide(shape.bit_count()), shape);
            last = shape.bit_count();
        }
    }
}

#[test]
fn there_are_many_shards_where_they_are_not_too_small() {
    let shards = |grain, bits| Shape::new(grain, bits, 8).shard_count();
    let bits = |mib: u64| mib << 23;
    let blocked = [1, 4, 64, 1024, 1025].map(|mib| shards(Blocked::GRAIN, bits(mib)));
    assert_eq!(blocked, [64, 256, 256, 256, 257]);
    assert_eq!(shards(Classic::GRAIN, bits(1)), 64);
    // With four bits each.
    assert_eq!(shards(Counters::GRAIN, bits(1)), 256);
    assert_eq!(shards(Blocked::GRAIN, MIN_SHARD_BYTES * 16 - 512 * 2), 1);
    assert_eq!(shards(Blocked::GRAIN, MIN_SHARD_BYTES * 16), 2);
    assert_eq!(Shape::of_array(bits(64), 8).shard_count(), 16);
}
