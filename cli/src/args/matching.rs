//! The arguments of `match`.

use std::path::PathBuf;

use clap::value_parser;

use crate::{
    lines::{BATCH_BYTES, Limits, RecordFormat},
    words::Asking,
};

/// What matches; part of the help.
pub(super) const WORDS_HELP: &str = concat!(
    "\
What a word is:
  What Unicode's rules say (UAX #29), if it has a letter or a digit: \"can't\", \"3.14\",
  \"foo_bar\" and \"example.com\" are one word each, \"credit card\" and \"x-ray\" are two. Each
  Chinese character is a word of its own, as is each sign of Hiragana and of Thai.
  An entry of the list that is not one word by these rules is never found: phrases of several
  words are not looked for.
  Words are compared byte by byte, with --ignore-case in lower case: load a list in lower
  case then, for it is not changed.
  A word longer than --max-key-bytes matches nothing, and is counted.

What may be wrong:
  A line without a word of the list may match: each word of it is taken for one of the list
  with the filter's false-positive rate, which `seenset filter get` shows. A line with one
  always matches.

Lines:
  A line ends with LF or CRLF. Lines longer than --max-line-bytes and lines that are not
  UTF-8 text are bad: they are left out, counted, and reported on standard error as FILE:LINE:
  reason (the first 10). The run goes on, and the exit code at its end is 1. Whether any
  line matches does not change the exit code.
",
    files_help!()
);

/// The arguments of `match`.
#[derive(Debug, clap::Args)]
pub(crate) struct Match {
    /// The files to read; `-`, or none, is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Ask about the words in lower case: the list must have been loaded so.
    #[arg(short, long)]
    ignore_case: bool,
    /// Write the lines that do not match, empty ones included.
    #[arg(short = 'v', long)]
    pub(crate) invert_match: bool,
    /// Write only how many lines would be written, of all files together.
    #[arg(short, long)]
    pub(crate) count: bool,
    /// Write only the words that match, as they came, one a line.
    #[arg(short, long, conflicts_with_all = ["invert_match", "count"])]
    pub(crate) only_matching: bool,
    /// The longest line; longer ones are left out and reported.
    #[arg(long, value_name = "BYTES", default_value_t = 1024 * 1024,
          value_parser = value_parser!(u32).range(1..=8 * 1024 * 1024))]
    max_line_bytes: u32,
    /// The longest word that is asked about, at most what the server allows.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536,
          value_parser = value_parser!(u32).range(1..=8 * 1024 * 1024))]
    max_key_bytes: u32,
    /// The most words in one call, at most what the server allows.
    #[arg(long, value_name = "KEYS", default_value_t = 10_000,
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    batch_keys: u32,
    /// The most batches of lines that are read and not yet answered.
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
