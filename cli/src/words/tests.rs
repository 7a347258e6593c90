//! The choice of words, and the lines and places that have them.

use std::io;

use super::*;
use crate::lines::{Limits, LineReader, Observer, Position, RecordFormat};

struct Nobody;

impl Observer for Nobody {
    fn empty(&self) {}

    fn bad(&self, position: &Position, reason: &str) {
        panic!("{position}: {reason}");
    }
}

const ASKING: Asking = Asking {
    ignore_case: false,
    max_key_bytes: 20,
    batch_keys: 1000,
};

fn words_of(text: &str, asking: Asking) -> Words {
    let limits = Limits {
        whole_batches: false,
        max_line_bytes: 1000,
        max_line_argument: "--max-line-bytes",
        with_empty_lines: true,
        only_utf8: true,
        format: RecordFormat::Lines,
        batch_lines: 1000,
        batch_bytes: BATCH_BYTES,
    };
    let mut reader = LineReader::new("f", io::Cursor::new(text), limits);
    Words::of(reader.next_batch(&Nobody).unwrap().unwrap(), asking)
}

fn questions(words: &Words) -> Vec<&str> {
    let keys = words.questions.iter().flat_map(KeyBatch::iter);
    keys.map(|key| str::from_utf8(key).unwrap()).collect()
}

/// Returns the lines and the words that match if the words of `list` are in the filter.
fn found(text: &str, asking: Asking, list: &[&str]) -> (Vec<bool>, String) {
    let words = words_of(text, asking);
    let answers: Vec<bool> = questions(&words)
        .iter()
        .map(|word| list.contains(word))
        .collect();
    let lines = words.found_lines(&answers).to_vec();
    (words.matches(&answers), String::from_utf8(lines).unwrap())
}

#[test]
fn words_are_those_of_unicode() {
    for (text, expected) in [
        (
            "can't 3.14 foo_bar example.com",
            &["can't", "3.14", "foo_bar", "example.com"][..],
        ),
        ("credit card, x-ray!", &["credit", "card", "x", "ray"]),
        ("(Straße) -- «naïve» ...", &["Straße", "naïve"]),
        (
            "敏感词 ひら カタカナ กา",
            &["敏", "感", "词", "ひ", "ら", "カタカナ", "ก", "า"],
        ),
        (
            "https://example.org/a?q=1",
            &["https", "example.org", "a", "q", "1"],
        ),
        (" \t😀 & —", &[]),
    ] {
        assert_eq!(questions(&words_of(text, ASKING)), expected, "{text}");
    }
}

#[test]
fn each_word_is_asked_about_once_and_found_wherever_it_is() {
    let text = "a b a\n\nb c\r\nd\nc, a\n";
    assert_eq!(questions(&words_of(text, ASKING)), ["a", "b", "c", "d"]);
    let (lines, places) = found(text, ASKING, &["a", "c"]);
    assert_eq!(lines, [true, false, true, false, true]);
    assert_eq!(places, "a\na\nc\nc\na\n");
    let (lines, places) = found(text, ASKING, &[]);
    assert_eq!((lines, places.as_str()), (vec![false; 5], ""));
}

#[test]
fn a_byte_order_mark_hides_no_word_and_moves_none() {
    let text = "\u{feff}spam b\n\u{feff}c spam\n";
    assert_eq!(questions(&words_of(text, ASKING)), ["spam", "b", "c"]);
    assert_eq!(found(text, ASKING, &["spam"]).1, "spam\nspam\n");
}

#[test]
fn case_counts_unless_it_is_ignored() {
    let text = "Spam SPAM spam ÄRGER\n";
    assert_eq!(found(text, ASKING, &["spam", "ärger"]).1, "spam\n");
    let asking = Asking {
        ignore_case: true,
        ..ASKING
    };
    assert_eq!(questions(&words_of(text, asking)), ["spam", "ärger"]);
    assert_eq!(
        found(text, asking, &["spam", "ärger"]).1,
        "Spam\nSPAM\nspam\nÄRGER\n"
    );
}

#[test]
fn words_that_are_too_long_are_counted_and_not_asked_about() {
    let long = "x".repeat(21);
    let text = format!("{long} a {long}\n{}\n", &long[1..]);
    let words = words_of(&text, ASKING);
    assert_eq!(questions(&words), ["a", &long[1..]]);
    assert_eq!(words.long_words, 2);
    assert_eq!(found(&text, ASKING, &[&long, "a"]).0, [true, false]);
}

#[test]
fn no_call_asks_about_more_words_than_it_may() {
    let text = "a b c d e f a g\n";
    let asking = Asking {
        batch_keys: 3,
        ..ASKING
    };
    let words = words_of(text, asking);
    let sizes: Vec<_> = words.questions.iter().map(KeyBatch::len).collect();
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(found(text, asking, &["g", "a"]).1, "a\na\ng\n");
}
