//! Pieces: whole pages of a segment that are to be written to the disk.

use bytemuck::{Pod, Zeroable};

use super::{
    batch::BatchHeader,
    record::{self, Record},
};

/// The page size of writes that bypass the page cache. They consist of whole pages, from memory
/// with the same alignment.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Consecutive batches, with the bytes before them in the page that they begin in.
///
/// That page is written again with each piece that begins in it. The bytes before the batches do
/// not change. So a power cut leaves them whole, like the old bytes of a file that is appended to.
#[derive(Debug, Default)]
pub struct Piece {
    pages: Vec<Page>,
    /// The offset of the first page in the segment.
    at: u64,
    /// The offsets in the pages at which the batches begin and end.
    begin: usize,
    end: usize,
}

impl Piece {
    /// Returns the bytes of a segment that `bytes` bytes take: whole pages.
    pub const fn padded(bytes: u64) -> u64 {
        bytes.next_multiple_of(PAGE_BYTES as u64)
    }

    /// Restarts at the beginning of a segment, after its header.
    pub fn restart(&mut self, header: &[u8]) {
        (self.at, self.begin, self.end) = (0, 0, 0);
        self.push(header);
        self.begin = self.end;
    }

    /// Restarts at the end of another piece.
    pub fn restart_behind(&mut self, other: &Self) {
        let begun = other.end % PAGE_BYTES;
        let page = other.end - begun;
        self.at = other.at + page as u64;
        (self.begin, self.end) = (0, 0);
        self.push(
            other
                .bytes()
                .get(page..other.end)
                .expect("the last page begins before the end"),
        );
        self.begin = self.end;
    }

    /// Adds a batch.
    pub fn push(&mut self, batch: &[u8]) {
        let end = self.end + batch.len();
        if end.div_ceil(PAGE_BYTES) > self.pages.len() {
            self.pages.resize(end.div_ceil(PAGE_BYTES), Page::zeroed());
        }
        let begin = std::mem::replace(&mut self.end, end);
        let bytes = bytemuck::cast_slice_mut(&mut self.pages);
        if let Some(place) = bytes.get_mut(begin..end) {
            place.copy_from_slice(batch);
        }
    }

    /// Fills the last page with zeros, which mark the end of the log.
    pub fn close(&mut self) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.pages);
        if let Some(rest) = bytes.get_mut(self.end..self.end.next_multiple_of(PAGE_BYTES)) {
            rest.fill(0);
        }
    }

    /// Returns the offset of the pages in the segment.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns the pages.
    pub fn pages(&self) -> &[u8] {
        let end = self.end.next_multiple_of(PAGE_BYTES);
        self.bytes()
            .get(..end)
            .expect("the memory ends with a whole page")
    }

    /// Returns the first page, and the other pages.
    pub fn split_first_page(&self) -> (&[u8], &[u8]) {
        let pages = self.pages();
        pages.split_at(pages.len().min(PAGE_BYTES))
    }

    /// Returns the length of the batches.
    pub fn batch_bytes(&self) -> u64 {
        (self.end - self.begin) as u64
    }

    /// Returns the records of each batch.
    pub fn batches(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self
            .bytes()
            .get(self.begin..self.end)
            .expect("the batches lie in the piece");
        std::iter::from_fn(move || {
            let header = BatchHeader::read(left.first_chunk()?)?;
            let (batch, rest) = left.split_at_checked(BatchHeader::BYTES + header.body_bytes)?;
            left = rest;
            batch.get(BatchHeader::BYTES..)
        })
    }

    /// Returns the records of all batches.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.batches()
            .flat_map(|mut records| std::iter::from_fn(move || record::decode(&mut records)))
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages)
    }
}
