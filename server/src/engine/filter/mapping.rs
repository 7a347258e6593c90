//! The memory of a filter: one anonymous mapping, divided into shards.
//!
//! The kernel allocates zeroed pages when they are first written, so a new filter of any size costs
//! neither time nor resident memory. One mapping holds all shards, so a filter of hundreds of GiB
//! takes only one entry in the kernel's table of mappings. [`PageSize`] decides whether its pages
//! are small or huge.
//!
//! This is the only file of the server with `unsafe` code. A comment at each use says why it is
//! sound. All of them rely on this: shards are disjoint, and each is handed out once.
#![allow(unsafe_code)]

mod page_size;

use std::{
    io,
    ops::{Deref, DerefMut},
    ptr, slice,
    sync::Arc,
};

use memmap2::{MmapOptions, MmapRaw};

pub use self::page_size::PageSize;
use crate::filter::shape::Shape;

/// The alignment of shards: a cache line. Shards can be small and many: in pages of their own they
/// would take up to a quarter more memory.
const LINE_BYTES: usize = 64;

/// Returns the address space that a filter of this shape takes, in bytes.
pub fn region_bytes(shape: &Shape) -> u64 {
    stride(shape) as u64 * shape.shard_count() as u64
}

fn stride(shape: &Shape) -> usize {
    (shape.shard_words() * size_of::<u64>()).next_multiple_of(LINE_BYTES)
}

/// The memory of a filter or of a layer.
#[derive(Debug)]
pub struct Mapping {
    /// The shards, all zeros. They lie one after the other. Shards of blocks or lines take no more
    /// memory than their bits.
    pub shards: Vec<ShardWords>,
    /// Prefetches their lines.
    pub prefetcher: Prefetcher,
    /// Moves them to huge pages.
    pub page_size: PageSize,
}

/// Reserves the memory of a filter or of a layer, in which a key has `key_lines` cache lines.
///
/// # Errors
///
/// The kernel's error if the process does not have enough address space left.
pub fn reserve(shape: &Shape, key_lines: usize) -> io::Result<Mapping> {
    let (stride, words) = (stride(shape), shape.shard_words());
    let length = (stride as u64).checked_mul(shape.shard_count() as u64);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or(io::ErrorKind::OutOfMemory)?;
    let mapping = MmapOptions::new()
        .len(length)
        .no_reserve_swap()
        .map_anon()?;
    let mapping = Arc::new(MmapRaw::from(mapping));
    let shards = (0..shape.shard_count())
        .map(|index| ShardWords {
            // SAFETY: `index * stride` is less than the length of the mapping, which was
            // made of `shard_count` strides.
            start: unsafe { mapping.as_mut_ptr().add(index * stride) }.cast(),
            words,
            _mapping: mapping.clone(),
        })
        .collect();
    let start = mapping.as_mut_ptr().addr();
    Ok(Mapping {
        shards,
        prefetcher: Prefetcher { start, stride },
        page_size: PageSize::small(mapping, shape, key_lines),
    })
}

/// The advice `MADV_COLLAPSE`, which `libc` does not name for every C library.
#[cfg(target_os = "linux")]
const MADV_COLLAPSE: libc::c_int = 25;

/// Moves a part of a mapping to huge pages, with its content, while other threads use it. Needs
/// Linux 6.1 or later. The part is one huge page, or several, at a multiple of their size.
///
/// # Errors
///
/// The kernel's error: `EINVAL` if it cannot, `EAGAIN` or `ENOMEM` if it has no huge page left.
#[cfg(target_os = "linux")]
fn collapse(mapping: &MmapRaw, offset: usize, bytes: usize) -> io::Result<()> {
    let end = offset.checked_add(bytes);
    if end.is_none_or(|end| end > mapping.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the part lies inside of the mapping, which lives until the call returns. The call
    // changes where the bytes lie in physical memory, and neither the bytes nor their addresses.
    let result = unsafe {
        let start = mapping.as_mut_ptr().add(offset);
        libc::madvise(start.cast(), bytes, MADV_COLLAPSE)
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The words of one shard: the only access to them.
#[derive(Debug)]
pub struct ShardWords {
    /// Stored here, and not looked up in the mapping: keys go to shards at random, so each key
    /// would wait for one more memory access.
    start: *mut u64,
    words: usize,
    _mapping: Arc<MmapRaw>,
}

// SAFETY: the memory belongs to no thread. It is accessed as the borrow of `self` allows: shared to
// read, exclusively to write.
unsafe impl Send for ShardWords {}
// SAFETY: as above.
unsafe impl Sync for ShardWords {}

impl Deref for ShardWords {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: `reserve` mapped `stride` bytes or more from `start` on, and the mapping lives as
        // long as `self`. The words are aligned to a cache line. They are initialised: the kernel
        // fills them with zeros. No other `ShardWords` covers any of them, because `reserve` makes
        // one for each stride and they cannot be cloned. Only `deref_mut` writes to them, and it
        // borrows `self` exclusively.
        unsafe { slice::from_raw_parts(self.start, self.words) }
    }
}

impl DerefMut for ShardWords {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start, self.words) }
    }
}

/// Prefetches lines of a filter into the cache. Takes no lock: it reads nothing.
#[derive(Debug)]
pub struct Prefetcher {
    /// An address that is never read or written through, so it can outlive the memory.
    start: usize,
    stride: usize,
}

/// The cache that a line is fetched to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// The first-level cache, which the core reads from. It can wait for few lines at once.
    First,
    /// The second-level cache, which can wait for more lines.
    Second,
}

impl Prefetcher {
    /// Hints that a word of a shard will be used soon. It is only a hint: any index is harmless.
    #[inline]
    pub fn fetch(&self, shard: usize, word: usize, to: Cache) {
        self.fetch_at(shard * self.stride + word * size_of::<u64>(), to);
    }

    /// [`Self::fetch`] for a line, by its index among all lines.
    #[inline]
    pub fn fetch_line(&self, line: usize, to: Cache) {
        self.fetch_at(line * LINE_BYTES, to);
    }

    #[inline(always)]
    fn fetch_at(&self, offset: usize, to: Cache) {
        let line = self.start.wrapping_add(offset);
        // SAFETY: prefetching dereferences nothing and faults at no address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
            let line = ptr::without_provenance(line);
            match to {
                Cache::First => _mm_prefetch::<_MM_HINT_T0>(line),
                Cache::Second => _mm_prefetch::<_MM_HINT_T1>(line),
            }
        }
        // SAFETY: as above; the instructions change no register and no flag.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            use std::arch::asm;
            match to {
                Cache::First => {
                    asm!("prfm pldl1keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
                }
                Cache::Second => {
                    asm!("prfm pldl2keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
                }
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = (line, to);
    }
}

/// Hints that this thread will soon write to a value that other threads write to too, so that its
/// cache lines move to this core meanwhile.
#[inline]
pub fn fetch_to_write<T>(value: &T) {
    let first = (&raw const *value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE_BYTES) {
        let line = first.wrapping_add(offset);
        // SAFETY: as in `Prefetcher::fetch`; processors without the instruction ignore it.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::spec::{Layout, SpecRequest};

    fn shape(layout: Layout, bit_count: u64) -> Shape {
        let request = SpecRequest {
            layout,
            bit_count: Some(bit_count),
            false_positive_rate: None,
            ..SpecRequest::new(1000, 0.5)
        };
        request.resolve().unwrap().body.shape()
    }

    #[test]
    fn shards_are_zero_aligned_and_apart() {
        for layout in Layout::OWN {
            let shape = shape(layout, 100_000_001);
            let Mapping {
                mut shards,
                prefetcher,
                page_size,
            } = reserve(&shape, 1).unwrap();
            assert_eq!(shards.len(), 256);
            for (index, shard) in shards.iter_mut().enumerate() {
                assert!(shard.iter().all(|&word| word == 0));
                assert_eq!(shard.as_ptr() as usize % LINE_BYTES, 0);
                shard.fill(index as u64 + 1);
                prefetcher.fetch(index, shard.len() - 1, Cache::Second);
            }
            for (index, shard) in shards.iter().enumerate() {
                assert!(shard.iter().all(|&word| word == index as u64 + 1));
            }
            // The memory outlives the mapping's other owners.
            let last = shards.pop().unwrap();
            drop((shards, prefetcher, page_size));
            assert_eq!(last[0], 256);
        }
    }

    #[test]
    fn shards_of_blocks_lie_one_behind_the_other() {
        let shape = shape(Layout::Blocked, 100_000_001);
        let Mapping { shards, .. } = reserve(&shape, 1).unwrap();
        let begin = |shard: &ShardWords| shard.as_ptr() as u64;
        assert_eq!(begin(&shards[1]) - begin(&shards[0]), shape.shard_bytes());
        assert_eq!(region_bytes(&shape), shape.bit_count() / 8);
    }

    #[test]
    fn terabytes_are_reserved_at_once() {
        let mapping = reserve(&shape(Layout::Blocked, 1 << 43), 1).unwrap();
        assert_eq!(mapping.shards.len(), 1 << 18);
    }
}
