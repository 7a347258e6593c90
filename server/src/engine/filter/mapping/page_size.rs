//! The size of the pages that the memory of a filter or of a layer lies on.
//!
//! A key lies anywhere in the memory, so each access to a large filter needs an entry of the TLB of
//! its own. Huge pages make that cheap for a filter that holds many keys. But the first access to
//! a huge page fills 2 MiB with zeros: 512 keys would cost 1 GiB of memory and the time to clear
//! it. So memory starts on small pages. Once keys have touched one in [`DENSE_PART`] of them, a
//! background thread moves all to huge pages (`MADV_COLLAPSE`), and calls go on meanwhile.
//!
//! A kernel that cannot do so (Linux before 6.1) gives huge pages from the first key on.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::collapse;
use crate::filter::shape::Shape;

const SMALL_PAGE: usize = 4 << 10;
const HUGE_PAGE: usize = 2 << 20;

/// Memory is dense when keys have touched one in so many of its small pages.
///
/// A small page that a key touches before the huge page is there costs a page fault and a copy, so
/// a larger part makes the first keys slow (`docs/lab/small-pages.md`).
const DENSE_PART: usize = 32;

/// The memory of one call to the kernel: it prepares all cores for each call.
const STEP: usize = 32 * HUGE_PAGE;

/// The number of attempts. `MADV_COLLAPSE` fails with `EAGAIN` for a huge page while a core's LRU
/// batch holds one of its small pages, as after a first access; so failed parts are tried again.
const ROUNDS: u32 = 15;

/// The pause after the first attempt. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(1);

/// Moves memory to huge pages when it is dense.
#[derive(Debug)]
pub struct PageSize {
    mapping: Arc<MmapRaw>,
    /// The number of keys that make the memory dense.
    dense_keys: u64,
    /// The number of bits that so many keys set.
    dense_bits: u64,
    /// Whether the memory lies on huge pages, or is on its way there.
    is_huge: AtomicBool,
}

impl PageSize {
    /// Has a new mapping begin on small pages. A key has `key_lines` cache lines.
    pub(in crate::engine) fn small(mapping: Arc<MmapRaw>, shape: &Shape, key_lines: usize) -> Self {
        let pages = mapping.len() / SMALL_PAGE;
        let dense_keys = (pages / DENSE_PART / key_lines) as u64;
        let page_size = Self {
            dense_keys,
            dense_bits: dense_keys * u64::from(shape.hash_count()),
            is_huge: AtomicBool::new(mapping.len() < HUGE_PAGE),
            mapping,
        };
        match can_collapse() {
            // The kernel may be set to give huge pages to whoever does not refuse them.
            true => page_size.advise(Advice::NoHugePage),
            false => page_size.be_huge(),
        }
        page_size
    }

    /// The number of keys that make the memory dense; `None` if it is on huge pages.
    pub fn dense_keys(&self) -> Option<u64> {
        (!self.is_huge.load(Ordering::Relaxed)).then_some(self.dense_keys)
    }

    /// Puts memory that holds nothing yet on huge pages if the bits that are about to be set make
    /// it dense.
    pub fn expect(&self, bits: u64) {
        if self.becomes_dense(bits) {
            self.be_huge();
        }
    }

    /// Moves the memory to huge pages in the background if it is dense with the bits that are set.
    pub fn look(&self, bits_set: u64) {
        if !self.becomes_dense(bits_set) {
            return;
        }
        // Memory that no key has touched yet comes on huge pages from now on.
        self.be_huge();
        let mapping = Arc::downgrade(&self.mapping);
        // At full priority: the sooner all is moved, the fewer small pages calls touch first.
        let thread = thread::Builder::new().name("huge-pages".to_owned());
        let moved = thread.spawn(move || move_in_rounds(&mapping));
        if let Err(error) = moved {
            tracing::debug!(%error, "a filter stays on small pages, and is slower for it");
        }
    }

    /// Whether the memory is dense with this number of bits set, and has not been before.
    fn becomes_dense(&self, bits_set: u64) -> bool {
        bits_set >= self.dense_bits
            && !self.is_huge.load(Ordering::Relaxed)
            && !self.is_huge.swap(true, Ordering::Relaxed)
    }

    fn be_huge(&self) {
        self.is_huge.store(true, Ordering::Relaxed);
        self.advise(Advice::HugePage);
    }

    /// Where the kernel has no huge pages, memory stays on small ones.
    fn advise(&self, advice: Advice) {
        #[cfg(target_os = "linux")]
        let _ = self.mapping.advise(advice);
    }
}

/// Moves a mapping to huge pages, and retries the parts for which the kernel failed.
fn move_in_rounds(mapping: &Weak<MmapRaw>) {
    let mut steps = None;
    for round in 0..ROUNDS {
        if round > 0 {
            thread::sleep(PAUSE * (1 << (round - 1)));
        }
        // A filter that is deleted between the rounds frees its memory at once.
        let Some(mapping) = mapping.upgrade() else {
            return;
        };
        let left = move_steps(&mapping, steps.unwrap_or_else(|| all_steps(&mapping)));
        if left.is_empty() {
            return;
        }
        steps = Some(left);
    }
}

/// The parts of a mapping that can lie on huge pages: offset and length in bytes.
fn all_steps(mapping: &MmapRaw) -> Vec<(usize, usize)> {
    let begin = mapping.as_mut_ptr().addr();
    let first = begin.next_multiple_of(HUGE_PAGE) - begin;
    let end = ((begin + mapping.len()) / HUGE_PAGE * HUGE_PAGE).saturating_sub(begin);
    let steps = (first..end).step_by(STEP);
    steps
        .map(|offset| (offset, STEP.min(end - offset)))
        .collect()
}

/// Moves parts of a mapping to huge pages, and returns the parts for which the kernel failed.
fn move_steps(mapping: &MmapRaw, mut steps: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    steps.retain(|&(offset, bytes)| {
        let moved = collapse(mapping, offset, bytes);
        thread::yield_now();
        // Also where no key has come to one of the pages: the next one brings a huge page.
        moved
            .inspect_err(|error| {
                tracing::trace!(%error, offset, "a part of a filter stays on small pages");
            })
            .is_err()
    });
    steps
}

/// Whether the kernel moves memory to huge pages when it is asked to.
fn can_collapse() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let mapping = MmapOptions::new().len(2 * HUGE_PAGE).map_anon();
        let Ok(mut mapping) = mapping else {
            return false;
        };
        let begin = mapping.as_ptr().addr();
        let offset = begin.next_multiple_of(HUGE_PAGE) - begin;
        if let Some(byte) = mapping.get_mut(offset) {
            *byte = 1;
        }
        collapse(&MmapRaw::from(mapping), offset, HUGE_PAGE).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Mapping, reserve};
    use super::*;
    use crate::filter::spec::SpecRequest;

    fn mapping(mib: u64) -> Mapping {
        let request = SpecRequest {
            bit_count: Some(mib << 23),
            false_positive_rate: None,
            ..SpecRequest::new(1000, 0.5)
        };
        reserve(&request.resolve().unwrap().body.shape(), 1).unwrap()
    }

    /// The resident memory of a mapping and what of it is on huge pages, in KiB.
    fn resident(mapping: &Mapping) -> (usize, usize) {
        let begin = mapping.page_size.mapping.as_mut_ptr().addr();
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| {
            let range = line.split(' ').next().unwrap();
            let Some((from, to)) = range.split_once('-') else {
                return true;
            };
            let parse = |text| usize::from_str_radix(text, 16);
            let (Ok(from), Ok(to)) = (parse(from), parse(to)) else {
                return true;
            };
            !(from..to).contains(&begin)
        });
        let mut field = |name: &str| -> usize {
            let line = lines.find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (field("Rss:"), field("AnonHugePages:"))
    }

    fn touch(mapping: &mut Mapping, keys: usize) {
        let shards = mapping.shards.len();
        for key in 0..keys {
            let shard = &mut mapping.shards[key % shards];
            let word = key * 7919 * 64 % shard.len();
            shard[word] |= 1;
        }
    }

    #[test]
    fn memory_is_small_until_it_is_dense_and_huge_from_then_on() {
        if !can_collapse() {
            // Nothing to decide: all memory is advised to be huge.
            assert_eq!(mapping(64).page_size.dense_keys(), None);
            return;
        }
        let mut mapping = mapping(64);
        assert_eq!(mapping.page_size.dense_keys(), Some(512));
        let dense_bits = mapping.page_size.dense_bits;
        touch(&mut mapping, 100);
        mapping.page_size.look(dense_bits - 1);
        let (resident_kib, huge_kib) = resident(&mapping);
        assert!(resident_kib <= 100 * 4, "{resident_kib}");
        assert_eq!(huge_kib, 0);

        touch(&mut mapping, 512);
        let held: Vec<Vec<u64>> = mapping.shards.iter().map(|shard| shard.to_vec()).collect();
        assert!(mapping.page_size.becomes_dense(dense_bits));
        mapping.page_size.be_huge();
        move_in_rounds(&Arc::downgrade(&mapping.page_size.mapping));
        let (_, huge_kib) = resident(&mapping);
        // The ends of the mapping may lie on parts of huge pages.
        assert!(huge_kib >= 60 << 10, "{huge_kib}");
        assert_eq!(mapping.page_size.dense_keys(), None);
        for (shard, held) in mapping.shards.iter().zip(held) {
            assert_eq!(**shard, *held);
        }
    }

    #[test]
    fn steps_are_all_huge_pages_that_lie_in_a_mapping_whole() {
        for mib in [1, 3, 5, 64, 200] {
            let mapping = MmapRaw::from(MmapOptions::new().len(mib << 20).map_anon().unwrap());
            let begin = mapping.as_mut_ptr().addr();
            let mut pages = Vec::new();
            for (offset, bytes) in all_steps(&mapping) {
                assert!(bytes <= STEP && bytes.is_multiple_of(HUGE_PAGE));
                pages.extend((begin + offset..begin + offset + bytes).step_by(HUGE_PAGE));
            }
            let all = (0..begin + mapping.len()).step_by(HUGE_PAGE);
            let whole = |page: &usize| *page >= begin && page + HUGE_PAGE <= begin + mapping.len();
            assert_eq!(
                pages,
                all.skip(begin / HUGE_PAGE)
                    .filter(whole)
                    .collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn memory_that_will_be_dense_begins_on_huge_pages() {
        let mut mapping = mapping(8);
        let dense_bits = mapping.page_size.dense_bits;
        mapping.page_size.expect(dense_bits - 1);
        assert_eq!(mapping.page_size.dense_keys().is_some(), can_collapse());
        mapping.page_size.expect(dense_bits);
        assert_eq!(mapping.page_size.dense_keys(), None);
        touch(&mut mapping, 1000);
        if can_collapse() {
            assert!(resident(&mapping).1 >= 4 << 10);
        }
    }
}
