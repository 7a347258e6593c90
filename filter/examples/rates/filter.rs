//! What is measured.

use seenset_filter::hash::KeyHash;

/// A filter in plain memory, of any kind.
///
/// Keys come in large batches, and may be put in another order: that in which their bits lie in
/// memory takes a third less time where there is more of it than the caches hold.
pub trait Filter {
    /// Adds keys that were not added before.
    fn add(&mut self, hashes: &mut [KeyHash]);

    /// How many of the keys are there, or seem to be.
    fn found(&self, hashes: &mut [KeyHash]) -> u64;

    /// The false-positive rate that is to be expected after so many keys.
    fn rate_by_keys(&self, keys: u64) -> f64;

    /// The false-positive rate that is to be expected with the bits that are set now.
    fn rate_by_fill(&self) -> f64;

    /// Lets time pass before more keys come, for filters whose keys age.
    fn pass(&mut self) {}
}
