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
        assert_eq!(many.shard_count, 256);
        let few = FilterSpec {
            shard_count: 16,
            ..many.clone()
        };
        for spec in [many, few] {
            let (_, directory, ..) = victim_with(&spec);
            let reader = directory.read_filter(&"urls".parse().unwrap());
            assert_eq!(reader.unwrap().unwrap().header().spec, spec);
            let stored = read(&directory, "urls").unwrap().unwrap();
            assert_eq!(stored.len() as u64, spec.shard_count);
            assert_eq!(stored.iter().sum::<u64>(), 1, "the first alone is stored");
        }
    }
}

/// A number of shards in a file cannot make shards of size 0, or more shards than any filter has.
#[test]
fn shards_of_other_sizes_are_refused() {
    let (disk, directory, file, good) = victim_with(&spec(Layout::Blocked));
    for (count, expected) in [
        (0, "shard count: expected at least 1"),
        (u64::MAX, "shard count: expected at least 1"),
        (
            15,
            "shard count: expected one, or shards of 16 KiB to 4 MiB",
        ),
        (
            8192,
            "shard count: expected one, or shards of 16 KiB to 4 MiB",
        ),
        (512, "bits per shard: expected 1048576, found 2097152"),
        (255, "bit_count: expected 536993280, found 536870912"),
    ] {
        let mut bytes = good.clone();
        bytes[at::SHARD_COUNT..][..8].copy_from_slice(&u64::to_le_bytes(count));
        let sum = checksum(&bytes[COVERED]).to_le_bytes();
        bytes[at::CHECKSUM..][..8].copy_from_slice(&sum);
        disk.put(&file, &bytes);
        let message = refusal(&directory, &file, expected);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}
