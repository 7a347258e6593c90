//! Cuts a file into batches of lines, in blocks and without a copy of each line.
//!
//! A block is read into one buffer. The lines in it are found by ranges, and a batch takes its part
//! of the buffer with it. Only the key of a line is copied, once, into the message that is sent.
//!
//! The limits bound the memory: of a line that is too long, the rest is skipped as it comes.

mod batch;
mod encoding;
mod format;

use std::{
    borrow::Cow,
    io::{self, ErrorKind, Read},
    ops::Range,
};

use bytes::{Buf, BytesMut};
use memchr::memchr;

use self::format::LENGTH_BYTES;
pub(super) use self::{
    batch::{LineBatch, Position, RunProgress},
    encoding::mark_bytes,
    format::{RecordFormat, from_hex, to_hex},
};
use seenset_client::KeyBatch;

/// The number of bytes that one read asks for: more than a pipe holds, so that one read empties it.
pub(super) const READ_BYTES: usize = 128 * 1024;

/// The size at which a batch is full, for any number of lines. It is far below the limit of a
/// message (16 MiB), even with one more line of the maximum length.
pub(super) const BATCH_BYTES: usize = 1024 * 1024;

/// The limits of a batch, and the choice of the lines that are in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) max_line_bytes: usize,
    /// The argument that sets it.
    pub(super) max_line_argument: &'static str,
    /// An empty line is a key; otherwise the reader skips it.
    pub(super) with_empty_lines: bool,
    /// The reader refuses lines that are not UTF-8.
    pub(super) only_utf8: bool,
    /// The format of the lines.
    pub(super) format: RecordFormat,
    pub(super) batch_lines: usize,
    pub(super) batch_bytes: usize,
    /// The reader waits for full batches, so that the lines of a batch do not depend on how the
    /// file is read.
    pub(super) whole_batches: bool,
}

/// Receives the lines that are not keys.
pub(super) trait Observer {
    /// A line without content.
    fn empty(&self);
    /// A line that can't be a key.
    fn bad(&self, position: &Position, reason: &str);
}

/// Reads batches from one file.
pub(super) struct LineReader<R> {
    input: R,
    limits: Limits,
    /// The last line that was taken, skipped or reported.
    position: Position,
    /// The bytes that were read and are not yet in a batch.
    buffer: BytesMut,
    /// The length of the start of `buffer` that was searched for line feeds: it has none after the
    /// lines taken.
    scanned: usize,
    /// True inside a line that is too long. The line is already reported.
    skipping: bool,
    /// The last read returned less than it asked for, so the next one may have to wait.
    drained: bool,
    ended: bool,
    /// True when the encoding of the file is known.
    begun: bool,
    /// The number of bytes still to come of a key that is too long and is already reported.
    left_out: usize,
    /// The offset of the start of the buffer in the file.
    offset: u64,
    /// A NUL was read. From then on each line is searched for NULs.
    has_nuls: bool,
    /// The error of the last read, kept until the lines before it are returned.
    failure: Option<io::Error>,
    /// The size of the last batch. The next one most likely has the same.
    last_size: BatchSize,
    /// The line at which a batch ends, full or not.
    cut_at: Option<u64>,
}

/// The size of a batch.
#[derive(Debug, Default)]
struct BatchSize {
    lines: usize,
    key_bytes: usize,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(file: &str, input: R, limits: Limits) -> Self {
        Self {
            input,
            limits,
            position: Position {
                file: file.into(),
                line: 0,
            },
            buffer: BytesMut::new(),
            scanned: 0,
            skipping: false,
            drained: false,
            ended: false,
            begun: false,
            left_out: 0,
            offset: 0,
            has_nuls: false,
            failure: None,
            last_size: BatchSize::default(),
            cut_at: None,
        }
    }

    /// Ends the batch with this line, full or not. Then the input ends: [`next_batch`] returns
    /// `None` until another line, or none, is set.
    ///
    /// [`next_batch`]: Self::next_batch
    pub(super) fn cut_at(&mut self, line: Option<u64>) {
        self.cut_at = line;
    }

    fn is_cut(&self) -> bool {
        self.cut_at.is_some_and(|line| self.position.line >= line)
    }

    /// Returns the last line that was returned or left out.
    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the next batch of at least one line; `None` at the end.
    ///
    /// While the file has data, the batches are full. When the file has no data at the moment, the
    /// lines so far are returned at once, so that the lines of a slow pipe are not held back.
    /// Before an error, the lines before it are returned.
    pub(super) fn next_batch(&mut self, observer: &impl Observer) -> io::Result<Option<LineBatch>> {
        if !self.begun && self.limits.format.is_text() {
            self.begin()?;
        }
        let mut draft = Draft::with_capacity(&self.last_size);
        loop {
            let full = self.take_lines(&mut draft, observer);
            if self.ended && !full {
                self.take_last_line(&mut draft, observer);
            }
            let drained = self.drained && !self.limits.whole_batches;
            let is_all = full || drained || self.ended || self.failure.is_some();
            if is_all && !draft.lines.is_empty() {
                return Ok(Some(self.cut(draft)));
            }
            if draft.lines.is_empty() {
                // All lines that were taken were left out.
                self.buffer.advance(draft.taken);
                self.offset += draft.taken as u64;
                self.scanned -= draft.taken;
                draft.taken = 0;
            }
            if self.is_cut() {
                return Ok(None);
            }
            if full {
                continue;
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.ended {
                return Ok(None);
            }
            self.skip_overlong(&draft, observer);
            self.fill();
        }
    }

    /// Reads enough bytes to know the encoding. Fails if the file has the mark of an encoding other
    /// than UTF-8.
    fn begin(&mut self) -> io::Result<()> {
        while encoding::needs_more(&self.buffer) && !self.ended && self.failure.is_none() {
            self.fill();
        }
        self.begun = true;
        match encoding::other_encoding(&self.buffer) {
            None => Ok(()),
            Some(name) => Err(io::Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the text is {name}, and lines must be UTF-8: convert it first, as with \
                     iconv -f {name} -t UTF-8"
                ),
            )),
        }
    }

    /// Takes the complete lines of the buffer into `draft`. Returns true if that is full.
    #[expect(
        clippy::indexing_slicing,
        reason = "`scanned` and lines end inside of the buffer"
    )]
    fn take_lines(&mut self, draft: &mut Draft, observer: &impl Observer) -> bool {
        loop {
            if self.limits.are_met(draft) || self.is_cut() {
                return true;
            }
            let end = match self.limits.format.end() {
                Some(end) => {
                    let found = memchr(end, &self.buffer[self.scanned..]);
                    found.map(|offset| self.scanned + offset + 1)
                }
                None => self.end_by_length(draft.taken),
            };
            let Some(end) = end else {
                self.scanned = self.buffer.len();
                return false;
            };
            self.take_line(draft, end, observer);
        }
    }

    /// Returns the length before the key at `start`, if all of the length has come.
    fn length_at(&self, start: usize) -> Option<usize> {
        let length = self.buffer.get(start..)?.first_chunk::<LENGTH_BYTES>()?;
        usize::try_from(u32::from_be_bytes(*length)).ok()
    }

    /// Returns the end of the key that begins at `start` with its length, if all of it has come.
    fn end_by_length(&self, start: usize) -> Option<usize> {
        let end = start + LENGTH_BYTES + self.length_at(start)?;
        (end <= self.buffer.len()).then_some(end)
    }

    /// Returns the error of a file that ends within a key with a length before it; `None` if it
    /// does not.
    fn cut_short(&self, draft: &Draft) -> Option<io::Error> {
        let left = self.buffer.len() - draft.taken;
        let start = self.offset + draft.taken as u64;
        let reason = match self.length_at(draft.taken) {
            _ if self.left_out > 0 => format!(
                "the file ends {} bytes before the end of its last key, which is too long",
                self.left_out
            ),
            None if left == 0 => return None,
            None => format!(
                "the length of the key at byte {start} has {LENGTH_BYTES} bytes, and the file ends \
                 after {left} of them"
            ),
            Some(length) => format!(
                "the key at byte {start} has {length} bytes after its length, and the file ends after \
                 {} of them",
                left - LENGTH_BYTES
            ),
        };
        Some(io::Error::new(ErrorKind::UnexpectedEof, reason))
    }

    /// Takes the rest at the end of the file, without padding: a line without its ending.
    #[expect(clippy::indexing_slicing, reason = "`taken` lies in the buffer")]
    fn take_last_line(&mut self, draft: &mut Draft, observer: &impl Observer) {
        if self.limits.format.end().is_none() {
            self.failure = self.cut_short(draft);
            return;
        }
        let line = match self.limits.format.is_text() {
            true => encoding::without_padding(&self.buffer[draft.taken..]),
            false => &self.buffer[draft.taken..],
        };
        if self.skipping || !line.is_empty() {
            self.take_line(draft, draft.taken + line.len(), observer);
        }
    }

    /// Takes the line that ends before `end`, or drops it.
    #[expect(
        clippy::indexing_slicing,
        reason = "`scanned` and lines end inside of the buffer"
    )]
    fn take_line(&mut self, draft: &mut Draft, end: usize, observer: &impl Observer) {
        let line = draft.taken..end;
        draft.taken = end;
        self.scanned = end;
        self.position.line += 1;
        if self.skipping {
            self.skipping = false;
            return;
        }
        let format = self.limits.format;
        let content = format.content(&self.buffer[line.clone()]);
        if content.is_empty() && !self.limits.with_empty_lines {
            observer.empty();
            return;
        }
        match self.key(content) {
            Ok(key) => {
                draft.keys.push(key);
                draft.lines.push(line);
            }
            Err(reason) => observer.bad(&self.position, &reason),
        }
    }

    /// Returns the key of a line, or the reason why it has none.
    fn key<'k>(&self, content: &'k [u8]) -> Result<Cow<'k, [u8]>, String> {
        let format = self.limits.format;
        if content.len() > format.max_record_bytes(self.limits.max_line_bytes) {
            return Err(self.limits.too_long());
        }
        if format.is_text()
            && let Some(at) = self.nul_in(content)
        {
            let at = at + 1;
            return Err(format!(
                "NUL at byte {at}: binary, or UTF-16 without a mark"
            ));
        }
        if self.limits.only_utf8
            && let Err(error) = simdutf8::compat::from_utf8(content)
        {
            let at = error.valid_up_to() + 1;
            return Err(format!("not UTF-8 from byte {at} on"));
        }
        format.key(content)
    }

    /// Returns the position of the first NUL in a line.
    fn nul_in(&self, line: &[u8]) -> Option<usize> {
        self.has_nuls.then(|| memchr(0, line)).flatten()
    }

    /// Drops the unfinished line at the end of the buffer if it is too long, even if the next byte
    /// were the LF of a CRLF.
    ///
    /// NULs at its end can be the padding of the file. One of them is kept, and it makes the line
    /// bad if the line continues.
    #[expect(clippy::indexing_slicing, reason = "`taken` lies in the buffer")]
    fn skip_overlong(&mut self, draft: &Draft, observer: &impl Observer) {
        let format = self.limits.format;
        if format.end().is_none() {
            self.leave_out_overlong(draft, observer);
            return;
        }
        let unfinished = &self.buffer[draft.taken..];
        let (line, mark) = match format.is_text() {
            true => (
                encoding::without_nuls(unfinished).len(),
                mark_bytes(unfinished),
            ),
            false => (unfinished.len(), 0),
        };
        let longest = format.max_record_bytes(self.limits.max_line_bytes);
        if !self.skipping && line - mark.min(line) > longest + 1 {
            self.skipping = true;
            let position = Position {
                line: self.position.line + 1,
                ..self.position.clone()
            };
            observer.bad(&position, &self.limits.too_long());
        }
        let kept = match self.skipping {
            true => 0,
            false => line + 1,
        };
        self.buffer.truncate(draft.taken + kept);
        self.scanned = self.buffer.len();
    }

    /// Drops the unfinished key at the end of the buffer if its length is too long. The rest of the
    /// key is dropped as it comes.
    fn leave_out_overlong(&mut self, draft: &Draft, observer: &impl Observer) {
        let Some(length) = self.length_at(draft.taken) else {
            return;
        };
        if length > self.limits.max_line_bytes {
            self.position.line += 1;
            observer.bad(&self.position, &self.limits.too_long());
            let come = self.buffer.len() - draft.taken;
            self.left_out = LENGTH_BYTES + length - come;
            self.offset += come as u64;
            self.buffer.truncate(draft.taken);
            self.scanned = draft.taken;
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the buffer was made longer just before"
    )]
    fn fill(&mut self) {
        let old = self.buffer.len();
        self.buffer.resize(old + READ_BYTES, 0);
        let result = loop {
            match self.input.read(&mut self.buffer[old..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        match result {
            Ok(read) => {
                self.buffer.truncate(old + read);
                let left_out = self.left_out.min(read);
                if left_out > 0 {
                    self.buffer.copy_within(old + left_out.., old);
                    self.buffer.truncate(old + read - left_out);
                    self.left_out -= left_out;
                    self.offset += left_out as u64;
                }
                self.has_nuls |= memchr(0, &self.buffer[old..]).is_some();
                self.drained = read < READ_BYTES;
                self.ended = read == 0;
            }
            Err(error) => {
                self.buffer.truncate(old);
                self.failure = Some(error);
            }
        }
    }

    fn cut(&mut self, draft: Draft) -> LineBatch {
        self.scanned -= draft.taken;
        self.offset += draft.taken as u64;
        self.last_size = BatchSize {
            lines: draft.lines.len(),
            key_bytes: draft.keys.encoded_bytes(),
        };
        LineBatch {
            bytes: self.buffer.split_to(draft.taken).freeze(),
            lines: draft.lines,
            keys: draft.keys,
            format: self.limits.format,
            end: self.position.clone(),
            progress: RunProgress::default(),
        }
    }
}

/// A batch in the making, from the first `taken` bytes of the buffer.
struct Draft {
    taken: usize,
    lines: Vec<Range<usize>>,
    keys: KeyBatch,
}

impl Draft {
    fn with_capacity(size: &BatchSize) -> Self {
        Self {
            taken: 0,
            lines: Vec::with_capacity(size.lines),
            keys: KeyBatch::with_room(size.key_bytes),
        }
    }
}

impl Limits {
    /// Returns whether a batch is full. Data that is left out between its lines counts only if it
    /// would take memory: how much of it there is depends on how the file is read.
    fn are_met(&self, draft: &Draft) -> bool {
        draft.lines.len() >= self.batch_lines
            || draft.keys.encoded_bytes() >= self.batch_bytes
            || draft.taken >= self.batch_bytes.saturating_mul(4)
    }

    fn too_long(&self) -> String {
        let Self {
            max_line_bytes,
            max_line_argument,
            ..
        } = self;
        format!("longer than {max_line_bytes} bytes ({max_line_argument})")
    }
}

#[cfg(test)]
mod tests;
