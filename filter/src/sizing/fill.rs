//! The fill of lanes after a number of keys, and the number of keys for a fill.

use std::array;

use crate::limits::MAX_HASH_COUNT;

/// The number of lanes that the bits of a key are dealt to.
pub const LANES: u32 = 8;
/// The number of different counts of bits that a key can draw in a lane, 0 included.
const DRAWS: usize = (MAX_HASH_COUNT / LANES + 2) as usize;
/// The number of keys of a place after which it counts as full: a bit is unset with a probability
/// below 1e-60.
pub const FULL: f64 = 10_000.0;

/// A value computed once for each number of bits that a key can draw in a lane.
pub struct ByDraws<T>([T; DRAWS]);

impl<T> ByDraws<T> {
    pub fn new(compute: impl Fn(u32) -> T) -> Self {
        Self(array::from_fn(|draws| compute(draws as u32)))
    }

    /// Returns the value for `draws` draws: at most one more than a key of [`MAX_HASH_COUNT`] has
    /// in each lane.
    #[expect(
        clippy::indexing_slicing,
        reason = "there is one for each number of draws"
    )]
    pub fn of(&self, draws: u32) -> &T {
        &self.0[draws as usize]
    }
}

/// The fill of lanes of `lane_bits` bits each, in `places` places. A key has one place.
pub struct Fill {
    places: f64,
    lane_bits: f64,
    hash_count: u32,
}

impl Fill {
    /// Returns the fill for keys with `hash_count` bits.
    pub fn new(places: f64, lane_bits: f64, hash_count: u32) -> Self {
        Self {
            places,
            lane_bits,
            hash_count,
        }
    }

    /// Returns the expected share of set bits after `keys` keys.
    pub fn after(&self, keys: f64) -> f64 {
        // From the probability that a key of its place hits a bit, the share of such bits that some
        // key has hit.
        let filled = |hit: f64| -(keys * (-hit / self.places).ln_1p()).exp_m1();
        if self.hash_count <= LANES {
            return filled(self.hit());
        }
        let miss = 1.0 - 1.0 / self.lane_bits;
        let lane = |draws: u32| filled(1.0 - miss.powi(draws as i32));
        let (rounds, more) = (self.hash_count / LANES, self.hash_count % LANES);
        (f64::from(more) * lane(rounds + 1) + f64::from(LANES - more) * lane(rounds))
            / f64::from(LANES)
    }

    /// Returns the number of keys after which the share `fill_ratio` of all bits is expected to be
    /// set. `fill_ratio` lies between 0 and 1, neither included.
    pub fn keys_at(&self, fill_ratio: f64) -> f64 {
        if self.hash_count <= LANES {
            return (-fill_ratio).ln_1p() / (-self.hit() / self.places).ln_1p();
        }
        // Lanes that get one more bit fill up sooner, so search for the number of keys.
        let (mut low, mut high) = (0.0, self.places * FULL);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if self.after(middle) < fill_ratio {
                low = middle
            } else {
                high = middle
            }
        }
        high
    }

    /// Returns the probability that a key of its place hits a bit, if all bits are hit alike: with
    /// at most one bit in each lane.
    fn hit(&self) -> f64 {
        f64::from(self.hash_count) / (f64::from(LANES) * self.lane_bits)
    }
}
