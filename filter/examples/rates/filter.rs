//! The interface of the measured filters.

use seenset_filter::hash::KeyHash;

/// A filter in plain memory, of any kind.
///
/// Keys come in large batches, and can be reordered. The order of their bits in memory takes a
/// third less time if the memory is larger than the caches.
pub trait Filter {
    /// Adds keys that were not added before.
    fn add(&mut self, hashes: &mut [KeyHash]);

    /// Returns the number of keys that are present, or seem to be.
    fn found(&self, hashes: &mut [KeyHash]) -> u64;

    /// Returns the expected false-positive rate after `keys` keys.
    fn rate_by_keys(&self, keys: u64) -> f64;

    /// Returns the expected false-positive rate with the bits that are set now.
    fn rate_by_fill(&self) -> f64;

    /// Lets time pass before more keys come, for filters whose keys age.
    fn pass(&mut self) {}
}
