//! The file of Guava's `BloomFilter.writeTo` and `readFrom`.
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 1 | strategy: 0 `MURMUR128_MITZ_32`, 1 `MURMUR128_MITZ_64` |
//! | 1 | 1 | hash count (k), without a sign |
//! | 2 | 4 | number of words, with a sign |
//! | 6 | | the words, 8 bytes each |
//!
//! All numbers are big-endian. The file has no magic, no length and no checksum. The only possible
//! check is that the file is exactly as long as its words require.

use std::io::{Read, Write};

use super::{Shape, Strategy};
use crate::exchange::{ExchangeError, error::require, piece};

const HEADER_BYTES: u64 = 6;
const WORD_BYTES: u64 = 8;

impl Shape {
    /// Returns the length of the file of such a filter, in bytes.
    pub fn file_bytes(&self) -> u64 {
        HEADER_BYTES + self.word_count() * WORD_BYTES
    }
}

/// A file that is being read. Its header has been checked against its length.
#[derive(Debug)]
pub struct FilterReader<R> {
    reader: R,
    shape: Shape,
}

impl<R: Read> FilterReader<R> {
    /// Reads and checks the header of a file that is `file_bytes` long. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Fails if the header is not one of Guava's, has values that are not supported here, or
    /// belongs to a file of another length.
    pub fn open(mut reader: R, file_bytes: u64) -> Result<Self, ExchangeError> {
        require(
            file_bytes >= HEADER_BYTES,
            "file length",
            format!("{file_bytes} bytes"),
            format!("at least {HEADER_BYTES} bytes, the length of a header"),
        )?;
        let mut header = [0; HEADER_BYTES as usize];
        reader
            .read_exact(&mut header)
            .map_err(ExchangeError::Read)?;
        let [strategy, hash_count, word_count @ ..] = header;
        // A signed byte in Java: negative strategies are unknown too.
        let strategy = Strategy::ALL
            .get(usize::from(strategy))
            .copied()
            .ok_or_else(|| {
                let limit = "0 (murmur128-mitz-32) or 1 (murmur128-mitz-64)";
                ExchangeError::field("strategy", strategy as i8, limit)
            })?;
        let word_count = i32::from_be_bytes(word_count);
        let word_count = u64::try_from(word_count).map_err(|_| {
            let limit = format!("1 to {}", i32::MAX);
            ExchangeError::field("word_count", word_count, limit)
        })?;
        let shape = Shape::new(strategy, hash_count.into(), word_count)?;
        let expected = shape.file_bytes();
        require(
            file_bytes == expected,
            "file length",
            format!("{file_bytes} bytes"),
            format!("{expected} bytes, since word_count is {word_count}"),
        )?;
        Ok(Self { reader, shape })
    }

    /// Returns the shape that the header describes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Reads all words, and passes each piece of them to `report`, with the index of its first word.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or with the error that `report` returns. The rest is then
    /// not read.
    pub fn read_words<E: From<ExchangeError>>(
        mut self,
        report: impl FnMut(u64, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let fill = |bytes: &mut [u8]| self.reader.read_exact(bytes).map_err(ExchangeError::Read);
        piece::read(self.shape.word_count(), u64::from_be_bytes, fill, report)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct FilterWriter<W> {
    writer: W,
    /// The number of words that have not been written yet.
    missing: u64,
}

impl<W: Write> FilterWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn create(mut writer: W, shape: &Shape) -> Result<Self, ExchangeError> {
        let strategy = match shape.strategy() {
            Strategy::Mitz32 => 0,
            Strategy::Mitz64 => 1,
        };
        let [a, b, c, d] = (shape.word_count() as u32).to_be_bytes();
        writer
            .write_all(&[strategy, shape.hash_count() as u8, a, b, c, d])
            .map_err(ExchangeError::Write)?;
        Ok(Self {
            writer,
            missing: shape.word_count(),
        })
    }

    /// Writes the next words of the filter.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be written, or are more than the filter has.
    pub fn write_words(&mut self, words: &[u64]) -> Result<(), ExchangeError> {
        require(
            words.len() as u64 <= self.missing,
            "number of words",
            words.len(),
            format!("at most {}, which are still missing", self.missing),
        )?;
        for piece in words.chunks(piece::MAX_PIECE_WORDS) {
            let bytes: Vec<[u8; 8]> = piece.iter().map(|word| word.to_be_bytes()).collect();
            self.writer
                .write_all(bytes.as_flattened())
                .map_err(ExchangeError::Write)?;
        }
        self.missing -= words.len() as u64;
        Ok(())
    }

    /// Returns the writer, at any point of the file. The caller must write the rest.
    pub fn into_inner(self) -> W {
        self.writer
    }

    /// Ends the file, and returns the writer, which is not flushed.
    ///
    /// # Errors
    ///
    /// Fails if words are missing.
    pub fn finish(self) -> Result<W, ExchangeError> {
        require(
            self.missing == 0,
            "number of words still missing",
            self.missing,
            "0 at the end of a file",
        )?;
        Ok(self.writer)
    }
}
