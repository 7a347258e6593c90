//! The bytes of a file as they are, with look-ahead.

use std::io::{self, BufRead, ErrorKind, Read};

use crate::lines::READ_BYTES;

/// Reads in blocks if the reader takes small pieces, and directly if the pieces are large.
pub(super) struct Raw<R> {
    input: R,
    buffer: Box<[u8]>,
    /// The range of `buffer` that is not yet taken.
    start: usize,
    end: usize,
    /// The last block was not full, so the next read may have to wait.
    drained: bool,
    failed: bool,
}

impl<R> Raw<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            drained: false,
            failed: false,
        }
    }

    /// Returns whether the next byte may have to be waited for.
    pub(super) fn may_wait(&self) -> bool {
        self.start == self.end && self.drained
    }

    /// Returns whether an error came from the file itself.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    #[expect(clippy::indexing_slicing, reason = "both lie in the buffer")]
    fn ahead(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl<R: Read> Raw<R> {
    /// Returns the next bytes without taking them: at least `wanted` bytes, unless the file ends
    /// before. It waits for no more bytes than that.
    pub(super) fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        while self.end - self.start < wanted.min(self.buffer.len()) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.fill()? == 0 {
                break;
            }
        }
        Ok(self.ahead())
    }

    /// Reads more bytes after those in the buffer.
    #[expect(clippy::indexing_slicing, reason = "`end` lies in the buffer")]
    fn fill(&mut self) -> io::Result<usize> {
        let room = &mut self.buffer[self.end..];
        let result = loop {
            match self.input.read(room) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.failed = result.is_err();
        let read = result?;
        self.drained = read < room.len();
        self.end += read;
        Ok(read)
    }
}

impl<R: Read> BufRead for Raw<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.fill()?;
        }
        Ok(self.ahead())
    }

    fn consume(&mut self, taken: usize) {
        self.start = self.end.min(self.start + taken);
    }
}

impl<R: Read> Read for Raw<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.start == self.end {
            return self.input.read(buffer);
        }
        let read = self.ahead().read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}
