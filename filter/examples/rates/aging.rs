//! Filters whose keys age.
//!
//! First as many keys as the filter is made for are added, and forgotten before the measurement.
//! Their stamps stay in memory until they must be cleared, and must not count. Each fill comes one
//! slice after the one before, so that the keys that count have all ages.

use seenset_filter::{
    format::Format,
    hash::{KeyHash, KeyHasher},
    sizing,
    spec::Aging as Ages,
    stamps::{Stamps, Window},
};

use crate::{filter::Filter, keys::hash_batches};

pub const SLICES: u32 = Ages::DEFAULT_SLICES;
/// The first of the keys that are forgotten.
const FORGOTTEN: u64 = 1 << 50;
/// The number of epochs at which forgotten keys were added: the epochs before this one.
const FORGOTTEN_EPOCHS: u64 = 3;
/// The epoch of the first measured keys.
const FIRST: u64 = FORGOTTEN_EPOCHS + SLICES as u64;

pub struct Aging {
    stamps: Stamps,
    shards: Vec<Vec<u64>>,
    window: Window,
}

impl Aging {
    pub fn new(stamps: Stamps, capacity: u64, hasher: &KeyHasher) -> Self {
        let shape = stamps.shape();
        let mut filter = Self {
            stamps,
            shards: vec![vec![0; shape.shard_words()]; shape.shard_count()],
            window: Window {
                cleared: 0,
                now: 0,
                slices: SLICES,
            },
        };
        for epoch in 0..FORGOTTEN_EPOCHS {
            filter.wait(epoch);
            let [first, end] =
                [epoch, epoch + 1].map(|part| FORGOTTEN + capacity * part / FORGOTTEN_EPOCHS);
            hash_batches(hasher, first..end, |hashes| filter.add(hashes));
        }
        // All of them still count, so their stamps stay for some more slices.
        filter.wait(SLICES.into());
        filter.wait(FIRST - 1);
        filter
    }

    /// Waits for an epoch, and clears old stamps if that is necessary.
    fn wait(&mut self, epoch: u64) {
        self.window.now = epoch;
        if !self.window.is_fit() {
            let before = self.window;
            for shard in &mut self.shards {
                self.window = before;
                self.window.clear(shard);
            }
        }
    }
}

impl Filter for Aging {
    fn add(&mut self, hashes: &mut [KeyHash]) {
        let how = self.window.stamping(self.window.now, SLICES);
        hashes.sort_unstable_by_key(|hash| hash.high);
        let hashes = hashes.iter().copied().enumerate();
        self.stamps
            .stamp_each(&mut self.shards, 0, hashes, false, |_| how, |_, _, _| {});
    }

    fn found(&self, hashes: &mut [KeyHash]) -> u64 {
        let there = self.window.since(SLICES);
        let mut found = 0;
        hashes.sort_unstable_by_key(|hash| hash.high);
        let hashes = hashes.iter().copied().enumerate();
        let count = |_, _: &Vec<u64>, is_there| found += u64::from(is_there);
        self.stamps
            .contains_stamped(&self.shards, 0, hashes, |_| there, count);
        found
    }

    fn rate_by_keys(&self, keys: u64) -> f64 {
        sizing::false_positive_rate(&self.stamps, keys as f64)
    }

    /// Returns the rate expected from the stamps that count.
    fn rate_by_fill(&self) -> f64 {
        let set = |shard: &Vec<u64>| self.window.clone().clear(&mut shard.clone());
        let bits_set: u64 = self.shards.iter().map(set).sum();
        let fill_ratio = bits_set as f64 / self.stamps.shape().bit_count() as f64;
        sizing::false_positive_rate_at_fill(&self.stamps, fill_ratio)
    }

    fn pass(&mut self) {
        self.wait((self.window.now + 1).min(FIRST + u64::from(SLICES)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seenset_filter::spec::{Kind, SpecRequest};

    use super::*;
    use crate::subject::Subject;

    /// The measurement is stronger if there are stamps that must not count.
    #[test]
    fn keys_are_forgotten_before_anything_is_measured() {
        let ages = Ages {
            max_age: Duration::from_secs(SLICES.into()),
            slices: SLICES,
            refresh: false,
        };
        let request = SpecRequest {
            kind: Kind::Aging(ages),
            ..SpecRequest::new(1000, 0.1)
        };
        let shape = request.resolve().unwrap().body.shape();
        let hasher = Subject::Aging.hasher(0.1);
        let mut filter = Aging::new(shape.dimensions().into(), 1000, &hasher);
        let stamps = |filter: &Aging| shape.bits_set(&filter.shards[0]);
        assert!(filter.rate_by_fill() > 0.0);
        filter.pass();
        assert!(stamps(&filter) > 2000);
        assert_eq!(filter.rate_by_fill(), 0.0);
        hash_batches(&hasher, FORGOTTEN..FORGOTTEN + 1000, |hashes| {
            assert_eq!(filter.found(hashes), 0);
        });
        // They were cleared before the last fill.
        (0..SLICES).for_each(|_| filter.pass());
        assert_eq!((filter.window.now, stamps(&filter)), (FIRST + 8, 0));
    }
}
