//! The files that a filter's snapshots are in, and what the next one is to hold.

use super::{SnapshotReader, Written};

/// The most files of one filter. Reading each costs a start little, but there is no end to
/// small changes.
const MAX_FILES: usize = 16;

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
    /// Their numbers, from the oldest to the newest.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(|file| file.number)
    }

    /// The shards that the next snapshot is to hold, in their order: those that have changed,
    /// and as many more as it takes to do without the oldest files. So all files together never
    /// take more than twice the room of the filter (`shards` that hold keys, of so many bytes),
    /// and there are never more than a few.
    pub fn next(&self, changed: Vec<usize>, shards: usize, shard_bytes: u64) -> Vec<usize> {
        let most_bytes = 2 * shards as u64 * shard_bytes;
        let mut next = changed;
        let mut kept = &*self.files;
        while let [oldest, newer @ ..] = kept {
            let bytes: u64 = kept.iter().map(|file| file.bytes).sum();
            if kept.len() < MAX_FILES && bytes + next.len() as u64 * shard_bytes <= most_bytes {
                break;
            }
            next.extend(&oldest.shards);
            next.sort_unstable();
            next.dedup();
            kept = newer;
        }
        next
    }

    /// The files with one more, but for those that it does without.
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

    /// The files that have been opened, from the oldest to the newest.
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
    use super::*;

    const SHARD_BYTES: u64 = 1000;

    fn store(files: &SnapshotFiles, number: u64, changed: &[usize]) -> (SnapshotFiles, usize) {
        let shards = files.next(changed.to_vec(), 100, SHARD_BYTES);
        let count = shards.len();
        let written = Written {
            number,
            bytes: count as u64 * SHARD_BYTES,
            shards,
        };
        (files.with(&written), count)
    }

    #[test]
    fn files_stay_few_and_small_and_hold_every_shard() {
        let all: Vec<usize> = (0..100).collect();
        for step in [1, 3, 50, 100] {
            let (mut files, count) = store(&SnapshotFiles::default(), 0, &all);
            assert_eq!(count, 100);
            let mut written = 0;
            for number in 1..=200 {
                let changed: Vec<usize> = (0..step).map(|i| (number * step + i) % 100).collect();
                let mut changed = changed;
                changed.sort_unstable();
                let (next, count) = store(&files, number as u64, &changed);
                assert!(count >= step);
                written += count;
                files = next;
                assert!(files.files.len() <= MAX_FILES);
                let bytes: u64 = files.files.iter().map(|file| file.bytes).sum();
                assert!(bytes <= 200 * SHARD_BYTES, "{bytes}");
                let mut held: Vec<usize> = files
                    .files
                    .iter()
                    .flat_map(|file| file.shards.clone())
                    .collect();
                held.sort_unstable();
                assert_eq!(held, all);
            }
            // Rolled over time, and not all at each store.
            assert!(written <= 200 * (step + 8), "{step}: {written}");
        }
    }

    #[test]
    fn a_small_change_is_a_small_file() {
        let all: Vec<usize> = (0..100).collect();
        let (files, _) = store(&SnapshotFiles::default(), 0, &all);
        let (files, count) = store(&files, 1, &[7]);
        assert_eq!(count, 1);
        assert_eq!(files.numbers().collect::<Vec<_>>(), [0, 1]);
    }
}
