//! The false-positive rate of layers together.
//!
//! Layers are not independent. A key has the same bits in its block of each layer, as far as the
//! hash counts reach, and it is added to the newest layer only if no older one reports it. Take a
//! key that an older layer reports. Other keys that share a bit with it are reported there more
//! often than most, so fewer of them reach the newer layer. So both layers report the same key more
//! rarely than independent layers would, and the rate of both together is higher.
//!
//! Let an older layer have the rate `r` and the share `f` of its bits set, and take a key that it
//! does not report. A bit of this key is set there with a probability of `(f - r) / (1 - r)`. Other
//! keys that share the bit are reported if it is set and all of their other bits are, which has a
//! probability of `r / f`. So `1 - r · (1 - r / f) / (1 - r)` of them reach the newer layer, but
//! `1 - r` of all keys. That is more by a factor of `1 + (r / (1 - r))² · (1 / f - 1)`. The newer
//! layer reports a key that no older layer reports as often as if it had more keys, by the factors
//! of all older layers.
//!
//! If a key has `n` bits in the newer layer and only `k < n` in the older one, this is true of `k`
//! in `n` of its bits, and of `k` in `n` keys that share such a bit. So the logarithm of the factor
//! counts `(k / n)²` times.
//!
//! The prediction leaves out that the blocks of a key in all layers lie at the same place. Places
//! where older layers report more keys get fewer keys in newer layers. `docs/rates.md` says how
//! much that is.

use super::compound;
use crate::{blocked::Blocked, format::Format, sizing};

/// The false-positive rate of layers, which are added from the oldest to the newest.
#[derive(Default)]
pub struct Together {
    /// The rate at which at least one layer reports a key that was not added.
    rate: f64,
    /// For each layer, its hash count and the logarithm of its factor.
    factors: Vec<(f64, f64)>,
}

impl Together {
    /// Returns the rate at which at least one layer reports a key that was not added.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Adds the next layer, with `keys` keys. A `share` of all keys belongs to partitions that have
    /// this layer.
    pub fn add(&mut self, layer: &Blocked, keys: f64, share: f64) {
        if keys <= 0.0 {
            return;
        }
        let count = f64::from(layer.shape().hash_count());
        let factors = self.factors.iter();
        let factor: f64 = factors
            .map(|(older, factor)| (older / count).min(1.0).powi(2) * factor)
            .sum();
        let rate = sizing::false_positive_rate(layer, keys * factor.exp());
        self.rate = compound([self.rate, rate * share].into_iter());

        let fill_ratio = sizing::fill_ratio(layer, keys);
        if rate < 1.0 {
            let odds = rate / (1.0 - rate);
            let excess = odds * odds * (1.0 / fill_ratio - 1.0);
            self.factors.push((count, excess.ln_1p()));
        }
    }
}
