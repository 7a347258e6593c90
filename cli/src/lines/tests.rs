//! The line reader against every kind of line, cut up by every kind of read.

use std::cell::{Cell, RefCell};

use super::*;

/// Returns its input in pieces of `step` bytes.
struct Pieces<'a> {
    input: &'a [u8],
    step: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.step.min(self.input.len()).min(buffer.len());
        let (piece, rest) = self.input.split_at(length);
        buffer[..length].copy_from_slice(piece);
        self.input = rest;
        Ok(length)
    }
}

#[derive(Default)]
struct Seen {
    empty: Cell<u64>,
    bad: RefCell<Vec<String>>,
}

impl Observer for Seen {
    fn empty(&self) {
        self.empty.set(self.empty.get() + 1);
    }

    fn bad(&self, position: &Position, reason: &str) {
        self.bad.borrow_mut().push(format!("{position}: {reason}"));
    }
}

const LIMITS: Limits = Limits {
    max_line_bytes: 8,
    max_line_argument: "--max-key-bytes",
    with_empty_lines: false,
    only_utf8: true,
    format: RecordFormat::Lines,
    batch_lines: 3,
    batch_bytes: 64,
    whole_batches: false,
};

struct Outcome {
    /// Each line, unchanged.
    lines: Vec<Vec<u8>>,
    batches: Vec<LineBatch>,
    empty: u64,
    bad: Vec<String>,
    last: u64,
}

fn read(input: &[u8], step: usize, limits: Limits) -> Outcome {
    let seen = Seen::default();
    let mut reader = LineReader::new("f", Pieces { input, step }, limits);
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch(&seen).unwrap() {
        assert_eq!(batch.lines.len(), batch.keys.len());
        assert!(!batch.keys.is_empty() && batch.keys.len() <= limits.batch_lines);
        batches.push(batch);
    }
    assert!(reader.next_batch(&seen).unwrap().is_none());
    Outcome {
        lines: batches
            .iter()
            .flat_map(|batch| {
                batch
                    .lines
                    .iter()
                    .map(|line| batch.bytes[line.clone()].to_vec())
            })
            .collect(),
        last: reader.position().line,
        batches,
        empty: seen.empty.get(),
        bad: seen.bad.into_inner(),
    }
}

/// Checks the result of `lines`, with reads of every size.
#[track_caller]
fn check(input: &[u8], lines: &[&[u8]], keys: &[&str], empty: u64, bad: &[&str], last: u64) {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    check_with(LIMITS, input, lines, &keys, empty, bad, last);
}

/// The same check with other limits, and keys of any bytes.
#[track_caller]
fn check_with(
    limits: Limits,
    input: &[u8],
    lines: &[&[u8]],
    keys: &[&[u8]],
    empty: u64,
    bad: &[&str],
    last: u64,
) {
    for step in [1, 2, 3, 5, 7, 11, 1000] {
        let outcome = read(input, step, limits);
        assert_eq!(outcome.lines, lines, "reads of {step}");
        assert_eq!(outcome.empty, empty, "reads of {step}");
        assert_eq!(outcome.bad, bad, "reads of {step}");
        assert_eq!(outcome.last, last, "reads of {step}");
        let mut rest = keys.iter();
        for batch in outcome.batches {
            let expected: KeyBatch = rest.by_ref().take(batch.keys.len()).collect();
            assert_eq!(batch.keys, expected, "reads of {step}");
        }
        assert!(rest.next().is_none());
    }
}

#[test]
fn both_endings_and_none_give_the_same_keys() {
    check(
        b"a\nbb\r\nccc",
        &[b"a\n", b"bb\r\n", b"ccc"],
        &["a", "bb", "ccc"],
        0,
        &[],
        3,
    );
    check(b"a\nb\n", &[b"a\n", b"b\n"], &["a", "b"], 0, &[], 2);
    // The LF that the last line lacks would have made it CRLF.
    check(b"a\r", &[b"a\r"], &["a"], 0, &[], 1);
    // A CR elsewhere is a part of the key.
    check(b"a\rb\r\r\n", &[b"a\rb\r\r\n"], &["a\rb\r"], 0, &[], 1);
    check(b"", &[], &[], 0, &[], 0);
}

#[test]
fn empty_lines_are_left_out_and_counted() {
    check(
        b"\n\r\na\n\n\nb\n\r",
        &[b"a\n", b"b\n"],
        &["a", "b"],
        5,
        &[],
        7,
    );
    check(b"\n\n\n\n\n\n\n\n\n", &[], &[], 9, &[], 9);
}

#[test]
fn empty_lines_are_lines_where_that_is_asked_for() {
    let limits = Limits {
        with_empty_lines: true,
        ..LIMITS
    };
    let outcome = read(b"\n\r\na\n\r", 2, limits);
    assert_eq!(outcome.lines, [&b"\n"[..], b"\r\n", b"a\n", b"\r"]);
    assert_eq!((outcome.empty, outcome.last), (0, 4));
}

#[test]
fn a_line_at_the_limit_is_a_key_and_one_over_it_is_bad() {
    let bad = "f:2: longer than 8 bytes (--max-key-bytes)";
    check(
        b"12345678\r\n123456789\nx\n",
        &[b"12345678\r\n", b"x\n"],
        &["12345678", "x"],
        0,
        &[bad],
        3,
    );
    check(b"12345678", &[b"12345678"], &["12345678"], 0, &[], 1);
    check(b"a\n123456789", &[b"a\n"], &["a"], 0, &[bad], 2);
    check(b"a\n123456789\r", &[b"a\n"], &["a"], 0, &[bad], 2);
    let mut long = b"a\n".to_vec();
    long.extend([b'x'; 500]);
    long.extend(b"\nb\n\nc");
    check(
        &long,
        &[b"a\n", b"b\n", b"c"],
        &["a", "b", "c"],
        1,
        &[bad],
        5,
    );
}

#[test]
fn a_line_that_is_not_utf8_is_bad_and_the_next_is_not() {
    check(
        b"a\nb\xff\nc\xc3\xa4\n\xc3",
        &[b"a\n", b"c\xc3\xa4\n"],
        &["a", "cä"],
        0,
        &[
            "f:2: not UTF-8 from byte 2 on",
            "f:4: not UTF-8 from byte 1 on",
        ],
        4,
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_key_and_stays_in_its_line() {
    let marked = "\u{feff}12345678\n\u{feff}\r\nx\u{feff}\n\u{feff}b";
    check(
        marked.as_bytes(),
        &[
            "\u{feff}12345678\n".as_bytes(),
            "x\u{feff}\n".as_bytes(),
            "\u{feff}b".as_bytes(),
        ],
        &["12345678", "x\u{feff}", "b"],
        1,
        &[],
        4,
    );
    check("\u{feff}".as_bytes(), &[], &[], 1, &[], 1);
    let bad = "f:1: longer than 8 bytes (--max-key-bytes)";
    check("\u{feff}123456789".as_bytes(), &[], &[], 0, &[bad], 1);
    // A part of the mark is none.
    let bad = "f:1: not UTF-8 from byte 1 on";
    check(b"\xef\xbb\na", &[b"a"], &["a"], 0, &[bad], 2);
}

#[test]
fn other_encodings_are_refused_before_a_line_is_taken() {
    let utf16 = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    let little: Vec<u8> = utf16("\u{feff}a\nb\n")
        .into_iter()
        .flat_map(u16::to_le_bytes)
        .collect();
    let big: Vec<u8> = utf16("\u{feff}a\nb\n")
        .into_iter()
        .flat_map(u16::to_be_bytes)
        .collect();
    for (input, name) in [
        (&little[..], "UTF-16"),
        (&big[..], "UTF-16"),
        (b"\xff\xfe", "UTF-16"),
        (b"\xff\xfe\0\0a\0\0\0\n\0\0\0", "UTF-32"),
        (b"\0\0\xfe\xff\0\0\0a", "UTF-32"),
    ] {
        for step in [1, 2, 3, 1000] {
            let mut reader = LineReader::new("f", Pieces { input, step }, LIMITS);
            let error = reader.next_batch(&Seen::default()).unwrap_err();
            let expected = format!(
                "the text is {name}, and lines must be UTF-8: convert it first, as with iconv -f \
                 {name} -t UTF-8"
            );
            assert_eq!(error.to_string(), expected);
            assert_eq!(reader.position().line, 0);
        }
    }
    // Without a mark, each line has a NUL.
    let bad = [
        "f:1: NUL at byte 2: binary, or UTF-16 without a mark",
        "f:2: NUL at byte 1: binary, or UTF-16 without a mark",
    ];
    check(&little[2..8], &[], &[], 0, &bad, 2);
    let bad = "f:1: not UTF-8 from byte 1 on";
    check(b"\xff\xfdx\na\n", &[b"a\n"], &["a"], 0, &[bad], 2);
}

#[test]
fn padding_at_the_end_is_no_line_and_nuls_elsewhere_make_a_line_bad() {
    let kilobyte = [0; 1024];
    for padding in [&b"\x1a"[..], b"\0", b"\x1a\x1a\0", &kilobyte] {
        let padded = |text: &[u8]| [text, padding].concat();
        check(&padded(b"a\r\n"), &[b"a\r\n"], &["a"], 0, &[], 1);
        check(&padded(b"a\nb"), &[b"a\n", b"b"], &["a", "b"], 0, &[], 2);
        check(&padded(b""), &[], &[], 0, &[], 0);
    }
    // It is bounded in memory, and no line that is too long.
    let padded = io::Read::chain(&b"12345678"[..], io::repeat(0).take(1 << 28));
    let mut reader = LineReader::new("f", padded, LIMITS);
    let batch = reader.next_batch(&Seen::default()).unwrap().unwrap();
    assert_eq!(batch.keys, KeyBatch::from(["12345678"]));
    assert!(reader.next_batch(&Seen::default()).unwrap().is_none());
    assert!(reader.buffer.capacity() <= 4 * READ_BYTES);

    let bad = |line: u64, byte: u64| {
        format!("f:{line}: NUL at byte {byte}: binary, or UTF-16 without a mark")
    };
    check(
        b"a\nb\0\0\0c\nd\x1ae\n\0\n",
        &[b"a\n", b"d\x1ae\n"],
        &["a", "d\u{1a}e"],
        0,
        &[&bad(2, 2), &bad(4, 1)],
        4,
    );
}

#[test]
fn the_beginning_of_a_slow_pipe_is_not_held_back() {
    struct Waiting;
    impl Read for Waiting {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("more was waited for");
        }
    }
    for first in [&b"a\n"[..], "\u{feff}a\n".as_bytes(), b"\xff\xfda\na\n"] {
        let input = io::Read::chain(first, Waiting);
        let mut reader = LineReader::new("f", input, LIMITS);
        let batch = reader.next_batch(&Seen::default()).unwrap().unwrap();
        assert_eq!(batch.keys, KeyBatch::from(["a"]));
    }
}

#[test]
fn batches_are_bounded_by_keys_and_by_bytes() {
    let input = "12345678\n".repeat(100);
    let limits = Limits {
        batch_lines: 1000,
        ..LIMITS
    };
    let outcome = read(input.as_bytes(), 1000, limits);
    assert_eq!(outcome.lines.len(), 100);
    for batch in &outcome.batches {
        assert!(batch.bytes.len() < limits.batch_bytes + 9, "{batch:?}");
    }
    let ends: Vec<_> = read(input.as_bytes(), 1000, LIMITS)
        .batches
        .iter()
        .map(|batch| batch.end.line)
        .collect();
    assert_eq!(ends[..3], [3, 6, 9]);
    assert_eq!(ends.last(), Some(&100));
}

#[test]
fn a_slow_pipe_is_not_held_back_and_a_fast_file_fills_batches() {
    let seen = Seen::default();
    let limits = Limits {
        batch_lines: 1000,
        batch_bytes: 1 << 20,
        ..LIMITS
    };
    let input = b"a\nb\nc\nd";
    let mut slow = LineReader::new("f", Pieces { input, step: 4 }, limits);
    assert_eq!(slow.next_batch(&seen).unwrap().unwrap().end.line, 2);

    let input = "1234567\n".repeat(50_000);
    let outcome = read(input.as_bytes(), usize::MAX, limits);
    let sizes: Vec<_> = outcome
        .batches
        .iter()
        .map(|batch| batch.lines.len())
        .collect();
    assert_eq!(sizes, [1000; 50]);
}

#[test]
fn an_endless_line_takes_no_memory() {
    let seen = Seen::default();
    let input = io::Read::chain(&b"a\n"[..], io::repeat(b'x').take(1 << 30));
    let limits = Limits {
        batch_lines: 2,
        ..LIMITS
    };
    let mut reader = LineReader::new("f", input, limits);
    assert_eq!(reader.next_batch(&seen).unwrap().unwrap().end.line, 1);
    assert!(reader.next_batch(&seen).unwrap().is_none());
    assert_eq!(reader.position().line, 2);
    assert!(reader.buffer.capacity() <= 4 * READ_BYTES);
    assert_eq!(seen.bad.borrow().len(), 1);
}

#[test]
fn an_error_comes_after_the_lines_before_it() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    // Also after a read that returned all bytes that it was asked for.
    let full = "1234567\n".repeat(READ_BYTES / 8);
    for (before, lines) in [("a\nb\nc", 2), (&full, READ_BYTES as u64 / 8)] {
        let seen = Seen::default();
        let limits = Limits {
            batch_lines: READ_BYTES,
            batch_bytes: 2 * READ_BYTES,
            ..LIMITS
        };
        let input = io::Read::chain(before.as_bytes(), Failing);
        let mut reader = LineReader::new("f", input, limits);
        let batch = reader.next_batch(&seen).unwrap().unwrap();
        assert_eq!((batch.lines.len() as u64, batch.end.line), (lines, lines));
        assert!(reader.next_batch(&seen).is_err());
        assert_eq!(reader.position().line, lines);
    }
}

fn of(format: RecordFormat) -> Limits {
    Limits {
        only_utf8: false,
        format,
        ..LIMITS
    }
}

/// Checks the failure of a file, and the lines before it, with reads of every size.
#[track_caller]
fn check_failure(limits: Limits, input: &[u8], lines: &[&[u8]], failure: &str) {
    for step in [1, 2, 3, 5, 7, 11, 1000] {
        let mut reader = LineReader::new("f", Pieces { input, step }, limits);
        let mut before = Vec::new();
        let error = loop {
            match reader.next_batch(&Seen::default()) {
                Ok(batch) => {
                    let batch = batch.unwrap();
                    let lines = batch.lines.iter().cloned();
                    before.extend(lines.map(|line| batch.bytes[line].to_vec()));
                }
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(error, failure, "reads of {step}");
        assert_eq!(before, lines, "reads of {step}");
    }
}

#[test]
fn lines_of_any_bytes_are_keys_where_utf8_is_not_asked_for() {
    check_with(
        of(RecordFormat::Lines),
        b"a\xff\r\n\xfe\n\xff\xfe\xfd",
        &[b"a\xff\r\n", b"\xfe\n", b"\xff\xfe\xfd"],
        &[b"a\xff", b"\xfe", b"\xff\xfe\xfd"],
        0,
        &[],
        3,
    );
    let bad = "f:1: NUL at byte 2: binary, or UTF-16 without a mark";
    let lines = of(RecordFormat::Lines);
    check_with(lines, b"\xff\0x\nb", &[b"b"], &[b"b"], 0, &[bad], 2);
}

/// Looks for nothing else: no marks, no other endings, no padding.
#[test]
fn keys_end_with_a_nul() {
    let null = of(RecordFormat::Null);
    check_with(
        null,
        b"\xff\xfea\0\xef\xbb\xbfb\n\0\0\r\n\0c\x1a",
        &[b"\xff\xfea\0", b"\xef\xbb\xbfb\n\0", b"\r\n\0", b"c\x1a"],
        &[b"\xff\xfea", b"\xef\xbb\xbfb\n", b"\r\n", b"c\x1a"],
        1,
        &[],
        5,
    );
    let bad = "f:1: longer than 8 bytes (--max-key-bytes)";
    let long = b"123456789\x0012345678\0";
    check_with(null, long, &[b"12345678\0"], &[b"12345678"], 0, &[bad], 2);
    let long = [&[b'x'; 300][..], b"\0a"].concat();
    check_with(null, &long, &[b"a"], &[b"a"], 0, &[bad], 2);
}

#[test]
fn keys_have_their_length_before_them() {
    let binary = of(RecordFormat::Binary);
    check_with(
        binary,
        b"\0\0\0\x02\xff\xfe\0\0\0\0\0\0\0\x03\0\n\0\0\0\0\x011",
        &[b"\0\0\0\x02\xff\xfe", b"\0\0\0\x03\0\n\0", b"\0\0\0\x011"],
        &[b"\xff\xfe", b"\0\n\0", b"1"],
        1,
        &[],
        4,
    );
    check_with(binary, b"", &[], &[], 0, &[], 0);
    // Too long, whether all of it is in the buffer or not.
    let bad = "f:2: longer than 8 bytes (--max-key-bytes)";
    for length in [9, 300] {
        let long = vec![0; length as usize];
        let input = [
            &b"\0\0\0\x01a"[..],
            &u32::to_be_bytes(length)[..],
            &long,
            b"\0\0\0\x01b",
        ];
        let lines: [&[u8]; 2] = [b"\0\0\0\x01a", b"\0\0\0\x01b"];
        check_with(binary, &input.concat(), &lines, &[b"a", b"b"], 0, &[bad], 3);
    }
}

#[test]
fn a_file_that_ends_within_a_key_says_where() {
    let binary = of(RecordFormat::Binary);
    let first = b"\0\0\0\x02ab";
    let cut = |rest: &[u8], failure: &str| {
        check_failure(binary, &[first, rest].concat(), &[first], failure);
    };
    cut(
        b"\0\0\0\x05abc",
        "the key at byte 6 has 5 bytes after its length, and the file ends after 3 of them",
    );
    cut(
        b"\0\0",
        "the length of the key at byte 6 has 4 bytes, and the file ends after 2 of them",
    );
    // A text, for instance.
    cut(
        b"http://example.com/",
        "the file ends 1752462433 bytes before the end of its last key, which is too long",
    );
    // After one that was left out.
    let long = [&[0, 0, 0, 9][..], &[7; 9], b"\0\0\0\x01"].concat();
    cut(
        &long,
        "the key at byte 19 has 1 bytes after its length, and the file ends after 0 of them",
    );
}

#[test]
fn lines_of_digits_are_keys_of_bytes() {
    let hex = of(RecordFormat::HexLines);
    check_with(
        hex,
        b"fffe\n00\r\n\nFF",
        &[b"fffe\n", b"00\r\n", b"FF"],
        &[b"\xff\xfe", b"\0", b"\xff"],
        1,
        &[],
        4,
    );
    let bad = [
        "f:1: 3 hexadecimal digits: each byte has two",
        "f:2: no hexadecimal digit at byte 4",
        "f:4: longer than 8 bytes (--max-key-bytes)",
    ];
    let input = b"fff\nffax\n0011223344556677\n001122334455667788\n";
    let key = b"\0\x11\x22\x33\x44\x55\x66\x77";
    check_with(hex, input, &[b"0011223344556677\n"], &[key], 0, &bad, 4);
}
