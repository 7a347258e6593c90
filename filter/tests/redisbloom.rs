//! Dumps of RedisBloom: dumps that RedisBloom itself made, and dumps that it would not make.
//!
//! `exchange/redisbloom-*.dump` were made by RedisBloom 2.8.2, with
//! `interop/redisbloom/dumps.py` and the keys of [`keys`]: `chain` by `BF.RESERVE chain 0.01
//! 10 EXPANSION 2`, and `powers` with 2^10 bits, as the first releases made filters.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

use std::error::Error;

use seenset_filter::{
    exchange::{
        ExchangeError, MAX_PIECE_WORDS,
        redisbloom::{Chain, ChainLayer, DumpReader},
    },
    hash::murmur::of_redisbloom,
};

const CHAIN: &[u8] = include_bytes!("exchange/redisbloom-chain.dump");
const POWERS: &[u8] = include_bytes!("exchange/redisbloom-powers.dump");

/// The offset of the header in a dump, after the iterator and the length, and of its layers.
const HEADER: usize = 16;
const LAYERS: usize = HEADER + 20;
const LAYER_BYTES: usize = 53;

fn keys() -> impl Iterator<Item = String> {
    (0..40).map(|number| format!("https://example.com/{number}"))
}

fn read(dump: &[u8]) -> Result<(Chain, Vec<Vec<u64>>), ExchangeError> {
    let reader = DumpReader::open(dump, dump.len() as u64)?;
    let chain = reader.chain().clone();
    let mut words = vec![Vec::new(); chain.layers().len()];
    reader.read_words::<ExchangeError>(|layer, first, piece| {
        assert_eq!(first, words[layer].len() as u64);
        assert!((1..=MAX_PIECE_WORDS).contains(&piece.len()));
        words[layer].extend_from_slice(piece);
        Ok(())
    })?;
    Ok((chain, words))
}

/// Adds each key as RedisBloom does: to the newest layer, unless any layer has it.
fn replay(layers: &[ChainLayer]) -> Vec<Vec<u64>> {
    let mut words: Vec<Vec<u64>> = layers
        .iter()
        .map(|layer| vec![0; layer.word_count() as usize])
        .collect();
    let (mut newest, mut added) = (0, 0);
    for key in keys() {
        let hash = of_redisbloom(key.as_bytes());
        let mut all = layers.iter().zip(&words);
        if all.any(|(layer, words)| layer.contains(words, hash)) {
            continue;
        }
        if added == layers[newest].capacity() {
            assert_eq!(layers[newest].keys_added(), added);
            (newest, added) = (newest + 1, 0);
        }
        assert!(layers[newest].insert(&mut words[newest], hash) > 0);
        assert_eq!(layers[newest].insert(&mut words[newest], hash), 0);
        added += 1;
    }
    assert_eq!(layers[newest].keys_added(), added);
    words
}

#[test]
fn dumps_of_redisbloom_are_read_bit_for_bit() {
    // One key of the chain was a false positive.
    let sizes = [(CHAIN, &[2, 4, 9][..], 39), (POWERS, &[16], 40)];
    for (dump, word_counts, keys_added) in sizes {
        let (chain, words) = read(dump).unwrap();
        let found: Vec<u64> = chain.layers().iter().map(ChainLayer::word_count).collect();
        assert_eq!(found, word_counts);
        assert_eq!(words, replay(chain.layers()));
        assert_eq!(chain.keys_added(), keys_added);
        for key in keys() {
            let mut all = chain.layers().iter().zip(&words);
            assert!(all.any(|(layer, words)| layer.contains(words, of_redisbloom(key.as_bytes()))));
        }
    }
}

#[test]
fn a_layer_is_what_its_header_says() {
    let (chain, _) = read(CHAIN).unwrap();
    let capacities: Vec<u64> = chain.layers().iter().map(ChainLayer::capacity).collect();
    assert_eq!(capacities, [10, 20, 40]);
    let rates: Vec<f64> = chain
        .layers()
        .iter()
        .map(ChainLayer::false_positive_rate)
        .collect();
    assert_eq!(rates, [0.005, 0.0025, 0.00125]);
    let hash_counts: Vec<u32> = chain.layers().iter().map(ChainLayer::hash_count).collect();
    assert_eq!(hash_counts, [8, 9, 10]);
}

/// Returns a dump of one layer of `word_count` words in chunks of the given lengths.
fn dump(word_count: u64, chunks: &[u64]) -> Vec<u8> {
    let mut dump = POWERS[..LAYERS + LAYER_BYTES].to_vec();
    let bytes = word_count * 8;
    dump[LAYERS..][..8].copy_from_slice(&bytes.to_le_bytes());
    dump[LAYERS + 8..][..8].copy_from_slice(&(bytes * 8).to_le_bytes());
    // Positions are taken modulo the number of bits.
    dump[LAYERS + 52] = 0;
    let mut end = 0;
    for chunk in chunks {
        dump.extend((end as i64 + *chunk as i64 + 1).to_le_bytes());
        dump.extend(chunk.to_le_bytes());
        dump.extend((end..end + chunk).map(|byte| (byte % 251) as u8));
        end += chunk;
    }
    dump
}

/// For any shard_map of the bits into chunks, and for more than one piece.
#[test]
fn chunks_are_put_together() {
    let most = MAX_PIECE_WORDS as u64;
    for word_count in [1, 5, most, 2 * most + 3] {
        let bytes = word_count * 8;
        let (_, expected) = read(&dump(word_count, &[bytes])).unwrap();
        assert_eq!(expected[0].len() as u64, word_count);
        for first in [1, 7, bytes / 2, bytes - 1] {
            let (_, words) = read(&dump(word_count, &[first, bytes - first])).unwrap();
            assert!(words == expected, "{first} of {bytes}");
        }
    }
}

#[test]
fn dumps_that_cannot_be_are_refused() {
    // The offset of the change in the chain's dump, the new bytes, and the expected error.
    let layer = |number: usize, field: usize| LAYERS + number * LAYER_BYTES + field;
    let cases: [(usize, &[u8], &str); 27] = [
        (0, &[2], "first iterator is 2; it must be 1"),
        (8, &[0], "length of the header is too short"),
        (8, &[178], "length of the header is 178; it must be 179"),
        (8, &[195], "it must be 179; a filter with a bf-hash-seed"),
        (
            8,
            &[0xff; 8],
            "length of the header is 18446744073709551615",
        ),
        (8, &[0x5c, 1], "header is 348; it must be at most 347"),
        (HEADER, &[41], "size is 41; it must be 39, the sum"),
        (HEADER, &[38], "size of filter 2 is 9; it must be at most 8"),
        (HEADER + 8, &[0], "nfilters is 0; it must be 1 to 64"),
        (HEADER + 8, &[0xff; 4], "nfilters is 4294967295; it must"),
        (HEADER + 8, &[4], "it must be 232, since nfilters is 4"),
        (HEADER + 12, &[5 + 16], "options is 21; it must be at most"),
        (HEADER + 12, &[1], "a filter with hashes of 32 bits is not"),
        (layer(0, 0), &[0], "bytes of filter 0 is 0; it must be"),
        (layer(0, 0), &[12], "bytes of filter 0 is 12; it must be"),
        (
            layer(1, 0),
            &[0xff; 8],
            "from 8 to the 152 bytes that are left",
        ),
        // 2^61 bytes have 2^64 bits.
        (layer(1, 7), &[0x20], "bytes of filter 1 is 23058430092136"),
        (layer(1, 8), &[1], "bits of filter 1 is 257; it must be 256"),
        (layer(1, 16), &[21], "size of filter 2 is 9; it must be"),
        (layer(1, 24), &[0; 8], "error of filter 1 is 0; it must be"),
        (layer(1, 24), &[0xff; 8], "error of filter 1 is NaN; it"),
        (layer(1, 32), &[0xff; 8], "since bpe is NaN"),
        (layer(1, 40), &[0], "hashes of filter 1 is 0; it must be 1"),
        (layer(1, 40), &[255], "hashes of filter 1 is 255; it must"),
        (layer(1, 40), &[8], "hashes of filter 1 is 8; it must be 9"),
        (layer(1, 52), &[9], "n2 of filter 1 is 9; it must be 0, or"),
        (layer(1, 52), &[255], "n2 of filter 1 is 255; it must be 0"),
    ];
    for (at, bytes, expected) in cases {
        let mut dump = CHAIN.to_vec();
        dump[at..][..bytes.len()].copy_from_slice(bytes);
        let refused = read(&dump).expect_err(expected);
        let message = refused.to_string();
        assert!(message.contains(expected), "{message:?}: {expected:?}");
    }
}

/// The file is long enough, so only the header claims the length.
#[test]
fn a_header_longer_than_any_is_refused() {
    let mut dump = CHAIN.to_vec();
    dump[8..][..2].copy_from_slice(&3413_u16.to_le_bytes());
    let refused = DumpReader::open(&dump[..], u64::MAX).map(|_| ());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("is 3413; it must be at most 3412"));
}

/// A client can claim any length for a file.
#[test]
fn bits_that_no_file_has_are_refused() {
    let mut dump = CHAIN.to_vec();
    for layer in 0..2 {
        let at = LAYERS + layer * LAYER_BYTES;
        dump[at..][..8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        dump[at + 8..][..8].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    }
    let refused = DumpReader::open(&dump[..], u64::MAX).map(|_| ());
    let message = refused.unwrap_err().to_string();
    let expected = "bytes of filter 0 is 1152921504606846976; it must be a multiple of 8 from 8 to";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn chunks_that_do_not_follow_each_other_are_refused() {
    let second = LAYERS + LAYER_BYTES;
    let third = second + 16 + 24;
    let good = dump(5, &[24, 16]);
    read(&good).unwrap();
    let cases: [(usize, u8, &str); 6] = [
        (second, 24, "iterator is 24; it must be 25, at the end"),
        (second + 7, 0x80, "iterator is -9223372036854775783; it"),
        (second + 8, 0, "length of a chunk is 0; it must be 1 to"),
        (second + 8, 41, "length of a chunk is 41; it must be 1 to"),
        (third, 25, "iterator is 25; it must be 41"),
        (third + 8, 15, "iterator is 41; it must be 40"),
    ];
    for (at, byte, expected) in cases {
        let mut dump = good.clone();
        dump[at] = byte;
        let message = read(&dump).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?}: {expected:?}");
    }
    // A length that is enough for two chunks, but the first has all bytes.
    let mut long = dump(5, &[40]);
    long.extend([0; 16]);
    let message = read(&long).unwrap_err().to_string();
    assert!(message.contains("follows the last chunk is 16 bytes"));
}

/// For every length except the right one, before any bits are read.
#[test]
fn a_dump_that_is_cut_off_is_refused_at_its_header() {
    for good in [CHAIN, POWERS, &dump(5, &[24, 16])] {
        for length in 0..good.len() {
            // A header alone can belong to a shorter dump.
            let refused = read(&good[..length]);
            assert!(refused.is_err(), "{length} of {}", good.len());
        }
        let claimed = DumpReader::open(good, u64::MAX).map(|_| ());
        assert!(claimed.is_err());
        let short = &good[..good.len() - 1];
        let reader = DumpReader::open(short, good.len() as u64).unwrap();
        let error = reader.read_words::<ExchangeError>(|_, _, _| Ok(()));
        assert!(matches!(error, Err(ExchangeError::Read(_))), "{error:?}");
    }
}

#[test]
fn a_caller_that_gives_up_hears_no_more() {
    let reader = DumpReader::open(CHAIN, CHAIN.len() as u64).unwrap();
    let mut pieces = 0;
    let given_up: Result<(), Box<dyn Error>> = reader.read_words(|_, _, _| {
        pieces += 1;
        Err("no memory".into())
    });
    assert_eq!(given_up.unwrap_err().to_string(), "no memory");
    assert_eq!(pieces, 1);
}
