//! The words of a batch of lines. Each different word is queried once, and each line has its
//! answer.
//!
//! Words are words of Unicode (UAX #29): the text between two word boundaries, if it has a letter
//! or a digit.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use bytes::Bytes;
use unicode_segmentation::UnicodeSegmentation;

use super::lines::{BATCH_BYTES, LineBatch, mark_bytes};
use seenset_client::KeyBatch;

/// The options of the queries for words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asking {
    /// The command converts words to lower case before it queries them.
    pub(super) ignore_case: bool,
    /// The maximum length of a word. Longer words are not queried.
    pub(super) max_key_bytes: usize,
    /// The maximum number of words in one call.
    pub(super) batch_keys: usize,
}

/// A batch of lines, cut into words.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) batch: LineBatch,
    /// Each different word once, in the order of their first places.
    pub(super) questions: Vec<KeyBatch>,
    /// The places of the words in the lines.
    places: Vec<WordPlace>,
    /// The number of words that were too long.
    pub(super) long_words: u64,
}

/// A word in a line.
#[derive(Debug)]
struct WordPlace {
    /// The number of the line in the batch.
    line: u32,
    /// The number of the word among the different ones.
    word: u32,
    /// The place of the word in the bytes of the batch.
    start: u32,
    bytes: u32,
}

impl Words {
    pub(super) fn of(mut batch: LineBatch, asking: Asking) -> Self {
        let lines = std::mem::take(&mut batch.keys);
        let mut questions = Questions::default();
        let mut places = Vec::new();
        let mut long_words = 0;
        for (line, (text, range)) in lines.iter().zip(&batch.lines).enumerate() {
            let bytes = batch.bytes.get(range.clone()).unwrap_or_default();
            let text_start = range.start + mark_bytes(bytes);
            // Lines that are not UTF-8 have been left out.
            let text = str::from_utf8(text).unwrap_or_default();
            for (at, word) in text.unicode_word_indices() {
                let key = match asking.ignore_case {
                    true => in_lower_case(word),
                    false => Cow::Borrowed(word),
                };
                if key.len() > asking.max_key_bytes {
                    long_words += 1;
                    continue;
                }
                places.push(WordPlace {
                    line: line as u32,
                    word: questions.number_of(key, asking.batch_keys),
                    start: (text_start + at) as u32,
                    bytes: word.len() as u32,
                });
            }
        }
        let questions = questions.batches;
        Self {
            batch,
            questions,
            places,
            long_words,
        }
    }

    /// Returns for each line whether it has a word that is in the filter.
    pub(super) fn matches(&self, answers: &[bool]) -> Vec<bool> {
        let mut matches = vec![false; self.batch.lines.len()];
        for place in self.found(answers) {
            if let Some(line) = matches.get_mut(place.line as usize) {
                *line = true;
            }
        }
        matches
    }

    /// Returns the words that are in the filter, unchanged, one per line.
    pub(super) fn found_lines(&self, answers: &[bool]) -> Bytes {
        let mut lines = Vec::new();
        for place in self.found(answers) {
            let range: Range<usize> = place.start as usize..(place.start + place.bytes) as usize;
            lines.extend_from_slice(self.batch.bytes.get(range).unwrap_or_default());
            lines.push(b'\n');
        }
        lines.into()
    }

    fn found(&self, answers: &[bool]) -> impl Iterator<Item = &WordPlace> {
        let is_found = |place: &&WordPlace| answers.get(place.word as usize) == Some(&true);
        self.places.iter().filter(is_found)
    }
}

/// The different words of a batch.
#[derive(Default)]
struct Questions<'a> {
    numbers: HashMap<Cow<'a, str>, u32>,
    batches: Vec<KeyBatch>,
}

impl<'a> Questions<'a> {
    /// Returns the number of a word. A new word is added.
    fn number_of(&mut self, word: Cow<'a, str>, batch_keys: usize) -> u32 {
        if let Some(number) = self.numbers.get(&word) {
            return *number;
        }
        let has_room =
            |batch: &&mut KeyBatch| batch.len() < batch_keys && batch.encoded_bytes() < BATCH_BYTES;
        match self.batches.last_mut().filter(has_room) {
            Some(batch) => batch.push(word.as_bytes()),
            None => self.batches.push(KeyBatch::from([word.as_bytes()])),
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(word, number);
        number
    }
}

/// Returns the word in lower case. Copies it only if it is not in lower case.
fn in_lower_case(word: &str) -> Cow<'_, str> {
    let is_lower = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    if word.bytes().all(is_lower) {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.to_lowercase())
    }
}

#[cfg(test)]
mod tests;
