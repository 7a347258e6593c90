//! A batch of lines, and its place in the run.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::format::RecordFormat;
use seenset_client::KeyBatch;

/// A line of a file. The first line is number 1; line 0 means "before the first".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) file: Arc<str>,
    pub(crate) line: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Consecutive lines of one file, and their keys.
#[derive(Debug)]
pub(crate) struct LineBatch {
    /// The bytes of the file, unchanged. They can contain data between the lines that is no key.
    pub(crate) bytes: Bytes,
    /// The range of each key's line in `bytes`, with its ending.
    pub(crate) lines: Vec<Range<usize>>,
    /// The keys, one for each of `lines`.
    pub(crate) keys: KeyBatch,
    /// The format of the lines.
    pub(crate) format: RecordFormat,
    /// The last line of the file that this batch covers.
    pub(crate) end: Position,
    /// The progress through all files, up to and including this batch.
    pub(crate) progress: RunProgress,
}

/// The progress of a run through its files, after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunProgress {
    /// The index of the file, from 0.
    pub(crate) file: usize,
    /// The last line that was read in it.
    pub(crate) line: u64,
    /// The number of batches so far.
    pub(crate) batches: u64,
    /// The hash of all keys so far.
    pub(crate) keys_hash: u64,
}

impl LineBatch {
    /// Drops the lines that are not to be kept, but not their keys.
    pub(crate) fn keep(&mut self, kept: &[bool]) {
        let mut kept = kept.iter();
        self.lines.retain(|_| kept.next() == Some(&true));
    }
}
