//! Pieces: whole pages of a segment, on their way to the disk.

use bytemuck::{Pod, Zeroable};

use super::{
    batch::BatchHeader,
    record::{self, Record},
};

/// What the system writes past its cache: whole pages, from memory that lies as they do.
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Batches one after the other, with what stands before them in the page that they begin in.
///
/// That page is written again with each piece that begins in it. The bytes before do not change,
/// so a power cut finds them whole, as it finds those of a file that gets longer.
#[derive(Debug, Default)]
pub struct Piece {
    pages: Vec<Page>,
    /// Where the first page is in the segment.
    at: u64,
    /// Where the batches begin in the pages, and where they end.
    begin: usize,
    end: usize,
}

impl Piece {
    /// So many bytes take as much of a segment.
    pub const fn padded(bytes: u64) -> u64 {
        bytes.next_multiple_of(PAGE_BYTES as u64)
    }

    /// Begins anew at the start of a segment, behind its header.
    pub fn restart(&mut self, header: &[u8]) {
        (self.at, self.begin, self.end) = (0, 0, 0);
        self.push(header);
        self.begin = self.end;
    }

    /// Begins anew where another ends.
    pub fn restart_behind(&mut self, other: &Self) {
        let begun = other.end % PAGE_BYTES;
        let page = other.end - begun;
        self.at = other.at + page as u64;
        (self.begin, self.end) = (0, 0);
        self.push(other.bytes().get(page..other.end).unwrap_or_default());
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

    /// Fills the last page with zeros: they say that the log ends here.
    pub fn close(&mut self) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.pages);
        if let Some(rest) = bytes.get_mut(self.end..self.end.next_multiple_of(PAGE_BYTES)) {
            rest.fill(0);
        }
    }

    /// Where its pages are in the segment.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Its pages.
    pub fn pages(&self) -> &[u8] {
        let end = self.end.next_multiple_of(PAGE_BYTES);
        self.bytes().get(..end).unwrap_or_default()
    }

    /// Its first page, and the others.
    pub fn split_first_page(&self) -> (&[u8], &[u8]) {
        let pages = self.pages();
        pages.split_at(pages.len().min(PAGE_BYTES))
    }

    /// The length of its batches.
    pub fn batch_bytes(&self) -> u64 {
        (self.end - self.begin) as u64
    }

    /// The records of each of its batches.
    pub fn batches(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.bytes().get(self.begin..self.end).unwrap_or_default();
        std::iter::from_fn(move || {
            let header = BatchHeader::read(left.first_chunk()?)?;
            let (batch, rest) = left.split_at_checked(BatchHeader::BYTES + header.body_bytes)?;
            left = rest;
            batch.get(BatchHeader::BYTES..)
        })
    }

    /// Its records.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.batches()
            .flat_map(|mut records| std::iter::from_fn(move || record::decode(&mut records)))
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages)
    }
}
