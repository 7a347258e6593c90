//! Files in every format, whole and damaged, cut up by every kind of read.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::lines::READ_BYTES;

/// Returns its input in pieces of `step` bytes, and then the result of `end`.
struct Pieces<'a> {
    input: &'a [u8],
    step: usize,
    end: fn() -> io::Result<usize>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return (self.end)();
        }
        let length = self.step.min(self.input.len()).min(buffer.len());
        let (piece, rest) = self.input.split_at(length);
        buffer[..length].copy_from_slice(piece);
        self.input = rest;
        Ok(length)
    }
}

const STEPS: [usize; 6] = [1, 2, 3, 7, 1000, usize::MAX];

/// Returns the bytes that are read from `input`, and the error at its end.
fn read(input: &[u8], step: usize, room: usize) -> (Vec<u8>, Option<String>) {
    let end = || Ok(0);
    let mut input = Input::new(Pieces { input, step, end });
    let mut all = Vec::new();
    let mut buffer = vec![0; room];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return (all, None),
            Ok(read) => all.extend(&buffer[..read]),
            Err(error) => return (all, Some(error.to_string())),
        }
    }
}

#[track_caller]
fn check(input: &[u8], content: &[u8], error: Option<&str>) {
    for step in STEPS {
        for room in [1, 5, 100_000] {
            let outcome = read(input, step, room);
            assert!(outcome.0 == content, "{} bytes in {step}", outcome.0.len());
            assert_eq!(outcome.1.as_deref(), error, "pieces of {step}");
        }
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Hardly compressible, so that damage anywhere matters.
fn lines(count: u64) -> Vec<u8> {
    let key = |line: u64| format!("{:x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..count).flat_map(|line| key(line).into_bytes()).collect()
}

#[test]
fn plain_files_stay_as_they_are() {
    for beginning in [
        "",
        "\n",
        "a",
        "(",
        "(\n",
        "B",
        "BZh91AY&S",
        "BZh01AY&SY",
        "P*M",
        "Plain\n",
        "\u{1f}",
    ] {
        check(beginning.as_bytes(), beginning.as_bytes(), None);
    }
    // Binary data in no known format: bad lines, as always.
    for beginning in [
        &b"\x1f\x8b"[..],
        b"\x1f\x8b\n",
        b"\x28\xb5\x2f",
        b"\x60\x2a\x4d\x18\n",
        b"\xfd7zXZ\n",
    ] {
        let content = [beginning, &lines(50)].concat();
        check(&content, &content, None);
        check(beginning, beginning, None);
    }
}

#[test]
fn members_and_frames_follow_each_other_in_any_order() {
    let (one, other) = (lines(3000), lines(17));
    let skipped = b"\x5a\x2a\x4d\x18\x03\0\0\0abc";
    check(&gzip(&one), &one, None);
    check(&zstd(&one), &one, None);
    check(&gzip(b""), b"", None);
    check(&zstd(b""), b"", None);
    check(skipped, b"", None);
    let pieces = [
        &gzip(&one)[..],
        &gzip(&other),
        &zstd(&other),
        skipped,
        &zstd(b""),
        &gzip(b""),
        &zstd(&one),
        &gzip(&other),
    ];
    let content = [&one[..], &other, &other, &one, &other].concat();
    check(&pieces.concat(), &content, None);
}

#[test]
fn what_is_cut_short_is_told_after_what_there_is() {
    let content = lines(300);
    for (format, whole) in [("gzip", gzip(&content)), ("zstd", zstd(&content))] {
        let two = [&whole[..], &whole].concat();
        let expected = format!("the {format} data end too early");
        for length in 4..two.len() {
            let (read, error) = read(&two[..length], usize::MAX, 100_000);
            let twice = [&content[..], &content].concat();
            assert!(twice.starts_with(&read));
            if length > whole.len() {
                assert!(read.len() >= content.len(), "{format} of {length}");
            }
            let behind = length.wrapping_sub(whole.len());
            match error.as_deref() {
                None => assert_eq!(behind, 0, "{format} of {length}"),
                Some("what follows the compressed data is neither gzip nor zstd") => {
                    assert!((1..4).contains(&behind), "{format} of {length}");
                }
                Some(error) => assert_eq!(error, expected),
            }
        }
    }
}

#[test]
fn what_is_damaged_is_told_or_does_not_matter() {
    let content = lines(100);
    for (format, whole) in [("gzip", gzip(&content)), ("zstd", zstd(&content))] {
        let mut told = 0;
        for at in 4..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            let (read, error) = read(&damaged, usize::MAX, 100_000);
            match error {
                Some(_) => told += 1,
                None => assert!(read == content, "{format}, byte {at}"),
            }
        }
        // The date and the operating system in the header of gzip do not concern the content, and a
        // few bits can have either value.
        assert!(
            told >= whole.len() - 20,
            "{format}: {told} of {}",
            whole.len()
        );
    }
    let mut wrong = gzip(&content);
    *wrong.last_mut().unwrap() ^= 1;
    let expected = "the gzip data are damaged (corrupt gzip stream does not have a matching \
                    checksum)";
    check(&wrong, &content, Some(expected));
}

#[test]
fn what_follows_is_no_part_of_it() {
    let content = lines(10);
    let expected = "what follows the compressed data is neither gzip nor zstd";
    for rest in [&b"a\n"[..], b"\0a", b"\x1f\x8b", b"\x28"] {
        check(&[&zstd(&content), rest].concat(), &content, Some(expected));
        check(&[&gzip(&content), rest].concat(), &content, Some(expected));
    }
}

#[test]
fn padding_between_and_after_pieces_is_skipped() {
    let content = lines(10);
    let padding = vec![0; 3000];
    let pieces = [&gzip(&content)[..], b"\0", &zstd(&content), &padding];
    check(&pieces.concat(), &[&content[..], &content].concat(), None);
    check(&[&gzip(b"")[..], &padding].concat(), b"", None);
}

#[test]
fn formats_that_are_not_read_are_named() {
    let expected = "xz is not supported: decompress it first";
    check(b"\xfd7zXZ\0\0\x04", b"", Some(expected));
    let expected = "bzip2 is not supported: decompress it first";
    check(b"BZh91AY&SY\x01", b"", Some(expected));
    check(b"BZh11AY&SY\x01", b"", Some(expected));
}

/// A frame of one line, whose window is 2 to the power of `window_log`.
fn frame(window_log: u8) -> Vec<u8> {
    let mut frame = b"\x28\xb5\x2f\xfd\0".to_vec();
    frame.push((window_log - 10) << 3);
    frame.extend(b"\x11\0\0a\n");
    frame
}

#[test]
fn a_window_is_granted_up_to_the_limit() {
    check(&frame(27), b"a\n", None);
    let expected = "a zstd frame asks for a window of 268435456 bytes, and the limit is 134217728: \
                    compress it with --long=27 or less, or decompress it first";
    check(&frame(28), b"", Some(expected));
    // Also where it comes after others.
    check(&[frame(20), frame(28)].concat(), b"a\n", Some(expected));
    // And as the size of all of it.
    let single = b"\x28\xb5\x2f\xfd\xa0\0\0\0\x10\x11\0\0a\n";
    check(single, b"", Some(expected));
}

#[test]
fn what_has_come_is_given_before_more_is_waited_for() {
    let content = lines(10);
    let unfinished = {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&content).unwrap();
        encoder.flush().unwrap();
        encoder.get_ref().clone()
    };
    let mut encoder = zstd::Encoder::new(Vec::new(), 0).unwrap();
    encoder.write_all(&content).unwrap();
    encoder.flush().unwrap();
    let frame = encoder.get_ref();
    for input in [
        &content,
        &unfinished,
        frame,
        &gzip(&content),
        &zstd(&content),
        &[&gzip(&content)[..], b"\0\0"].concat(),
    ] {
        for step in [100, usize::MAX] {
            let end = || panic!("more was waited for");
            let mut input = Input::new(Pieces { input, step, end });
            let mut read = vec![0; content.len() + 1000];
            let mut filled = 0;
            while filled < content.len() {
                filled += input.read(&mut read[filled..]).unwrap();
            }
            assert_eq!(&read[..filled], content);
        }
    }
}

#[test]
fn reads_of_files_are_full() {
    let content = lines(100_000);
    for whole in [content.clone(), gzip(&content), zstd(&content)] {
        let mut input = Input::new(&whole[..]);
        let mut buffer = vec![0; READ_BYTES];
        for piece in content.chunks(buffer.len()) {
            // Of the last one there is less.
            let read = input.read(&mut buffer).unwrap();
            assert!(&buffer[..read] == piece, "{read} bytes");
        }
        assert_eq!(input.read(&mut buffer).unwrap(), 0);
    }
}

#[test]
fn an_error_of_the_file_is_its_own() {
    let whole = gzip(&lines(1000));
    for (input, step) in [
        (&whole[..1000], 100),
        (&whole[..1], 1),
        (&whole[..], usize::MAX),
    ] {
        let end = || Err(io::Error::other("the disk is on fire"));
        let mut input = Input::new(Pieces { input, step, end });
        let error = io::copy(&mut input, &mut io::sink()).unwrap_err();
        assert_eq!(error.to_string(), "the disk is on fire");
    }
}
