//! The keys that one request added first.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::filter::hash::KeyHash;

/// A set of hashes that only grows.
///
/// Consists of sorted runs, each more than twice as long as the next one. So it is cheap whether
/// the hashes come all at once, as nearly always, or one by one: a lookup searches few runs, and a
/// hash is moved few times. A clone copies only a pointer for each run.
#[derive(Debug, Clone, Default)]
pub struct FirstAdded {
    runs: SmallVec<[Arc<[KeyHash]>; 1]>,
}

impl FirstAdded {
    /// Returns the number of hashes.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn contains(&self, hash: KeyHash) -> bool {
        let is_in = |run: &Arc<[KeyHash]>| run.binary_search_by_key(&order(&hash), order).is_ok();
        self.runs.iter().any(is_in)
    }

    /// Adds hashes, and returns how many of them were not in the set.
    pub fn extend(&mut self, mut hashes: Vec<KeyHash>) -> usize {
        hashes.retain(|&hash| !self.contains(hash));
        hashes.sort_unstable_by_key(order);
        hashes.dedup();
        let added = hashes.len();
        if added == 0 {
            return 0;
        }
        while let Some(last) = self.runs.last()
            && last.len() <= 2 * hashes.len()
        {
            hashes.extend_from_slice(last);
            // The stable sort, because it makes use of sorted runs.
            hashes.sort_by_key(order);
            self.runs.pop();
        }
        self.runs.push(hashes.into());
        added
    }

    /// Returns all hashes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = KeyHash> {
        self.runs.iter().flat_map(|run| run.iter().copied())
    }
}

fn order(hash: &KeyHash) -> (u64, u64) {
    (hash.low, hash.high)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(number: u64) -> KeyHash {
        KeyHash {
            low: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            high: number % 3,
        }
    }

    #[test]
    fn each_hash_is_there_once_in_few_runs() {
        for batch in [1, 7, 1000] {
            let mut first_added = FirstAdded::default();
            let mut all = HashSet::new();
            for first in (0..4000).step_by(batch) {
                // Half of the numbers were added before, and one is there twice.
                let numbers = (first / 2..first / 2 + batch as u64).chain([first / 2]);
                let added = first_added.extend(numbers.clone().map(hash).collect());
                let before = all.len();
                all.extend(numbers);
                assert_eq!(added, all.len() - before);
                assert_eq!(first_added.len(), all.len());
                assert!(
                    first_added.runs.len() <= 12,
                    "{} runs",
                    first_added.runs.len()
                );
            }
            assert!(all.iter().all(|&number| first_added.contains(hash(number))));
            assert!(!first_added.contains(hash(4000)));
            assert_eq!(first_added.iter().count(), all.len());
            assert_eq!(first_added.extend(Vec::new()), 0);
        }
        assert!(FirstAdded::default().is_empty());
    }
}
