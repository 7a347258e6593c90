//! Tests of filters of other programs, whose shards are cut from one array.

use super::*;
use crate::filter::{
    exchange::redisbloom::{Chain, ChainLayer},
    spec::FilterSpec,
};

pub fn guava() -> FilterSpec {
    of_guava(Layout::Guava)
}

pub fn of_guava(layout: Layout) -> FilterSpec {
    let request = SpecRequest {
        layout,
        hash_function: HashFunction::Murmur3X64_128,
        bit_count: Some(1024),
        hash_count: Some(7),
        false_positive_rate: None,
        ..SpecRequest::new(100, 0.5)
    };
    request.resolve().unwrap()
}

pub fn chain() -> FilterSpec {
    let layer = |words, modulus, hashes| ChainLayer::new(words, modulus, hashes, 10, 0.01).unwrap();
    let layers = vec![layer(4, 256, 8), layer(12, 512, 9)];
    FilterSpec::of_chain(&Chain::new(layers).unwrap(), None)
}

#[test]
fn what_they_are_comes_back() {
    for spec in [guava(), of_guava(Layout::GuavaMitz32), chain()] {
        let (_, directory, ..) = victim_with(&spec);
        let reader = directory.read_filter(&"urls".parse().unwrap()).unwrap();
        assert_eq!(reader.unwrap().header().spec, spec);
    }
}

/// Numbers that no seenset writes, with right checksums.
#[test]
fn what_no_such_filter_has_is_refused_by_name() {
    let (much, one) = (u64::MAX.to_le_bytes(), 1_u64.to_le_bytes());
    let (words, hash_count) = (at::NUMBERS, at::NUMBERS + 8);
    let impossible = "body: expected a possible filter of Guava";
    let of_guava: &[(usize, &[u8], &str)] = &[
        (words, &[0; 8], impossible),
        (words, &much, impossible),
        (words, &(1_u64 << 31).to_le_bytes(), impossible),
        (
            words,
            &32_u64.to_le_bytes(),
            "length of the file: expected 704 bytes, found 576",
        ),
        (hash_count, &[0; 8], impossible),
        (hash_count, &65_u64.to_le_bytes(), impossible),
        // Its low 32 bits are those of a filter.
        (hash_count, &((1_u64 << 32) + 7).to_le_bytes(), impossible),
        (at::NUMBERS + 16, &one, "numbers of the body: expected 0"),
        (at::BODY, &[1, 0, 0, 0], "hash_count: expected 1 to 64"),
        (at::BODY, &[10, 0, 0, 0], "extension: expected the layers"),
        (at::BODY, &[11, 0, 0, 0], "body: expected 1 to 10"),
        (
            at::HASH_FUNCTION,
            b"siphash-1-3-128\0",
            "hash function: expected one of",
        ),
    ];
    let of_a_chain: &[(usize, &[u8], &str)] = &[
        (words, &one, "numbers of the body: expected 0"),
        (
            at::HASH_FUNCTION,
            b"murmur3-x64-128\0",
            "hash function: expected one of",
        ),
        (384, &[0; 8], "extension: expected the layers"),
        (384, &one, "extension: expected the layers"),
        (384, &much, "extension: expected the layers"),
        // The words, modulus, hashes and rate of the first layer.
        (392, &much, "extension: expected the layers"),
        (392, &[0; 8], "extension: expected the layers"),
        (400, &[0; 8], "extension: expected the layers"),
        (
            400,
            &257_u64.to_le_bytes(),
            "extension: expected the layers",
        ),
        (408, &65_u64.to_le_bytes(), "extension: expected the layers"),
        (424, &much, "extension: expected the layers"),
    ];
    for (spec, cases) in [(guava(), of_guava), (chain(), of_a_chain)] {
        let (disk, directory, file, good) = victim_with(&spec);
        let extension = 384..384 + if spec.body.chain().is_some() { 88 } else { 0 };
        for (offset, value, expected) in cases {
            let mut bytes = good.clone();
            bytes[*offset..][..value.len()].copy_from_slice(value);
            let covered = [extension.clone(), COVERED].into_iter();
            for covered in covered.filter(|covered| !covered.is_empty()) {
                let sum = checksum(&bytes[covered.clone()]).to_le_bytes();
                bytes[covered.end..][..8].copy_from_slice(&sum);
            }
            disk.put(&file, &bytes);
            let message = refusal(&directory, &file, expected);
            assert!(message.contains(expected), "{message}, not {expected}");
        }
    }
}
