//! The time for which an aging filter remembers its keys.

use std::time::Duration;

use super::SpecError;
use crate::stamps::MAX_SLICES;

/// The shortest slice. In each slice all memory is cleared once of stamps that are too old.
const MIN_SLICE: Duration = Duration::from_secs(1);
/// The longest age, a century.
const MAX_MAX_AGE: Duration = Duration::from_secs(36_500 * 24 * 3600);

/// The aging of keys. A key that was added is present for `max_age`, and is forgotten within a
/// slice after that. Slices are equal parts of `max_age`, and for all filters they are counted from
/// the beginning of 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Aging {
    /// The time for which a key is remembered.
    pub max_age: Duration,
    /// The number of slices.
    pub slices: u32,
    /// Whether adding a key that is already present restarts its time.
    pub refresh: bool,
}

impl Aging {
    /// The number of slices if none is asked for.
    pub const DEFAULT_SLICES: u32 = 8;

    /// Checks its numbers.
    ///
    /// # Errors
    ///
    /// [`SpecError::Slices`] or [`SpecError::MaxAge`].
    pub fn check(&self) -> Result<(), SpecError> {
        let Self {
            max_age, slices, ..
        } = *self;
        if !(1..=MAX_SLICES).contains(&slices) {
            return Err(SpecError::Slices { value: slices });
        }
        if max_age < MIN_SLICE * slices || max_age > MAX_MAX_AGE {
            return Err(SpecError::MaxAge {
                value: max_age,
                least: MIN_SLICE * slices,
                most: MAX_MAX_AGE,
            });
        }
        Ok(())
    }

    /// Returns the length of a slice.
    pub fn slice(&self) -> Duration {
        let nanos = self.max_age.as_nanos().div_ceil(self.slices.max(1).into());
        // A century has fewer than 2^62 nanoseconds.
        Duration::from_nanos(nanos as u64).max(Duration::from_nanos(1))
    }

    /// Returns the number of the slice that contains a time, which is counted from 1970.
    pub fn epoch(&self, time: Duration) -> u64 {
        (time.as_nanos() / self.slice().as_nanos()) as u64
    }

    /// Returns the begin of a slice, counted from 1970.
    pub fn begin(&self, epoch: u64) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let nanos = self.slice().as_nanos() * u128::from(epoch);
        // A slice has fewer than 2^62 nanoseconds.
        let seconds = u64::try_from(nanos / NANOS).unwrap_or(u64::MAX);
        Duration::new(seconds, (nanos % NANOS) as u32)
    }

    /// Returns the greatest age, in slices, of a key that was added within `age`, which is rounded
    /// up to whole slices.
    pub fn slices_of(&self, age: Duration) -> u32 {
        let slices = age.as_nanos().div_ceil(self.slice().as_nanos());
        slices.min(self.slices.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_key_is_forgotten_within_a_slice_behind_its_age() {
        for (max_age, slices) in [(DAY, 8), (DAY * 30, 13), (Duration::from_secs(7), 3)] {
            let aging = Aging {
                max_age,
                slices,
                refresh: false,
            };
            let slice = aging.slice();
            let start = DAY * 20_000;
            let epoch = aging.epoch(start);
            let nano = Duration::from_nanos(1);
            assert_eq!(aging.epoch(aging.begin(epoch)), epoch);
            assert_eq!(aging.epoch(aging.begin(epoch) - nano), epoch - 1);
            for part in 0..20 {
                let added = start + slice * part / 20;
                let is_there = |age: Duration| {
                    let passed = aging.epoch(added + age) - aging.epoch(added);
                    passed <= aging.slices_of(max_age).into()
                };
                assert!(is_there(max_age));
                // Rounding to whole nanoseconds makes a slice longer by this.
                assert!(!is_there(max_age + slice + Duration::from_nanos(13)));
            }
        }
    }

    #[test]
    fn a_shorter_age_is_rounded_up() {
        let aging = Aging {
            max_age: DAY * 8,
            slices: 8,
            refresh: false,
        };
        let nano = Duration::from_nanos(1);
        for (age, slices) in [
            (nano, 1),
            (DAY, 1),
            (DAY + nano, 2),
            (DAY * 8, 8),
            (DAY * 9, 8),
        ] {
            assert_eq!(aging.slices_of(age), slices, "{age:?}");
        }
    }
}
