//! The lower bound for the cost of any filter: hashing, and one cache line for each key.

use std::{
    fs,
    hint::black_box,
    ops::Range,
    slice,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use seenset_server::filter::hash::{HashFunction, KeyHash, KeyHasher, Secret};

use crate::{Keys, batches};

/// The number of keys that the limit prefetches.
const AHEAD: usize = 16;

/// The least work of a filter: hash a key, and read and write one cache line.
pub struct Limit {
    lines: &'static [[AtomicU64; 8]],
}

impl Limit {
    /// Returns the limit over the memory of a filter of `bytes` bytes. The memory must have been
    /// mapped after `mapped_before` was read.
    pub fn new(mapped_before: &[Range<usize>], bytes: usize) -> Self {
        let new = |range: Range<usize>| {
            let overlaps = mapped_before
                .iter()
                .filter(|old| old.start < range.end && range.start < old.end);
            // The kernel joins a new mapping with a neighbouring one.
            overlaps.fold(range.clone(), |range, old| {
                if old.start <= range.start {
                    old.end..range.end
                } else {
                    range.start..old.start
                }
            })
        };
        let large = mapped().into_iter().map(new);
        let large = large.filter(|range| range.len() >= bytes);
        #[allow(unsafe_code, reason = "the engine gives its memory to nobody")]
        // SAFETY: the memory is mapped for as long as `Ours`. The code reads it and writes the same
        // values back while nobody else changes it. Nothing depends on the values.
        let mut large = large.map(|range| unsafe {
            slice::from_raw_parts(range.start as *const [AtomicU64; 8], bytes / 64)
        });
        let is_filled = |line: &[AtomicU64; 8]| line.iter().any(|word| word.load(Relaxed) != 0);
        let lines = large
            .find(|lines| lines.iter().all(is_filled))
            .expect("the memory of the filter");
        Self { lines }
    }

    pub fn touch(&self, function: HashFunction, keys: Keys) -> usize {
        // The secret differs from that of every other contender. Otherwise the limit would touch
        // lines that are still in the cache from the turn before.
        let hasher = KeyHasher::new(function, &Secret::new([8; 16]));
        batches(keys, |batch| {
            let hashes = batch.iter().map(|key| hasher.hash(key.as_bytes()));
            self.touch_lines(&hashes.collect::<Vec<_>>())
        })
    }

    /// Touches the lines of keys that are hashed several at once.
    pub fn touch_at_once(&self, keys: Keys) -> usize {
        let hasher = KeyHasher::new(HashFunction::default(), &Secret::new([9; 16]));
        batches(keys, |batch| {
            let mut hashes = vec![KeyHash::default(); batch.len()];
            let keys = batch.iter().map(|key| key.as_bytes());
            hasher.hash_each(keys, |place, hash| hashes[place] = hash);
            self.touch_lines(&hashes)
        })
    }

    fn touch_lines(&self, hashes: &[KeyHash]) -> Vec<bool> {
        let count = self.lines.len() as u128;
        let line = |hash: &KeyHash| ((u128::from(hash.high) * count) >> 64) as usize;
        let touched = hashes.iter().enumerate().map(|(index, hash)| {
            if let Some(next) = hashes.get(index + AHEAD) {
                prefetch(&self.lines[line(next)]);
            }
            let word = &self.lines[line(hash)][0];
            let value = word.load(Relaxed);
            word.store(black_box(value), Relaxed);
            value & hash.low == hash.low
        });
        touched.collect()
    }
}

/// Returns the writable memory of the process.
pub fn mapped() -> Vec<Range<usize>> {
    let address = |digits| usize::from_str_radix(digits, 16).unwrap();
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|line| line.contains(" rw"))
        .map(|line| {
            let (start, rest) = line.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            address(start)..address(end)
        })
        .collect()
}

pub fn limit_hash(keys: Keys) -> usize {
    let hasher = KeyHasher::new(HashFunction::default(), &Secret::new([7; 16]));
    keys.iter()
        .filter(|key| black_box(hasher.hash(key.as_bytes())).low == 0)
        .count()
}

#[allow(unsafe_code, reason = "prefetching dereferences nothing")]
fn prefetch(line: &[AtomicU64; 8]) {
    // SAFETY: a prefetch is only a hint and faults at no address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
