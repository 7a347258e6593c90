//! Marks, padding and encodings of text files, in every command that reads lines.

use std::fs;

use tempfile::TempDir;

use crate::run::{run, run_with_input};
use seenset_fake::Service;

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn utf16(text: &str) -> Vec<u8> {
    let units = text.encode_utf16();
    units.flat_map(u16::to_le_bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_after_a_byte_order_mark_matches() {
    let service = Service::start().await;
    let list = "\u{feff}spam\r\nham\r\n\u{feff}eggs\r\n";
    let load = run_with_input(&service, &["--filter=words", "load", "-"], list);
    assert_eq!(load.code, Some(0), "{}", load.stderr);
    for word in ["spam", "ham", "eggs"] {
        assert!(service.state.contains("words", word), "{word}");
    }
    assert_eq!(service.state.key_count(), 3);
    let text = "\u{feff}spam here\nnothing\n\u{feff}eggs\n";
    let found = run_with_input(&service, &["--filter=words", "match"], text);
    assert_eq!(found.stdout, "\u{feff}spam here\n\u{feff}eggs\n");
    let found = run_with_input(&service, &["--filter=words", "match", "-o"], text);
    assert_eq!(found.stdout, "spam\neggs\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn dedup_knows_a_marked_copy_and_writes_lines_as_they_came() {
    let service = Service::start().await;
    let marked = "\u{feff}a\nb\n";
    let first = run_with_input(&service, &["dedup"], marked);
    assert_eq!((first.code, &*first.stdout), (Some(0), marked));
    for copy in [
        "a\nb\n".into(),
        marked.as_bytes().to_vec(),
        gzip(marked.as_bytes()),
    ] {
        let again = run_with_input(&service, &["dedup"], copy);
        assert_eq!((again.code, &*again.stdout), (Some(0), ""));
        assert!(
            again.stderr.starts_with("2 lines: 0 new, 2 seen"),
            "{}",
            again.stderr
        );
    }
    // Each of several compressed files has its own mark, and tapes pad them.
    let tape = [
        gzip("\u{feff}c\n".as_bytes()),
        gzip("\u{feff}d\n".as_bytes()),
        vec![0; 700],
    ];
    let dedup = run_with_input(&service, &["dedup"], tape.concat());
    assert_eq!(
        (dedup.code, &*dedup.stdout),
        (Some(0), "\u{feff}c\n\u{feff}d\n")
    );
    for key in ["a", "b", "c", "d"] {
        assert!(service.state.contains("", key), "{key}");
    }
    assert_eq!(service.state.key_count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn padding_behind_the_last_line_is_no_key() {
    let service = Service::start().await;
    for (input, expected) in [
        (&b"a\r\nb\r\n\x1a"[..], "a\r\nb\r\n"),
        (b"c\nd\0\0\0\0", "c\nd\n"),
    ] {
        let dedup = run_with_input(&service, &["dedup"], input);
        assert_eq!((dedup.code, &*dedup.stdout), (Some(0), expected));
        assert!(
            dedup.stderr.starts_with("2 lines: 2 new"),
            "{}",
            dedup.stderr
        );
    }
    assert_eq!(service.state.key_count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn utf16_marks_no_garbage() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("list");
    for content in [utf16("\u{feff}a\nb\n"), gzip(&utf16("\u{feff}a\nb\n"))] {
        fs::write(&file, content).unwrap();
        for command in [
            &["load"][..],
            &["dedup"],
            &["match"],
            &["filter", "rebuild", "f"],
        ] {
            service.state.filters.lock().unwrap().insert("f".to_owned());
            let args = [command, &[file.to_str().unwrap()]].concat();
            let refused = run(&service, &args);
            assert_eq!(
                (refused.code, &*refused.stdout),
                (Some(1), ""),
                "{command:?}"
            );
            let expected = "list:0: the text is UTF-16, and lines must be UTF-8: convert it";
            assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        }
    }
    // Without a mark it is found by its NULs, line by line.
    let dedup = run_with_input(&service, &["dedup"], utf16("a\nb\n"));
    assert_eq!((dedup.code, &*dedup.stdout), (Some(1), ""));
    let expected = "stdin:1: NUL at byte 2: binary, or UTF-16 without a mark; left out\n";
    assert!(dedup.stderr.starts_with(expected), "{}", dedup.stderr);
    assert_eq!(service.state.key_count(), 0);
}
