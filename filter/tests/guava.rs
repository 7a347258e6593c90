//! Filters of Guava: files that Guava itself wrote, files that Guava would not write, and all
//! sizes.
//!
//! `exchange/guava-mitz-*.bin` were written by Guava 31.1, with `interop/guava/Filters.java`:
//! string filters for 40 keys at a rate of 0.01, with the keys of [`keys`].

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

use std::{error::Error, f64::consts::LN_2};

use seenset_filter::{
    exchange::{
        ExchangeError, ForeignBits, MAX_PIECE_WORDS,
        guava::{FilterReader, FilterWriter, Shape, Strategy},
    },
    hash::{KeyHash, murmur::of_guava},
    spec::FilterSpec,
};

const MADE_BY_GUAVA: [(Strategy, &[u8]); 2] = [
    (
        Strategy::Mitz32,
        include_bytes!("exchange/guava-mitz-32.bin"),
    ),
    (
        Strategy::Mitz64,
        include_bytes!("exchange/guava-mitz-64.bin"),
    ),
];

fn keys() -> impl Iterator<Item = String> {
    (0..40).map(|number| format!("https://example.com/{number}"))
}

fn read(file: &[u8]) -> Result<(Shape, Vec<u64>), ExchangeError> {
    let reader = FilterReader::open(file, file.len() as u64)?;
    let (shape, mut words) = (reader.shape(), Vec::new());
    reader.read_words::<ExchangeError>(|first, piece| {
        assert_eq!(first, words.len() as u64);
        assert!((1..=MAX_PIECE_WORDS).contains(&piece.len()));
        words.extend_from_slice(piece);
        Ok(())
    })?;
    Ok((shape, words))
}

fn write(shape: &Shape, words: &[u64], piece: usize) -> Vec<u8> {
    let mut writer = FilterWriter::create(Vec::new(), shape).unwrap();
    for piece in words.chunks(piece) {
        writer.write_words(piece).unwrap();
    }
    writer.finish().unwrap()
}

fn words(count: u64, seed: u64) -> Vec<u64> {
    let seed = KeyHash {
        low: seed,
        high: 99,
    };
    (1..=count).map(|at| seed.value(at as u32)).collect()
}

#[test]
fn filters_of_guava_are_read_and_made_bit_for_bit() {
    for (strategy, file) in MADE_BY_GUAVA {
        let (shape, theirs) = read(file).unwrap();
        assert_eq!(shape, Shape::for_capacity(strategy, 40, 0.01).unwrap());
        assert_eq!(shape.file_bytes(), file.len() as u64);
        let mut ours = vec![0; theirs.len()];
        let mut bits_added = 0;
        for key in keys() {
            assert!(shape.contains(&theirs, of_guava(key.as_bytes())), "{key}");
            bits_added += shape.insert(&mut ours, of_guava(key.as_bytes()));
            assert_eq!(shape.insert(&mut ours, of_guava(key.as_bytes())), 0);
        }
        assert_eq!(ours, theirs, "{strategy}");
        let bits_set: u32 = ours.iter().map(|word| word.count_ones()).sum();
        assert_eq!(bits_added, bits_set);
        assert_eq!(write(&shape, &ours, 4), file, "{strategy}");
    }
}

#[test]
fn other_keys_are_not_found_more_often_than_expected() {
    for (strategy, file) in MADE_BY_GUAVA {
        let (shape, words) = read(file).unwrap();
        let found = (0..10_000)
            .filter(|number| shape.contains(&words, of_guava(format!("other {number}").as_bytes())))
            .count();
        // 100 by the formula, and more with so few bits.
        assert!((50..250).contains(&found), "{strategy}: {found}");
    }
}

/// In pieces of any size, and with more than one piece.
#[test]
fn what_is_written_is_read() {
    let most = MAX_PIECE_WORDS as u64;
    for word_count in [1, 2, 100, most - 1, most, most + 1, 3 * most, 3 * most + 5] {
        for (strategy, hash_count) in [(Strategy::Mitz32, 1), (Strategy::Mitz64, 64)] {
            let shape = Shape::new(strategy, hash_count, word_count).unwrap();
            let words = words(word_count, 7);
            let file = write(&shape, &words, 1 + word_count as usize / 2);
            assert_eq!(file.len() as u64, shape.file_bytes());
            assert_eq!(read(&file).unwrap(), (shape, words));
        }
    }
}

#[test]
fn keys_added_are_found_in_filters_of_any_shape() {
    for (number, word_count) in (0..).zip([1, 2, 3, 31, 1000, 40_007]) {
        for strategy in Strategy::ALL {
            for hash_count in [1, 2, 7, 64] {
                let shape = Shape::new(strategy, hash_count, word_count).unwrap();
                let mut filter = vec![0; word_count as usize];
                for low in words(50, number) {
                    let hash = KeyHash {
                        low,
                        high: low.rotate_left(17) ^ 0x5555,
                    };
                    let fresh = !shape.contains(&filter, hash);
                    assert_eq!(shape.insert(&mut filter, hash) > 0, fresh);
                    assert!(shape.contains(&filter, hash));
                    // Each bit of the key counts.
                    let (word, mask) = shape.positions(hash).last().unwrap();
                    let mut damaged = filter.clone();
                    damaged[word] &= !mask;
                    assert!(!shape.contains(&damaged, hash));
                }
            }
        }
    }
}

/// An array of any size: the largest has more bits than 32 bits can count.
#[test]
fn positions_lie_in_the_array() {
    for strategy in Strategy::ALL {
        for word_count in [1, 3, (1 << 25) + 1, i32::MAX as u64] {
            let shape = Shape::new(strategy, 64, word_count).unwrap();
            let mut largest = 0;
            for low in words(100, word_count) {
                let high = low.rotate_left(31);
                for (word, mask) in shape.positions(KeyHash { low, high }) {
                    assert!((word as u64) < word_count && mask.is_power_of_two());
                    largest = largest.max(word as u64);
                }
            }
            // The old strategy does not reach beyond 2^31 bits.
            let reached = match strategy {
                Strategy::Mitz32 => word_count.min(1 << 25),
                Strategy::Mitz64 => word_count,
            };
            assert!(largest < reached && largest >= reached - reached / 100 - 1);
        }
    }
}

/// Three quarters as many bits as the 2^31 positions: the first third of the bits is chosen as
/// often as the two others together.
#[test]
fn bits_that_the_old_strategy_chooses_more_often_raise_the_rate() {
    let bits: u64 = 3 << 29;
    let [old, new] = [Strategy::Mitz32, Strategy::Mitz64].map(|strategy| {
        let shape = Shape::new(strategy, 13, bits / 64).unwrap();
        let positions = words(100_000, 5).into_iter().flat_map(|low| {
            let high = low.rotate_left(31);
            shape.positions(KeyHash { low, high })
        });
        let in_first_third = positions.filter(|(word, _)| (*word as u64) < bits / 64 / 3);
        let share = in_first_third.count() as f64 / 1_300_000.0;
        (
            share,
            FilterSpec::of_guava(shape, None)
                .body
                .foreign_bits()
                .unwrap(),
        )
    });
    assert!((old.0 - 1.0 / 2.0).abs() < 0.003, "{}", old.0);
    assert!((new.0 - 1.0 / 3.0).abs() < 0.003, "{}", new.0);

    // The number of choices that sets half of the bits if they are chosen equally often.
    let choices = bits as f64 * LN_2;
    let rate = |parts: &ForeignBits| parts.last().false_positive_rate(choices / 13.0);
    let is = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-5;
    assert!(is(rate(&new.1), 0.5_f64.powi(13)));
    let [first, others] = [1.5, 0.75].map(|times| 1.0 - (-LN_2 * times).exp());
    assert!(is(rate(&old.1), f64::midpoint(first, others).powi(13)));
    // The set bits give the same result.
    let set = [(bits as f64 * (first + 2.0 * others) / 3.0) as u64];
    assert!(is(old.1.false_positive_rate_at_fill(&set), rate(&old.1)));
    assert!(is(old.1.keys_at_fill(&set).unwrap(), choices / 13.0));
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let cases: [(&[u8], &str); 14] = [
        (&[], "file length is 0 bytes; it must be at least 6 bytes"),
        (&[1, 7, 0, 0, 0], "file length is 5 bytes"),
        (
            &[1, 7, 0, 0, 0, 0],
            "word_count is 0; it must be 1 to 2147483647",
        ),
        (
            &[1, 7, 0xff, 0xff, 0xff, 0xff],
            "word_count is -1; it must be 1 to 2147483647",
        ),
        (
            &[1, 7, 0x80, 0, 0, 0],
            "word_count is -2147483648; it must be",
        ),
        // Six bytes that request 17 GB.
        (
            &[1, 7, 0x7f, 0xff, 0xff, 0xff],
            "file length is 6 bytes; it must be 17179869182 bytes, since word_count is 2147483647",
        ),
        (&[1, 0, 0, 0, 0, 1], "hash_count is 0; it must be 1 to 64"),
        (&[1, 65, 0, 0, 0, 1], "hash_count is 65; it must be 1 to 64"),
        (&[1, 255, 0, 0, 0, 1], "hash_count is 255; it must be"),
        (&[2, 7, 0, 0, 0, 1], "strategy is 2; it must be 0 ("),
        (&[0xff, 7, 0, 0, 0, 1], "strategy is -1; it must be"),
        (
            &[1, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            "file length is 13 bytes; it must be 14 bytes, since word_count is 1",
        ),
        (
            &[1, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "file length is 15 bytes; it must be 14 bytes",
        ),
        // Little-endian.
        (
            &[1, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "it must be 134217734 bytes, since word_count is 16777216",
        ),
    ];
    for (file, expected) in cases {
        let message = read(file).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?}: {expected:?}");
    }
}

#[test]
fn a_file_that_ends_early_and_a_caller_that_gives_up_are_errors() {
    let shape = Shape::new(Strategy::Mitz64, 5, 20_000).unwrap();
    let file = write(&shape, &words(20_000, 3), 20_000);
    let short = &file[..file.len() - 1];
    let reader = FilterReader::open(short, file.len() as u64).unwrap();
    let error = reader.read_words::<ExchangeError>(|_, _| Ok(()));
    assert!(matches!(error, Err(ExchangeError::Read(_))), "{error:?}");

    let reader = FilterReader::open(&file[..], file.len() as u64).unwrap();
    let mut pieces = 0;
    let given_up: Result<(), Box<dyn Error>> = reader.read_words(|_, _| {
        pieces += 1;
        Err("no memory".into())
    });
    assert_eq!(given_up.unwrap_err().to_string(), "no memory");
    assert_eq!(pieces, 1);
}

#[test]
fn a_filter_is_written_with_all_of_its_words_and_no_more() {
    let shape = Shape::new(Strategy::Mitz64, 5, 3).unwrap();
    let mut writer = FilterWriter::create(Vec::new(), &shape).unwrap();
    writer.write_words(&[1, 2]).unwrap();
    let error = writer.write_words(&[3, 4]).unwrap_err().to_string();
    assert!(error.contains("number of words is 2; it must be at most 1"));
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("still missing is 1"), "{error}");
}

/// The capacity, the rate, and the hash count and number of words that Guava 33.4.6 gives for them
/// (`interop/guava/Filters.java sizes`).
#[test]
fn filters_are_sized_as_by_guava() {
    for (capacity, rate, hash_count, word_count) in [
        (1, 0.03, 5, 1),
        (1, 2.451_967_058_007_841_7E-9, 29, 1),
        (2, 1.272_029_975_527_180_6E-9, 30, 2),
        (40, 0.01, 7, 6),
        (1000, 0.03, 5, 115),
        (100_000, 0.01, 7, 14_977),
        (1_000_000, 0.001, 10, 224_650),
        (500_000_000, 1e-5, 17, 187_208_172),
    ] {
        for strategy in Strategy::ALL {
            let expected = Shape::new(strategy, hash_count, word_count).unwrap();
            let shape = Shape::for_capacity(strategy, capacity, rate).unwrap();
            assert_eq!(shape, expected, "{capacity} at {rate}");
        }
    }
    let one = Shape::for_capacity(Strategy::Mitz64, 1, 0.01).unwrap();
    let none = Shape::for_capacity(Strategy::Mitz64, 0, 0.01).unwrap();
    assert_eq!(one, none);
}

#[test]
fn sizes_that_guava_has_not_are_refused() {
    for (capacity, rate, expected) in [
        (1, 0.0, "false_positive_rate is 0; it must be above 0 and"),
        (1, 1.0, "false_positive_rate is 1; it must be"),
        (1, -0.1, "false_positive_rate is -0.1; it must be"),
        (1, f64::NAN, "false_positive_rate is NaN; it must be"),
        (1, 0.9, "false_positive_rate is 0.9; it must be lower"),
        (1, 1e-20, "hash_count is 66; it must be 1 to 64"),
        (1, f64::MIN_POSITIVE, "hash_count is 1022; it must be"),
        (
            u64::MAX,
            0.01,
            "capacity is 18446744073709551615; it must be at most 9223372036854775807",
        ),
        (i64::MAX as u64, 0.01, "word_count is"),
        (15_000_000_000, 0.01, "it must be 1 to 2147483647"),
    ] {
        let refused = Shape::for_capacity(Strategy::Mitz64, capacity, rate);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?}: {expected:?}");
    }
}

#[test]
fn names_are_read_back() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.name().parse(), Ok(strategy));
    }
    let unknown = "md5".parse::<Strategy>().unwrap_err();
    assert!(unknown.contains("murmur128-mitz-32 or murmur128-mitz-64"));
}
