//! A dump in a file: the results of all calls of `BF.SCANDUMP`, one after the other.
//!
//! RedisBloom has no file format for this: it returns pairs of an iterator and bytes. A dump is
//! these pairs, each as the iterator (8 bytes), the length of the bytes (8 bytes) and the bytes.
//! The numbers are little-endian. The last pair has the iterator 0 and ends the scan. It is left
//! out. So a few lines of Python write a dump, while no keys are added:
//!
//! ```python
//! import redis, struct
//! db, iterator = redis.Redis(), 0
//! with open("crawl.dump", "wb") as dump:
//!     while True:
//!         iterator, data = db.execute_command("BF.SCANDUMP", "crawl", iterator)
//!         if iterator == 0:
//!             break
//!         dump.write(struct.pack("<qq", iterator, len(data)) + data)
//! ```
//!
//! (On a connection without `decode_responses`.) The first pair has the iterator 1 and the
//! [header](super::header). The bytes of all others are the bits of all layers, one after the
//! other, in pieces of up to 16 MiB. Bit 0 is the lowest bit of the first byte. An iterator is the
//! number of these bytes up to the end of its pair, plus 1.

use std::io::Read;

use super::header::{Chain, MAX_HEADER_BYTES};
use crate::exchange::{ExchangeError, error::require, piece};

const PREFIX_BYTES: u64 = 16;
/// The iterator of the first pair.
const FIRST: i64 = 1;

/// A dump that is being read. Its header has been checked against its length.
#[derive(Debug)]
pub struct DumpReader<R> {
    chain: Chain,
    chunks: Chunks<R>,
}

impl<R: Read> DumpReader<R> {
    /// Reads and checks the header of a dump that is `file_bytes` long. Allocates only the layers
    /// of the header.
    ///
    /// # Errors
    ///
    /// Fails if the header is not one of RedisBloom's, has values that are not supported here, or
    /// belongs to a dump of another length.
    pub fn open(mut reader: R, file_bytes: u64) -> Result<Self, ExchangeError> {
        let mut left = file_bytes;
        let prefix = Prefix::read(&mut reader, &mut left)?;
        require(
            prefix.iterator == FIRST,
            "first iterator",
            prefix.iterator,
            FIRST.to_string(),
        )?;
        require(
            prefix.bytes <= MAX_HEADER_BYTES.min(left),
            "length of the header",
            prefix.bytes,
            format!("at most {}", MAX_HEADER_BYTES.min(left)),
        )?;
        let mut header = vec![0; prefix.bytes as usize];
        reader
            .read_exact(&mut header)
            .map_err(ExchangeError::Read)?;
        left -= prefix.bytes;
        let chain = Chain::decode(&header, left)?;
        let data_bytes = chain.data_bytes();
        let overhead = left - data_bytes;
        require(
            overhead > 0 && overhead.is_multiple_of(PREFIX_BYTES),
            "length of the chunks behind the header",
            left,
            format!("{data_bytes} bytes of bits, and {PREFIX_BYTES} for each chunk"),
        )?;
        let chunks = Chunks {
            reader,
            file_left: left,
            chunk_left: 0,
            data_read: 0,
            data_bytes,
        };
        Ok(Self { chain, chunks })
    }

    /// Returns the chain that the header describes.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Reads all words of all layers, and passes each piece of them to `report`, with the number of
    /// its layer and the index of its first word there.
    ///
    /// # Errors
    ///
    /// Fails if the dump cannot be read, if its chunks do not follow each other, or with the error
    /// that `report` returns. The rest is then not read.
    pub fn read_words<E: From<ExchangeError>>(
        self,
        mut report: impl FnMut(usize, u64, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { chain, mut chunks } = self;
        for (number, layer) in chain.layers().iter().enumerate() {
            piece::read(
                layer.word_count(),
                u64::from_le_bytes,
                |bytes| chunks.fill(bytes),
                |first, words| report(number, first, words),
            )?;
        }
        chunks.finish()?;
        Ok(())
    }
}

/// The numbers before the bytes of a chunk.
struct Prefix {
    iterator: i64,
    bytes: u64,
}

impl Prefix {
    /// Reads a prefix from a file that has `left` bytes left.
    fn read(reader: &mut impl Read, left: &mut u64) -> Result<Self, ExchangeError> {
        require(
            *left >= PREFIX_BYTES,
            "length of what is left of the dump",
            format!("{left} bytes"),
            format!("at least {PREFIX_BYTES} bytes, for an iterator and a length"),
        )?;
        let (mut iterator, mut bytes) = ([0; 8], [0; 8]);
        reader
            .read_exact(&mut iterator)
            .and_then(|()| reader.read_exact(&mut bytes))
            .map_err(ExchangeError::Read)?;
        *left -= PREFIX_BYTES;
        Ok(Self {
            iterator: i64::from_le_bytes(iterator),
            bytes: u64::from_le_bytes(bytes),
        })
    }
}

/// The bytes of all chunks after the header, as if they were one.
#[derive(Debug)]
struct Chunks<R> {
    reader: R,
    /// The number of bytes of the file that are left.
    file_left: u64,
    /// The number of bytes of the current chunk that are left.
    chunk_left: u64,
    /// The number of bytes of all chunks up to the end of the current one.
    data_read: u64,
    /// The number of bytes of all chunks.
    data_bytes: u64,
}

impl<R: Read> Chunks<R> {
    /// Fills `bytes` with the next bytes.
    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), ExchangeError> {
        while !bytes.is_empty() {
            if self.chunk_left == 0 {
                self.next()?;
            }
            let length = self.chunk_left.min(bytes.len() as u64);
            let (here, rest) = bytes.split_at_mut(length as usize);
            self.reader.read_exact(here).map_err(ExchangeError::Read)?;
            self.chunk_left -= length;
            self.file_left -= length;
            bytes = rest;
        }
        Ok(())
    }

    /// Goes to the next chunk, which has at least one byte.
    fn next(&mut self) -> Result<(), ExchangeError> {
        let Prefix { iterator, bytes } = Prefix::read(&mut self.reader, &mut self.file_left)?;
        let data_left = (self.data_bytes - self.data_read).min(self.file_left);
        require(
            (1..=data_left).contains(&bytes),
            "length of a chunk",
            bytes,
            format!("1 to the {data_left} bytes that are left"),
        )?;
        self.data_read += bytes;
        let expected = self.data_read + FIRST as u64;
        require(
            u64::try_from(iterator) == Ok(expected),
            "iterator",
            iterator,
            format!("{expected}, at the end of its chunk"),
        )?;
        self.chunk_left = bytes;
        Ok(())
    }

    /// Fails if bytes are left.
    fn finish(self) -> Result<(), ExchangeError> {
        require(
            self.file_left == 0,
            "length of what follows the last chunk",
            format!("{} bytes", self.file_left),
            "0 bytes",
        )
    }
}
