//! The arguments of `match`.

use std::path::PathBuf;

use clap::value_parser;

use crate::{
    lines::{BATCH_BYTES, Limits, RecordFormat},
    words::Asking,
};

/// The rules for words and lines; part of the help.
pub(super) const WORDS_HELP: &str = concat!(
    "\
Words:
  Text is cut into words by the rules of Unicode (UAX #29). A word has a letter or a digit:
  \"can't\", \"3.14\", \"foo_bar\" and \"example.com\" are one word each, \"credit card\" and
  \"x-ray\" are two. Each Chinese character is a word of its own, and so is each sign of Hiragana
  and of Thai.
  An entry of the list that is not one word by these rules never matches. Phrases of several
  words never match either.
  Words are compared byte by byte. With --ignore-case, the words of the lines are compared in
  lower case. The list does not change: load a list that is in lower case.
  A word longer than --max-key-bytes matches nothing, and is counted.

False positives:
  A line without a word of the list can match: for each of its words, the probability of a
  match is the filter's false-positive rate, which `seenset filter get` shows. A line with a
  word of the list always matches.

Lines:
  A line ends with LF or CRLF. Lines longer than --max-line-bytes and lines that are not
  UTF-8 text are bad: the command skips and counts them, and prints the first 10 on standard
  error as FILE:LINE: reason. The run continues, and its exit code is 1. The exit code does not
  depend on whether any line matches.
",
    files_help!()
);

/// The arguments of `match`.
#[derive(Debug, clap::Args)]
pub(crate) struct Match {
    /// The files to read. `-`, or no file, is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Compare words in lower case. The list must be in lower case.
    #[arg(short, long)]
    ignore_case: bool,
    /// Write the lines that do not match, including empty lines.
    #[arg(short = 'v', long)]
    pub(crate) invert_match: bool,
    /// Write only the number of lines that would be written, for all files together.
    #[arg(short, long)]
    pub(crate) count: bool,
    /// Write only the words that match, unchanged, one on each line.
    #[arg(short, long, conflicts_with_all = ["invert_match", "count"])]
    pub(crate) only_matching: bool,
    /// The maximum length of a line, in bytes. Longer lines are skipped and reported.
    #[arg(long, value_name = "BYTES", default_value_t = 1024 * 1024,
          value_parser = value_parser!(u32).range(1..=8 * 1024 * 1024))]
    max_line_bytes: u32,
    /// The maximum length of a word, in bytes, at most the server's --max-key-bytes. Longer words
    /// match nothing.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536,
          value_parser = value_parser!(u32).range(1..=8 * 1024 * 1024))]
    max_key_bytes: u32,
    /// The maximum number of words in one call, at most the server's --max-batch-keys.
    #[arg(long, value_name = "KEYS", default_value_t = 10_000,
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    batch_keys: u32,
    /// The maximum number of batches of lines that are read and not yet answered.
    #[arg(long, value_name = "BATCHES", default_value_t = 16,
          value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) window: u32,
}

impl Match {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_line_bytes: self.max_line_bytes as usize,
            max_line_argument: "--max-line-bytes",
            with_empty_lines: true,
            only_utf8: true,
            format: RecordFormat::Lines,
            batch_lines: 1000,
            batch_bytes: BATCH_BYTES,
            whole_batches: false,
        }
    }

    pub(crate) fn asking(&self) -> Asking {
        Asking {
            ignore_case: self.ignore_case,
            max_key_bytes: self.max_key_bytes as usize,
            batch_keys: self.batch_keys as usize,
        }
    }
}
