//! The files of a filter's snapshots, and the shards that the next snapshot is to hold.

use super::{SnapshotReader, Written};

/// The greatest number of files of one filter. To read one more file at a start costs little, but
/// the number of small changes has no limit.
const MAX_FILES: usize = 128;

/// The greatest length of all files of a filter together, as a multiple of the filter's own length.
const MAX_ROOM: u64 = 3;

/// The least and the most shards that a snapshot copies from old files, as parts of all shards.
/// With the least number, an old file has gone before there are [`MAX_FILES`].
const LEAST_COPIED: usize = 100;
const MOST_COPIED: usize = 10;

/// The files of one filter, from the oldest to the newest.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFiles {
    files: Vec<File>,
}

#[derive(Debug, Clone)]
struct File {
    number: u64,
    bytes: u64,
    /// The shards that no newer file holds, in their order.
    shards: Vec<usize>,
}

impl SnapshotFiles {
    /// Returns the numbers of the files, from the oldest to the newest.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(|file| file.number)
    }

    /// Returns the shards that the next snapshot is to hold, in order: the changed shards, and some
    /// shards of the oldest files, so that these files come to an end. It copies as many old shards
    /// as have changed, but at least one in 100 and at most one in 10 of all `shards` that hold
    /// keys. `shard_bytes` is the length of each shard, and `bytes` the length of all shards that
    /// hold keys.
    ///
    /// This spreads a full rewrite over time. If the snapshots are alike, none is much longer than
    /// the others, and all files together take at most three times the room of the filter. After
    /// other snapshots, the next one may copy whole files in addition to keep this limit.
    pub fn next(
        &self,
        changed: Vec<usize>,
        shards: usize,
        bytes: u64,
        shard_bytes: impl Fn(usize) -> u64,
    ) -> Vec<usize> {
        let copied = changed
            .len()
            .min(shards / MOST_COPIED)
            .max(shards.div_ceil(LEAST_COPIED));
        let is_kept = |next: &[usize], shard: &usize| next.binary_search(shard).is_err();
        let old = self.files.iter().flat_map(|file| &file.shards).copied();
        let old = old.filter(|shard| is_kept(&changed, shard)).take(copied);
        let mut next: Vec<usize> = changed.iter().copied().chain(old).collect();
        next.sort_unstable();
        let needs = |file: &&File| file.shards.iter().any(|shard| is_kept(&next, shard));
        let kept: Vec<&File> = self.files.iter().filter(needs).collect();
        let mut kept = &*kept;
        while let [oldest, newer @ ..] = kept {
            let old_bytes: u64 = kept.iter().map(|file| file.bytes).sum();
            let next_bytes: u64 = next.iter().map(|&shard| shard_bytes(shard)).sum();
            if kept.len() < MAX_FILES && old_bytes + next_bytes <= MAX_ROOM * bytes {
                break;
            }
            next.extend(&oldest.shards);
            next.sort_unstable();
            next.dedup();
            kept = newer;
        }
        next
    }

    /// Returns the files with a new one, without the files that are not needed any more.
    #[must_use]
    pub fn with(&self, written: &Written) -> Self {
        let mut files = self.files.clone();
        for file in &mut files {
            file.shards
                .retain(|shard| written.shards.binary_search(shard).is_err());
        }
        files.retain(|file| !file.shards.is_empty());
        files.push(File {
            number: written.number,
            bytes: written.bytes,
            shards: written.shards.clone(),
        });
        Self { files }
    }

    /// Returns the files that have been opened, from the oldest to the newest.
    pub(super) fn opened(readers: &[SnapshotReader]) -> Self {
        let files = readers.iter();
        files.fold(Self::default(), |files, reader| {
            files.with(&Written {
                number: reader.header().number,
                bytes: reader.bytes(),
                shards: reader.shards().collect(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SHARD_BYTES: u64 = 1000;

    fn store(
        files: &SnapshotFiles,
        number: u64,
        shards: usize,
        changed: &[usize],
    ) -> (SnapshotFiles, usize) {
        let bytes = shards as u64 * SHARD_BYTES;
        let shards = files.next(changed.to_vec(), shards, bytes, |_| SHARD_BYTES);
        let count = shards.len();
        let written = Written {
            number,
            bytes: count as u64 * SHARD_BYTES,
            shards,
        };
        (files.with(&written), count)
    }

    /// Stores `changed(number)` of `shards` shards again and again. Returns the number of shards
    /// that each store after the first has written.
    fn stores(shards: usize, changed: impl Fn(usize) -> BTreeSet<usize>) -> Vec<usize> {
        let all: Vec<usize> = (0..shards).collect();
        let (mut files, count) = store(&SnapshotFiles::default(), 0, shards, &all);
        assert_eq!(count, shards);
        let mut counts = Vec::new();
        for number in 1..=500 {
            let changed: Vec<usize> = changed(number).into_iter().collect();
            let (next, count) = store(&files, number as u64, shards, &changed);
            counts.push(count);
            files = next;
            assert!(files.files.len() <= MAX_FILES);
            let bytes: u64 = files.files.iter().map(|file| file.bytes).sum();
            assert!(bytes <= 3 * shards as u64 * SHARD_BYTES, "{bytes}");
            let held = files.files.iter().flat_map(|file| file.shards.clone());
            let mut held: Vec<usize> = held.collect();
            held.sort_unstable();
            assert_eq!(held, all);
        }
        counts
    }

    /// Returns patterns of changed shards, `count` of `shards` each time: always the same, one
    /// after the other, or here and there.
    fn changes(shards: usize, count: usize) -> [Box<dyn Fn(usize) -> BTreeSet<usize>>; 3] {
        [
            Box::new(move |_| (0..count).collect()),
            Box::new(move |number| (0..count).map(|i| (number * count + i) % shards).collect()),
            Box::new(move |number| {
                let place = |i| (number * 7919 + i * 104_729) * 31_337 / 64 % shards;
                (0..count).map(place).collect()
            }),
        ]
    }

    #[test]
    fn a_small_change_is_a_small_file_each_time() {
        for shards in [100, 101, 129, 200, 256, 2048] {
            let count = shards / 100;
            for changed in changes(shards, count) {
                let counts = stores(shards, changed);
                let most = counts.into_iter().max().unwrap();
                assert!(most * 100 <= 3 * shards, "{most} of {shards}");
            }
        }
    }

    #[test]
    fn files_stay_few_and_small_and_hold_every_shard() {
        for (shards, count) in [(1, 1), (7, 1), (100, 3), (100, 20), (100, 50), (100, 100)] {
            for changed in changes(shards, count) {
                let counts = stores(shards, changed);
                let mean = counts.iter().sum::<usize>() / counts.len();
                let most = count + count.min(shards / 8).max(1);
                assert!(mean <= most, "{count} of {shards}: {mean}");
            }
        }
        // The changes before do not matter.
        let size = |number: usize| [1, 1, 1, 30, 2, 90, 1, 5][number / 7 % 8];
        stores(100, |number| {
            (0..size(number)).map(|i| i * 7 % 100).collect()
        });
    }
}
