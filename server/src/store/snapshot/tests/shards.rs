//! Tests of the number of shards into which the bits of a filter are divided.

use super::*;

/// Returns a spec of 64 MiB.
fn spec(layout: Layout) -> FilterSpec {
    let request = SpecRequest {
        layout,
        bit_count: Some(64 << 23),
        false_positive_rate: None,
        ..SpecRequest::new(1000, 0.5)
    };
    request.resolve().unwrap()
}

/// A stored filter keeps its number of shards, because its keys stay where they were.
#[test]
fn a_filter_keeps_its_number_of_shards() {
    for layout in Layout::OWN {
        let many = spec(layout);
        assert_eq!(many.body.shape().shard_count(), 256);
        let few = in_shards(many.clone(), 16);
        for spec in [many, few] {
            let (_, directory, ..) = victim_with(&spec);
            let reader = directory.read_filter(&"urls".parse().unwrap());
            assert_eq!(reader.unwrap().unwrap().header().spec, spec);
            let stored = read(&directory, "urls").unwrap().unwrap();
            assert_eq!(stored.len(), spec.body.shape().shard_count());
            assert_eq!(stored.iter().sum::<u64>(), 1, "the first alone is stored");
        }
    }
}

/// A number of shards in a file cannot make shards of size 0, or more shards than any filter has.
#[test]
fn shards_of_other_sizes_are_refused() {
    let (disk, directory, file, good) = victim_with(&spec(Layout::Blocked));
    for (sizes, expected) in [
        ([0, 2_097_152], "bit_count: expected 1 to"),
        ([u64::MAX, 2_097_152], "bit_count: expected 1 to"),
        ([256, 0], "bit_count: expected 1 to"),
        (
            [16, 2_097_152 * 17],
            "shard count: expected one, or shards of 16 KiB to 4 MiB",
        ),
        (
            [8192, 65_536],
            "shard count: expected one, or shards of 16 KiB to 4 MiB",
        ),
        (
            [256, 2_097_153],
            "bits per shard: expected 2097664, found 2097153",
        ),
    ] {
        let mut bytes = good.clone();
        for (place, number) in bytes[at::NUMBERS..].chunks_mut(8).zip(sizes) {
            place.copy_from_slice(&u64::to_le_bytes(number));
        }
        let sum = checksum(&bytes[COVERED]).to_le_bytes();
        bytes[at::CHECKSUM..][..8].copy_from_slice(&sum);
        disk.put(&file, &bytes);
        let message = refusal(&directory, &file, expected);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}
